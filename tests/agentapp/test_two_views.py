"""Whatever people do about a request, the record and what can run say the same, and both rest on the bytes."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from agentapp import actions
from agentapp.models import Run, ToolExecution
from agentapp.sweep import sweep
from approvals.models import Approval, Event
from tests import clerk_tools
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says
from tests.two_views import audit_view, disagreements, dispatch_view

PAY = call("a", "pay", account="ana", amount=20)
PROPOSED = '{"account":"ana","amount":20,"memo":""}'
EDITED = '{"account":"ana","amount":5,"memo":""}'


class Situation:
    """One call that waits for people, and what is done about it."""

    def __init__(self, clerk: Any, dana: Any, marco: Any) -> None:
        self.clerk, self.dana, self.marco = clerk, dana, marco
        self.run: Run = clerk.run(calls(PAY), says("done"), says("done"))
        (self.approval,) = clerk.open(self.run)

    @property
    def call(self) -> ToolExecution:
        return self.clerk.execution(self.run, "a")

    def drive(self) -> None:
        self.clerk.drive(self.run)

    def decide(self, type: str = "approve", user: Any = None, **more: Any) -> None:
        self.clerk.decide(self.approval, user or self.dana, type, **more)

    def run_out(self) -> None:
        Approval.objects.filter(pk=self.approval.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        sweep()

    def change_world(self) -> None:
        clerk_tools.BALANCES["ana"] = 50_000

    def hold(self) -> None:
        Approval.objects.filter(pk=self.approval.pk).update(hold_seconds=30)


def nothing(it: Situation) -> None:
    pass


def approve(it: Situation) -> None:
    it.decide()
    it.drive()


def edit(it: Situation) -> None:
    it.decide("edit", arguments_text=EDITED)
    it.decide(user=it.marco)
    it.drive()


def reject(it: Situation) -> None:
    it.decide("reject", message="not now")
    it.drive()


def respond(it: Situation) -> None:
    it.decide("respond", message="It was paid by hand.")
    it.drive()


def expire(it: Situation) -> None:
    it.run_out()
    it.drive()


def withdraw(it: Situation) -> None:
    actions.cancel_run(it.run.pk, it.run.starter)


def supersede(it: Situation) -> None:
    it.decide()
    it.change_world()
    it.drive()


def undo(it: Situation) -> None:
    it.hold()
    it.decide()
    assert not disagreements(it.call)
    actions.undo_decision(it.approval.pk, it.dana)
    it.drive()


def undo_an_edit(it: Situation) -> None:
    it.hold()
    it.decide("edit", arguments_text=EDITED)
    it.decide(user=it.marco)
    actions.undo_decision(it.approval.pk, it.dana)
    it.drive()


def duplicate(it: Situation) -> None:
    it.decide()
    with pytest.raises(actions.Refused, match="already approved"):
        it.decide(user=it.marco)
    it.drive()
    it.drive()


# By what is done: how the requests end, what would run then, and what has run.
TABLE: list[tuple[Any, list[str], str, str, list[float]]] = [
    (nothing, ["pending"], "waiting", "", []),
    (approve, ["used"], "finished", "", [20]),
    (edit, ["used"], "finished", "", [5]),
    (reject, ["rejected"], "finished", "", []),
    (respond, ["responded"], "finished", "", []),
    (expire, ["expired"], "finished", "", []),
    (withdraw, ["withdrawn"], "cancelled", "", []),
    (supersede, ["superseded", "pending"], "waiting", "", []),
    (undo, ["pending"], "waiting", "", []),
    (undo_an_edit, ["pending"], "waiting", "", []),
    (duplicate, ["used"], "finished", "", [20]),
]


@pytest.fixture
def it(clerk, dana, marco) -> Situation:
    return Situation(clerk, dana, marco)


@pytest.mark.parametrize(
    ("what", "states", "call_state", "would_run", "paid"), TABLE, ids=[row[0].__name__ for row in TABLE]
)
def test_the_two_views_agree(it, what, states, call_state, would_run, paid):
    what(it)
    audit = audit_view(it.call)
    assert [one.state for one in audit] == states
    assert {one.proposed for one in audit} == {PROPOSED}  # the original stays, whatever became of it
    dispatch = dispatch_view(it.call, [])
    assert (dispatch.state, dispatch.would_run) == (call_state, would_run)
    assert [act["amount"] for act in effects_of("pay")] == paid
    assert disagreements(it.call) == []


def test_between_decision_and_run_exactly_the_approved_bytes_would_run(it):
    it.hold()
    it.decide("edit", arguments_text=EDITED)
    assert dispatch_view(it.call, []).would_run == ""  # the person who changed it at high risk does not approve it
    it.decide(user=it.marco)
    assert dispatch_view(it.call, []).would_run == EDITED
    assert disagreements(it.call) == []


def test_a_call_that_nobody_knows_of_has_run_once_and_would_not_run_again(clerk, dana, marco):
    run = clerk.run(calls(call("a", "send", to="ana", how="lost")), says("done"))
    (approval,) = clerk.open(run)
    clerk.decide(approval, dana)
    clerk.drive(run)
    execution = clerk.execution(run, "a")
    assert (execution.state, [one.state for one in audit_view(execution)]) == ("outcome_unknown", ["used"])
    assert dispatch_view(execution, []).would_run == ""
    assert disagreements(execution) == []


class TestDisagreementsAreSeen:
    """Each disagreement is made directly, as nothing in the product makes it."""

    def test_a_request_whose_row_was_changed(self, it):
        reject(it)
        Approval.objects.filter(pk=it.approval.pk).update(state="superseded")
        assert disagreements(it.call) == ["the row says superseded, the ledger approval.rejected"]

    def test_arguments_that_were_changed(self, it):
        Approval.objects.filter(pk=it.approval.pk).update(arguments_text=EDITED)
        assert disagreements(it.call) == ["what was asked is not what is kept"]

    def test_bytes_that_ran_and_were_not_approved(self, it):
        approve(it)
        Approval.objects.filter(pk=it.approval.pk).update(final_arguments_text=EDITED)
        assert disagreements(it.call) == ["it ran under a request that is used, or other bytes did"]

    def test_a_request_that_is_open_for_a_call_that_is_done(self, it):
        approve(it)
        Approval.objects.filter(pk=it.approval.pk).update(state="approved")
        assert "people are asked about a call that does not wait for them" in disagreements(it.call)


class TestTheBytesDecide:
    """The column for searching has no effect on what is shown or run."""

    def test_changing_it_by_hand_changes_nothing_that_runs(self, it):
        Approval.objects.filter(pk=it.approval.pk).update(arguments={"account": "mallory", "amount": 999})
        approve(it)
        assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]

    def test_changing_it_by_hand_changes_nothing_that_is_shown(self, it, client):
        client.force_login(it.dana)
        address = f"/approvals/{it.approval.pk}/"
        Approval.objects.filter(pk=it.approval.pk).update(arguments={"account": "mallory", "amount": 987654321})
        page = client.get(address).content.decode()
        assert 'value="20.00"' in page or 'value="20"' in page
        assert "mallory" not in page
        assert "987654321" not in page
        assert "987,654,321" not in page

    def test_the_page_shows_what_the_text_says(self, it, client):
        client.force_login(it.dana)
        text = json.dumps({"account": "bertha", "amount": 77, "memo": ""}, separators=(",", ":"))
        Approval.objects.filter(pk=it.approval.pk).update(arguments_text=text)
        page = client.get(f"/approvals/{it.approval.pk}/").content.decode()
        assert "bertha" in page
        assert "77" in page

    @pytest.mark.parametrize("column", ["final_arguments_text", "arguments_text"])
    def test_a_text_changed_by_hand_after_the_approval_does_not_run(self, it, column):
        """What runs is the approved text; a changed one goes back to people."""
        it.decide()
        Approval.objects.filter(pk=it.approval.pk).update(**{column: EDITED.replace("ana", "mallory")})
        it.drive()
        if column == "arguments_text":  # kept for the record; the approved bytes run
            assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]
            return
        assert effects_of("pay") == []
        it.approval.refresh_from_db()
        assert it.approval.state == "superseded"
        assert it.run.waiting_for == "approval"
        assert Event.objects.filter(type="approval.superseded").get().data["reason"].startswith("The request on record")
