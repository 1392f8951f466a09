"""People have the agent propose other arguments, by asking or by what they say: at high risk somebody else approves."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import actions, executions, runs
from agentapp.models import Run
from approvals import decisions, entitlement, ledger
from approvals.models import Approval, Question, Rule
from tests.clerk_tools import effects_of
from tests.conftest import Clerk, call, calls, make_user, says

pytestmark = pytest.mark.django_db(transaction=True)
NEW = "XX99-88123456"
PAY_ANA = call("p", "pay", account="ana", amount=20)


def proposes(*instead: dict[str, Any]) -> dict[str, Any]:
    """A reply that pays Ana, and what the agent proposes instead when it is asked."""
    answers = [{"id": "i", "name": "pay", "arguments": {"amount": 20, **given}} for given in instead]
    return calls(PAY_ANA) | {"answer": {"text": "You are right.", "tool_calls": answers}}


def ask(clerk: Clerk, run: Run, who: User, text: str) -> Approval:
    (approval,) = clerk.open(run)
    actions.ask_agent(approval.pk, text, who)
    clerk.drive(run)
    (new,) = clerk.open(run)
    assert new.supersedes_id == approval.pk
    return new


def refused(clerk: Clerk, approval: Approval, who: User) -> actions.Refused:
    with pytest.raises(actions.Refused) as found:
        clerk.decide(approval, who)
    return found.value


def origin_of(approval: Approval, path: str) -> dict[str, Any]:
    [row] = [row for row in approval.provenance if row["path"] == path]
    return row


def page_of(who: User, approval: Approval) -> str:
    client = Client()
    client.force_login(who)
    return client.get(f"/approvals/{approval.pk}/").content.decode()


@pytest.fixture
def risk(request: pytest.FixtureRequest) -> str:
    level = getattr(request, "param", "high")
    Rule.objects.create(name="paying", tool="pay", verdict="ask", risk=level)
    return level


class TestAsking:
    @pytest.fixture
    def anew(self, clerk: Clerk, dana: User, risk: str) -> Approval:
        run = clerk.run(proposes({"account": NEW}), says("done"))
        return ask(clerk, run, dana, f"Her new account is {NEW}. Should you not propose that one?")

    def test_whoever_asked_does_not_approve_what_is_proposed_then_and_somebody_else_does(
        self, clerk: Clerk, anew: Approval, dana: User, marco: User
    ) -> None:
        told = refused(clerk, anew, dana)
        assert told.code == "editor"
        assert told.args[0] == "What you asked or said went into these arguments, so somebody else must approve them."
        run = anew.execution.run
        assert clerk.drive(run).state == "waiting"
        clerk.decide(anew, marco)
        assert clerk.drive(run).state == "succeeded"
        assert effects_of("pay") == [{"account": NEW, "amount": 20.0}]

    def test_they_may_reject_it(self, clerk: Clerk, anew: Approval, dana: User) -> None:
        clerk.decide(anew, dana, "reject", message="Not that either.")
        anew.refresh_from_db()
        assert anew.state == "rejected"

    def test_what_they_named_comes_from_our_team(self, anew: Approval) -> None:
        row = origin_of(anew, "account")
        assert (row["origin"], row["source"]) == ("staff", "What a person asked")

    def test_the_page_says_so_to_them_and_to_others(self, anew: Approval, dana: User, marco: User) -> None:
        assert "Proposed again after you asked." in page_of(dana, anew)
        html = page_of(marco, anew)
        assert "Proposed again after Dana Whitfield asked." in html
        assert "Somebody else approves this." in html
        assert "made these arguments" not in html

    @pytest.mark.parametrize("risk", ["medium"], indirect=True)
    def test_at_medium_risk_they_approve_it_as_before(self, clerk: Clerk, dana: User, risk: str) -> None:
        Rule.objects.create(name="labels", tool="label", verdict="ask", risk=risk)
        instead = {"text": "Rather y.", "tool_calls": [call("c", "label", text="y")]}
        run = clerk.run(calls(call("b", "label", text="x")) | {"answer": instead}, says("done"))
        anew = ask(clerk, run, dana, "Why x?")
        assert anew.risk not in ("high", "critical")
        assert "Proposed again after" not in page_of(dana, anew)
        clerk.decide(anew, dana)
        assert clerk.drive(run).state == "succeeded"

    def test_of_several_who_asked_none_approves(self, clerk: Clerk, anew: Approval, dana: User, marco: User) -> None:
        reply = json.loads(json.dumps(anew.execution.run.script))
        assert reply  # the same answer again would not be another proposal
        run = anew.execution.run
        run.script[0]["answer"]["tool_calls"][0]["arguments"] = {"account": NEW, "amount": 5}
        Run.objects.filter(pk=run.pk).update(script=run.script)
        third = ask(clerk, run, marco, "Why twenty?")
        assert json.loads(third.arguments_text)["amount"] == 5
        assert entitlement.editors(third) == {dana.pk, marco.pk}
        assert refused(clerk, third, dana).code == refused(clerk, third, marco).code == "editor"
        assert origin_of(third, "account")["origin"] == "staff"
        assert "Proposed again after Dana Whitfield and you asked." in page_of(marco, third)

    def test_who_changed_it_before_somebody_asked_does_not_approve_it_either(
        self, clerk: Clerk, dana: User, marco: User, risk: str
    ) -> None:
        run = clerk.run(proposes({"account": "ana", "amount": 7}), says("done"))
        (first,) = clerk.open(run)
        clerk.decide(first, dana, "edit", arguments_text='{"account": "ana", "amount": 6}')
        anew = ask(clerk, run, marco, "Why six?")
        assert (anew.editor_id, entitlement.editors(anew)) == (None, {dana.pk, marco.pk})
        assert "It had been changed by you earlier." in page_of(dana, anew)

    def test_a_question_that_only_repeats_what_the_call_says_vouches_for_nothing(
        self, clerk: Clerk, dana: User, risk: str
    ) -> None:
        reply = calls(call("p", "pay", account=NEW, amount=20))
        instead = [{"id": "i", "name": "pay", "arguments": {"account": NEW, "amount": 5}}]
        run = clerk.run(reply | {"answer": {"text": "Five.", "tool_calls": instead}}, says("done"))
        anew = ask(clerk, run, dana, f"Is {NEW} hers at all?")
        assert origin_of(anew, "account")["origin"] == "model"

    def test_a_question_answered_in_words_takes_nobodys_say(self, clerk: Clerk, dana: User, risk: str) -> None:
        run = clerk.run(calls(PAY_ANA) | {"answer": {"text": "The invoice says so."}}, says("done"))
        (approval,) = clerk.open(run)
        actions.ask_agent(approval.pk, "Why twenty?", dana)
        clerk.drive(run)
        assert Question.objects.get().answer
        clerk.decide(approval, dana)
        assert clerk.drive(run).state == "succeeded"


class TestSaying:
    def proposed_after(self, clerk: Clerk, who: User, words: str, kind: str = "reject", **then: Any) -> Approval:
        again = call("q", "pay", **{"account": NEW, "amount": 20, **then})
        run = clerk.run(calls(PAY_ANA), calls(again), says("done"))
        clerk.decide(clerk.open(run)[0], who, kind, message=words)
        clerk.drive(run)
        (approval,) = clerk.open(run)
        return approval

    @pytest.mark.parametrize("kind", ["reject", "respond"])
    def test_whose_words_a_value_stands_in_does_not_approve_it_and_somebody_else_does(
        self, clerk: Clerk, dana: User, marco: User, risk: str, kind: str
    ) -> None:
        approval = self.proposed_after(clerk, dana, f"Pay to {NEW} instead", kind)
        assert refused(clerk, approval, dana).code == "editor"
        clerk.decide(approval, marco)
        assert clerk.drive(approval.execution.run).state == "succeeded"
        assert effects_of("pay") == [{"account": NEW, "amount": 20.0}]

    def test_the_value_comes_from_our_team_and_is_theirs(self, clerk: Clerk, dana: User, risk: str) -> None:
        row = origin_of(self.proposed_after(clerk, dana, f"Pay to {NEW} instead"), "account")
        assert (row["origin"], row["source"], row["by"]) == ("staff", "What a person said about a call", [dana.pk])

    def test_it_is_theirs_within_a_longer_text_too(self, clerk: Clerk, dana: User, risk: str) -> None:
        approval = self.proposed_after(
            clerk, dana, f"Pay to {NEW} instead", account="bo", amount=7, memo=f"To be sent on to {NEW}, as agreed."
        )
        assert origin_of(approval, "memo")["by"] == [dana.pk]

    def test_the_page_says_so(self, clerk: Clerk, dana: User, marco: User, risk: str) -> None:
        approval = self.proposed_after(clerk, dana, f"Pay to {NEW} instead")
        assert "It contains values that you gave about an earlier call." in page_of(dana, approval)
        html = page_of(marco, approval)
        assert "It contains values that Dana Whitfield gave about an earlier call." in html
        assert "Somebody else approves this." in html

    @pytest.mark.parametrize("words", ["Not now.", "Not 20 to ana!"])
    def test_who_named_nothing_of_it_or_only_what_the_call_said_itself_approves_the_next(
        self, clerk: Clerk, dana: User, risk: str, words: str
    ) -> None:
        approval = self.proposed_after(clerk, dana, words)
        assert all("by" not in row for row in approval.provenance)
        clerk.decide(approval, dana)
        assert clerk.drive(approval.execution.run).state == "succeeded"

    def test_it_stays_theirs_when_the_call_asks_again(self, clerk: Clerk, dana: User, marco: User, risk: str) -> None:
        approval = self.proposed_after(clerk, dana, f"Pay to {NEW} instead")
        clerk.decide(approval, marco)
        Rule.objects.filter(name="paying").update(approvals_needed=2)
        run = clerk.drive(approval.execution.run)
        (second,) = clerk.open(run)
        assert (second.supersedes_id, entitlement.editors(second)) == (approval.pk, {dana.pk})


class TestChanging:
    """A change that others changed again, or whose request was replaced before it was approved."""

    @pytest.fixture
    def changed(self, clerk: Clerk, dana: User, risk: str) -> Approval:
        run = clerk.run(calls(PAY_ANA), says("done"))
        (approval,) = clerk.open(run)
        clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 500}')
        return Approval.objects.get()

    def test_whoever_changed_it_first_approves_neither_what_others_made_of_it_nor_what_replaces_that(
        self, clerk: Clerk, changed: Approval, dana: User, marco: User
    ) -> None:
        clerk.decide(changed, marco, "edit", arguments_text='{"account": "ana", "amount": 500, "memo": "as agreed"}')
        changed.refresh_from_db()
        assert refused(clerk, changed, dana).code == "editor"
        assert "You changed these arguments, so somebody else must approve them." in page_of(dana, changed)
        run = changed.execution.run
        with ledger.transaction():
            decisions.supersede(changed, "A rule has changed.")
            executions.set_aside(changed.execution, "A rule has changed.")
            runs.wake(row := runs.lock(run.pk), runs.clock(row))
        clerk.drive(run)

        (new,) = clerk.open(run)
        assert (new.supersedes, new.editor) == (changed, marco)
        assert {dana.pk, marco.pk} <= entitlement.editors(new)
        assert refused(clerk, new, dana).code == "editor"
        clerk.decide(new, make_user("Nora Third", "approver"))
        assert clerk.drive(run).state == "succeeded"

    def test_what_was_changed_is_asked_about_when_its_time_ran_out_while_somebody_had_taken_over(
        self, clerk: Clerk, changed: Approval, dana: User, mia: User
    ) -> None:
        run = changed.execution.run
        actions.take_over_run(run.pk, mia)
        Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        with ledger.transaction():
            runs.lock(run.pk)
            decisions.expire(changed.pk)
        actions.hand_back_run(run.pk, mia)
        clerk.drive(run)

        (new,) = clerk.open(run)
        assert (new.supersedes, new.editor, new.arguments["amount"]) == (changed, dana, 500)
