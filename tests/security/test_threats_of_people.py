"""Threats of who is asking, and when, tested like those of `test_threats.py`: sessions, tokens, rights and rows."""

import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib import auth as sign_in
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import Error, connection, transaction
from django.test import Client
from django.utils import timezone

from agentapp import actions, auth, other_code, recheck, renewed, takers
from agentapp.models import Agent, ApiToken, Run, Tool, ToolExecution
from approvals import append_only, configuration, entitlement, standing, step_up
from approvals.admin_pages import ReadOnlyAdmin
from approvals.digest import canonical
from approvals.entitlement import Sight
from approvals.models import Approval, Comment, Decision, Event
from tests.admin_pages import address, configuration_events, renew, shown_in
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.security.scene import PAY, Scene, Threat, body_of, named, scene

__all__ = ["scene"]


def api(secret: str) -> Client:
    return Client(headers={"authorization": f"Bearer {secret}"})


def token(user: User, *scopes: str, by: User | None = None) -> str:
    return auth.issue_token(user, "of a test", list(scopes), "test", issued_by=by or user)[1]


# --- Whoever was signed in -----------------------------------------------------------------------


def decides_after(scene: Scene, what_happens: Any) -> bool:
    """Whether Dana decides from a page that she opened before something happened."""
    _, approval = scene.asked()
    browser, page = scene.browser(scene.dana), f"/approvals/{approval.pk}/"
    assert browser.get(page).status_code == 200
    what_happens(browser)
    browser.post(f"{page}decide/", body_of(approval))
    return Decision.objects.exists()


def a_right_is_taken_away_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: scene.dana.groups.clear())


def an_account_is_closed_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: User.objects.filter(pk=scene.dana.pk).update(is_active=False))


def a_password_is_changed_while_the_page_is_open(scene: Scene) -> bool:
    def change(browser: Client) -> None:
        dana = User.objects.get(pk=scene.dana.pk)
        dana.set_password("another horse battery")
        dana.save()

    return decides_after(scene, change)


def a_session_is_ended_while_the_page_is_open(scene: Scene) -> bool:
    return decides_after(scene, lambda browser: Session.objects.all().delete())


def people_are_remembered(scene: Scene) -> None:
    """By their cookie, as they were when they opened the page: with their rights, and nothing is looked up again."""
    real, known = sign_in.get_user, dict[str, Any]()

    def remembered(request: Any) -> Any:
        key = request.COOKIES.get(settings.SESSION_COOKIE_NAME, "")
        return known.get(key) or known.setdefault(key, real(request))

    scene.patch.setattr(sign_in, "get_user", remembered)


def a_session_outlives_its_day(scene: Scene) -> bool:
    yesterday = timezone.now() - timedelta(days=1)
    return decides_after(scene, lambda browser: Session.objects.update(expire_date=yesterday))


def sessions_never_end(scene: Scene) -> None:
    def of_any_age(self: SessionStore) -> Any:
        return self.model.objects.filter(session_key=self.session_key).first()

    scene.patch.setattr(SessionStore, "_get_session_from_db", of_any_age)


def a_token_that_has_ended_reads(scene: Scene) -> bool:
    revoked, expired = token(scene.dana, "approvals:read"), token(scene.dana, "approvals:read")
    first, second = ApiToken.objects.order_by("created_at", "pk")
    auth.revoke_token(first, "test")
    ApiToken.objects.filter(pk=second.pk).update(expires_at=timezone.now() - timedelta(days=1))
    return all(api(secret).get("/api/v1/approvals").status_code == 200 for secret in (revoked, expired))


def tokens_never_end(scene: Scene) -> None:
    def authenticate(secret: str) -> ApiToken | None:
        return ApiToken.objects.select_related("user").filter(digest=auth._digest(secret), user__is_active=True).first()

    scene.patch.setattr(auth, "authenticate", authenticate)


def an_unlocked_screen_makes_a_token(scene: Scene) -> bool:
    said = {"name": "mine", "scopes": ["approvals:read"], "days": "30"}
    scene.browser(scene.dana).post("/settings/tokens/new/", said)
    return ApiToken.objects.exists()


