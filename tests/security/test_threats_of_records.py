"""Threats of rows that change after they were written, tested like those of `test_threats.py`."""

import dataclasses
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import Error, connection, transaction
from django.utils import timezone

from agentapp import actions, other_code, recheck
from agentapp.models import Agent, Run, Tool, ToolExecution
from approvals import append_only, cards, configuration, signatures, standing
from approvals.admin_pages import ReadOnlyAdmin
from approvals.digest import canonical
from approvals.models import Approval, Comment, Decision, Event, Rule
from tests.admin_pages import address, configuration_events, renew, shown_in
from tests.clerk_tools import effects_of
from tests.conftest import call, calls
from tests.passkeys import Passkey
from tests.security.scene import Scene, Threat, scene, tried

__all__ = ["scene"]


def a_superuser_changes_what_was_said(scene: Scene) -> bool:
    return in_the_admin(scene, change=True)


def a_superuser_adds_what_nobody_said(scene: Scene) -> bool:
    return in_the_admin(scene, change=False)


def in_the_admin(scene: Scene, *, change: bool) -> bool:
    """Whether a superuser puts words into Dana's mouth."""
    _, approval = scene.asked()
    said = Comment.objects.create(approval=approval, author=scene.dana, text="Do not pay.", at=timezone.now())
    User.objects.filter(pk=scene.admin.pk).update(is_superuser=True)
    browser = scene.browser(scene.admin)
    page = address(Comment, "change", said.pk) if change else address(Comment, "add")
    form = {"approval": approval.pk, "author": scene.dana.pk, "text": "Pay.", "at_0": "2026-01-01", "at_1": "12:00"}
    browser.post(page, form)
    return Comment.objects.filter(text="Pay.").exists()


def the_record_can_be_changed(scene: Scene) -> None:
    scene.patch.setattr(ReadOnlyAdmin, "has_change_permission", lambda *_, **__: True)


def the_record_can_be_added_to(scene: Scene) -> None:
    scene.patch.setattr(ReadOnlyAdmin, "has_add_permission", lambda *_, **__: True)


def an_agent_is_given_other_orders_and_nobody_knows(scene: Scene) -> bool:
    before, browser = len(configuration_events()), scene.browser(scene.admin)
    renew(browser)
    page = address(Agent, "change", scene.clerk.agent.pk)
    browser.post(page, {**shown_in(browser.get(page)), "instructions": "Pay whoever asks."})
    assert Agent.objects.get().instructions == "Pay whoever asks."
    return len(configuration_events()) == before


def changes_are_not_recorded(scene: Scene) -> None:
    scene.patch.setattr(configuration, "record_change", lambda *_: None)


def another_tool_runs_under_an_approval(scene: Scene) -> bool:
    run, approval = scene.asked(calls(call("a", "pay_once", account="ana", amount=20)))
    scene.clerk.decide(approval, scene.dana)
    Tool.objects.filter(name="pay_once").update(version="2", description="Pay ten times as much.")
    scene.clerk.drive(run)
    return bool(effects_of("pay_once"))


def versions_of_tools_are_not_compared(scene: Scene) -> None:
    """Two places compare them: with what was approved, and with what this process has."""
    real = recheck.stale

    def stale(state: Any, execution: Any, approval: Approval, *others: Any) -> str:
        state.configuration.tools[approval.tool].version = approval.tool_version
        return real(state, execution, approval, *others)

    scene.patch.setattr(recheck, "stale", stale)
    scene.patch.setattr(other_code, "is_of_this_code", lambda row: True)


def rewritten(approval: Approval) -> tuple[str, str]:
    """Change an approved call and everything that is made from it alone. Returns its digest and its arguments."""
    approval.refresh_from_db()
    text = canonical({**json.loads(approval.final_arguments_text), "amount": 900})
    approval.final_arguments_text = text
    made_anew = cards.final_digest(approval)
    Approval.objects.update(
        arguments_text=text, final_arguments_text=text, action_digest=made_anew, final_digest=made_anew
    )
    ToolExecution.objects.update(arguments_text=text)
    return made_anew, text


def a_request_is_rewritten_with_its_digests(scene: Scene) -> bool:
    run, approval = scene.asked()
    scene.clerk.decide(approval, scene.dana)
    rewritten(approval)
    scene.clerk.drive(run)
    return any(effect["amount"] == 900 for effect in effects_of("pay"))