def nobody_confirms_who_they_are(scene: Scene) -> None:
    scene.patch.setattr(renewed, "is_renewed", lambda request: True)


def a_sign_in_of_this_morning_pays(scene: Scene) -> bool:
    scene.settings.STEP_UP = {"irreversible": "passkey"}
    run, approval = scene.asked()
    browser = scene.browser(scene.dana)
    renew(browser, ago=3600)
    browser.post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    scene.clerk.drive(run)
    return bool(effects_of("pay"))


def every_sign_in_is_enough(scene: Scene) -> None:
    """Three places compare: as it is decided, as decisions are counted, and before the call."""
    scene.patch.setattr(step_up, "is_enough", lambda shown, needed: True)
    scene.patch.setattr(step_up, "enough_for", lambda needed: step_up.LEVELS)


# --- Whose run it is -----------------------------------------------------------------------------


def the_starter_approves_by_a_token_in_anothers_name(scene: Scene) -> bool:
    _, approval = scene.asked()
    with suppress(auth.TokenRefused):
        said = {**body_of(approval), "type": "approve"}
        program = api(token(scene.dana, "approvals:decide", by=scene.clerk.starter))
        program.post(f"/api/v1/approvals/{approval.pk}/decisions", json.dumps(said), content_type="application/json")
    return Decision.objects.exists()


def tokens_decide_for_anybody(scene: Scene) -> None:
    """Two places ask whose decision it is: the one that makes a token, and the one that uses it."""
    scene.patch.setattr(auth, "FOR_ONESELF", frozenset())


def whoever_made_the_token_approves_what_it_started(scene: Scene) -> bool:
    started = ApiToken.objects.get(digest=auth._digest(token(scene.clerk.starter, "runs:create", by=scene.dana)))
    new = actions.NewRun(agent="clerk", input="Pay.", script=[PAY, says("done")])
    run = scene.clerk.drive(actions.start_run(new, scene.clerk.starter, started))
    [approval] = scene.clerk.open(run)
    scene.browser(scene.dana).post(f"/approvals/{approval.pk}/decide/", body_of(approval))
    return Decision.objects.exists()


def nobody_asks_who_made_a_token(scene: Scene) -> None:
    scene.patch.setattr(takers, "of", lambda *_: [])


# --- Whose words they are ------------------------------------------------------------------------


def a_stranger_reads_a_request(scene: Scene) -> bool:
    _, approval = scene.asked()
    program = api(token(scene.outsider, "approvals:read"))
    page = scene.browser(scene.outsider).get(f"/approvals/{approval.pk}/")
    told = program.get(f"/api/v1/approvals/{approval.pk}")
    return page.status_code == told.status_code == 200


def requests_are_everybodys(scene: Scene) -> None:
    scene.patch.setattr(entitlement, "sight_of", lambda user: Sight.ALL)


def a_stranger_exports_a_run(scene: Scene) -> bool:
    run, _ = scene.asked()
    scene.outsider.user_permissions.add(Permission.objects.get(codename="view_event"))
    answer = scene.browser(scene.outsider).post("/audit/export/jsonl/")
    assert answer.status_code == 200
    return str(run.pk) in b"".join(answer.streaming_content).decode()


def a_stranger_reads_a_run_by_a_token(scene: Scene) -> bool:
    run, _ = scene.asked()
    return api(token(scene.outsider, "runs:read")).get(f"/api/v1/runs/{run.pk}").status_code == 200


def runs_are_everybodys(scene: Scene) -> None:
    scene.patch.setattr(auth, "visible_runs", lambda user: Run.objects.all())


# --- What is on record ---------------------------------------------------------------------------


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