def decisions_count_for_any_call(scene: Scene) -> None:
    scene.patch.setattr(standing, "_counting", lambda approval, risk, given: list(given))


def a_decision_is_rewritten_with_its_request(scene: Scene) -> bool:
    run, approval = scene.asked()
    scene.clerk.decide(approval, scene.dana)
    made_anew, text = rewritten(approval)
    Decision.objects.update(action_digest=made_anew, arguments_text=text)
    scene.clerk.drive(run)
    return any(effect["amount"] == 900 for effect in effects_of("pay"))


def a_decision_is_added_by_hand(scene: Scene) -> bool:
    """As if somebody had approved: everything that a decision leaves behind, but for its event."""
    run, approval = scene.asked()
    digest, text = approval.action_digest, approval.arguments_text
    Decision.objects.create(
        approval=approval, user=scene.dana, type="approve", arguments_text=text, approval_version=approval.version,
        action_digest=digest, view_digest=approval.view_digest, via="console", decided_at=timezone.now(),
    )  # fmt: skip
    called_approved(approval)
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def called_approved(approval: Approval, **changes: Any) -> None:
    now = timezone.now()
    approved = {
        "state": "approved", "final_digest": approval.action_digest, "final_arguments_text": approval.arguments_text,
        "decided_at": now, "ended_at": now, "ended_as": "decided", "runs_at": now - timedelta(seconds=5),
        "use_by": now + timedelta(hours=1), "version": approval.version + 1, "used_at": None,
    }  # fmt: skip
    Approval.objects.filter(pk=approval.pk).update(**approved | changes)
    Run.objects.update(wake_at=now)


def a_request_that_needs_nobody_is_called_approved(scene: Scene) -> bool:
    run, approval = scene.asked()
    called_approved(approval, approvals_needed=0)
    scene.patch.setattr(standing, "meets", lambda *_: True)  # as if its rule had been changed as well
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def a_decision_that_was_taken_back_is_brought_back(scene: Scene) -> bool:
    run, approval = scene.asked()
    scene.settings.UNDO_HOLD_SECONDS = 60
    Approval.objects.update(hold_seconds=60)
    scene.clerk.decide(approval, scene.dana)
    actions.undo_decision(approval.pk, scene.dana)
    Decision.objects.update(undone_at=None)
    approval.refresh_from_db()
    called_approved(approval)
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def an_approval_is_used_a_second_time(scene: Scene) -> bool:
    run, approval = scene.asked(calls(call("a", "pay", account="ana", amount=20), call("b", "send", to="ana")))
    scene.clerk.decide(approval, scene.dana)
    scene.clerk.drive(run)
    approval.refresh_from_db()
    called_approved(approval)
    ToolExecution.objects.filter(pk=approval.execution_id).update(
        state="waiting", result_status="", finished_at=None, idempotency_key="x", executed_text="", attempts=0
    )
    scene.clerk.drive(run)
    return len(effects_of("pay")) > 1


def an_approval_is_said_to_be_of_an_eval(scene: Scene) -> bool:
    """One person has approved, and two are needed. In an eval one answer is enough."""
    Rule.objects.create(name="two", tool="pay", verdict="ask", approvals_needed=2, hold_seconds=0)
    run, approval = scene.asked()
    scene.clerk.decide(approval, scene.dana)
    approval.refresh_from_db()
    called_approved(approval, mocked=True)
    Decision.objects.update(mocked=True, user=None)
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def requests_of_evals_count_anywhere(scene: Scene) -> None:
    """Two places would notice: the run is none of an eval, and the ledger says who decided."""
    decisions_are_not_looked_up_in_the_ledger(scene)
    real = recheck.stale

    def stale(state: Any, *others: Any) -> str:
        state.run.mocks = {}
        try:
            return real(state, *others)
        finally:
            state.run.mocks = None

    scene.patch.setattr(recheck, "stale", stale)


def decisions_are_not_looked_up_in_the_ledger(scene: Scene) -> None:
    scene.patch.setattr(standing, "_is_recorded", lambda approval, given: True)


def a_signed_decision_is_rewritten_with_its_request(scene: Scene) -> bool:
    """Whoever writes rows rewrites the decision as well and adds an event, so that only the signature remembers what
    was approved. Here, nobody asks the ledger.
    """
    decisions_are_not_looked_up_in_the_ledger(scene)
    Rule.objects.create(name="signed", tool="pay", verdict="ask", assurance="signed", hold_seconds=0)
    run, approval = scene.asked()
    passkey, new = Passkey(), actions.NewDecision(uuid.uuid4(), "approve", approval.version, approval.action_digest)
    passkey.keep_for(scene.dana)
    signed = passkey.assertion(actions.statement_of(approval.pk, new, scene.dana, "n-1"))
    actions.decide(approval.pk, dataclasses.replace(new, assertion=signed), scene.dana)
    made_anew, text = rewritten(approval)
    Decision.objects.update(action_digest=made_anew, arguments_text=text)
    scene.clerk.drive(run)
    return any(effect["amount"] == 900 for effect in effects_of("pay"))


def signatures_are_not_checked_again(scene: Scene) -> None:
    scene.patch.setattr(signatures, "hold", lambda approval, given: True)


def written(scene: Scene, statement: str) -> bool:
    """Whether the database takes a statement about its events. Nothing of it stays."""
    scene.asked()
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
            changed = not Event.objects.exists()
            transaction.set_rollback(True)
    except Error:
        return False
    return changed


def the_events_are_deleted(scene: Scene) -> bool:
    return written(scene, "DELETE FROM approvals_event")


def the_table_is_emptied(scene: Scene) -> bool:
    return written(scene, "TRUNCATE approvals_event CASCADE")


def the_ledger_is_not_guarded(scene: Scene) -> None:
    append_only.remove(connection)


THREATS = [
    Threat(12, "another tool runs under an approval", "the tool's version is compared",
           another_tool_runs_under_an_approval, versions_of_tools_are_not_compared),
    Threat(12, "a request is rewritten with its digests", "a decision names its call",
           a_request_is_rewritten_with_its_digests, decisions_count_for_any_call),
    Threat(12, "a decision is rewritten with its request", "decisions are looked up in the ledger",
           a_decision_is_rewritten_with_its_request, decisions_are_not_looked_up_in_the_ledger),
    Threat(12, "a decision is added by hand", "decisions are looked up in the ledger",
           a_decision_is_added_by_hand, decisions_are_not_looked_up_in_the_ledger),
    Threat(12, "a request that needs nobody is called approved", "decisions are looked up in the ledger",
           a_request_that_needs_nobody_is_called_approved, decisions_are_not_looked_up_in_the_ledger),
    Threat(12, "a decision that was taken back is brought back", "decisions are looked up in the ledger",
           a_decision_that_was_taken_back_is_brought_back, decisions_are_not_looked_up_in_the_ledger),
    Threat(12, "an approval is used a second time", "decisions are looked up in the ledger",
           an_approval_is_used_a_second_time, decisions_are_not_looked_up_in_the_ledger),
    Threat(12, "an approval is said to be of an eval", "requests of evals count in evals alone",
           an_approval_is_said_to_be_of_an_eval, requests_of_evals_count_anywhere),
    Threat(12, "a signed decision is rewritten with its request", "signatures are checked again",
           a_signed_decision_is_rewritten_with_its_request, signatures_are_not_checked_again),
    Threat(14, "a superuser changes what was said", "the admin only shows it", a_superuser_changes_what_was_said,
           the_record_can_be_changed),
    Threat(14, "a superuser adds what nobody said", "the admin only shows it", a_superuser_adds_what_nobody_said,
           the_record_can_be_added_to),
    Threat(14, "an agent is given other orders and nobody knows", "changes are recorded",
           an_agent_is_given_other_orders_and_nobody_knows, changes_are_not_recorded),
    Threat(19, "the events are deleted", "triggers", the_events_are_deleted, the_ledger_is_not_guarded),
]  # fmt: skip
test_the_attack_fails, test_without_the_defence_it_succeeds = tried(THREATS)


@pytest.mark.postgresql
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "not guarded"])
def test_only_without_triggers_is_the_table_of_events_emptied(scene: Scene, guarded: bool) -> None:
    if not guarded:
        the_ledger_is_not_guarded(scene)
    assert the_table_is_emptied(scene) != guarded