def a_request_is_rewritten_with_its_digests(scene: Scene) -> bool:
    run, approval = scene.asked()
    scene.clerk.decide(approval, scene.dana)
    approval.refresh_from_db()
    approval.final_arguments_text = canonical({**json.loads(approval.final_arguments_text), "amount": 900})
    made_anew = standing.final_digest(approval)
    Approval.objects.update(
        arguments_text=approval.final_arguments_text, final_arguments_text=approval.final_arguments_text,
        action_digest=made_anew, final_digest=made_anew,
    )  # fmt: skip
    ToolExecution.objects.update(arguments_text=approval.final_arguments_text)
    scene.clerk.drive(run)
    return any(effect["amount"] == 900 for effect in effects_of("pay"))


def decisions_count_for_any_call(scene: Scene) -> None:
    scene.patch.setattr(standing, "_counting", lambda approval, risk, given: list(given))


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
    Threat(4, "whoever started a run approves it by a token in another's name", "tokens decide for their maker",
           the_starter_approves_by_a_token_in_anothers_name, tokens_decide_for_anybody),
    Threat(4, "whoever made a token approves what it started", "the maker of a token is compared",
           whoever_made_the_token_approves_what_it_started, nobody_asks_who_made_a_token),
    Threat(11, "a stranger reads a request", "one queryset for each person", a_stranger_reads_a_request,
           requests_are_everybodys),
    Threat(11, "a stranger reads a run by a token", "one queryset for each person", a_stranger_reads_a_run_by_a_token,
           runs_are_everybodys),
    Threat(11, "a stranger exports a run", "one queryset for each person", a_stranger_exports_a_run,
           runs_are_everybodys),
    Threat(12, "another tool runs under an approval", "the tool's version is compared",
           another_tool_runs_under_an_approval, versions_of_tools_are_not_compared),
    Threat(12, "a request is rewritten with its digests", "a decision names its call",
           a_request_is_rewritten_with_its_digests, decisions_count_for_any_call),
    Threat(14, "a superuser changes what was said", "the admin only shows it", a_superuser_changes_what_was_said,
           the_record_can_be_changed),
    Threat(14, "a superuser adds what nobody said", "the admin only shows it", a_superuser_adds_what_nobody_said,
           the_record_can_be_added_to),
    Threat(14, "an agent is given other orders and nobody knows", "changes are recorded",
           an_agent_is_given_other_orders_and_nobody_knows, changes_are_not_recorded),
    Threat(19, "the events are deleted", "triggers", the_events_are_deleted, the_ledger_is_not_guarded),
    Threat(21, "a right is taken away while the page is open", "people are read with each request",
           a_right_is_taken_away_while_the_page_is_open, people_are_remembered),
    Threat(21, "an account is closed while the page is open", "people are read with each request",
           an_account_is_closed_while_the_page_is_open, people_are_remembered),
    Threat(21, "a password is changed while the page is open", "people are read with each request",
           a_password_is_changed_while_the_page_is_open, people_are_remembered),
    Threat(21, "a session is ended while the page is open", "people are read with each request",
           a_session_is_ended_while_the_page_is_open, people_are_remembered),
    Threat(21, "a session outlives its day", "sessions end", a_session_outlives_its_day, sessions_never_end),
    Threat(21, "a token that has ended reads", "tokens end", a_token_that_has_ended_reads, tokens_never_end),
    Threat(21, "an unlocked screen makes a token", "people confirm who they are", an_unlocked_screen_makes_a_token,
           nobody_confirms_who_they_are),
    Threat(21, "a sign-in of this morning pays", "what somebody has shown is compared",
           a_sign_in_of_this_morning_pays, every_sign_in_is_enough),
]  # fmt: skip


@named(THREATS)
def test_the_attack_fails(threat: Threat, scene: Scene) -> None:
    assert not threat.attack(scene)


@named(THREATS)
def test_without_the_defence_it_succeeds(threat: Threat, scene: Scene) -> None:
    threat.switch_off(scene)
    assert threat.attack(scene)


@pytest.mark.postgresql
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "not guarded"])
def test_only_without_triggers_is_the_table_of_events_emptied(scene: Scene, guarded: bool) -> None:
    if not guarded:
        the_ledger_is_not_guarded(scene)
    assert the_table_is_emptied(scene) != guarded
