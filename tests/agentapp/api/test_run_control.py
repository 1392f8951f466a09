"""Later changes through the API: asking people again, and asking to undo a call."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from agentapp.models import Run, Tool, ToolExecution
from agentapp.tools.base import tool
from approvals import decisions, ledger
from approvals.models import Approval, Event
from tests.clerk_tools import note
from tests.conftest import call, calls, make_user, says

UNDO = "/tool-executions/{}/undo"


@tool(effect="compensable", title="Take back {amount:money}")
def take_back(amount: float) -> str:
    """Take back what was lent."""
    note("take_back", amount=amount)
    return "taken back"


@tool("lend", effect="compensable", undo=lambda result: {"amount": result["lent"]}, undone_by="take_back")
def lend(amount: float) -> dict[str, Any]:
    """Lend something."""
    return {"lent": amount}


@pytest.fixture
def lent(clerk: Any, offer: Any, marco: User) -> ToolExecution:
    """A call that took effect, in a run that Sam started."""
    offer(lend, take_back)
    clerk.agent.tools.remove(Tool.objects.get(name="take_back"))
    run = clerk.run(calls(call("a", "lend", amount=20)), says("done"))
    clerk.decide(clerk.open(run)[0], marco)
    assert clerk.drive(run).state == "succeeded"
    done: ToolExecution = clerk.execution(run, "a")
    return done


def test_a_call_is_asked_to_be_taken_back_and_people_decide(
    clerk: Any, client_of: Any, dana: User, lent: ToolExecution
) -> None:
    danas = client_of(dana, "runs:create")
    answer = danas.post(UNDO.format(lent.pk), {"why": "Ana has paid by card."})
    assert (answer.status, answer.data["state"]) == (201, "queued")
    run = clerk.drive(Run.objects.get(pk=answer.data["id"]))
    assert (run.state, [one.tool for one in clerk.open(run)]) == ("waiting", ["take_back"])
    assert Event.objects.get(type="tool_call.undo_asked").actor.startswith(f"user:{dana.pk}:dana (api cs_")
    again = danas.post(UNDO.format(lent.pk), {"why": "Once more."})
    assert (again.status, again.code, Run.objects.count()) == (409, "already_asked", 2)


def test_a_call_that_people_did_not_take_back_is_asked_about_again(
    clerk: Any, client_of: Any, dana: User, marco: User, lent: ToolExecution
) -> None:
    danas, path = client_of(dana, "runs:create"), UNDO.format(lent.pk)
    first = clerk.drive(Run.objects.get(pk=danas.post(path, {"why": "Ana has paid by card."}).data["id"]))
    assert danas.post(path, {"why": "Quick."}).data["detail"].endswith("that has not ended.")
    clerk.decide(clerk.open(first)[0], marco, "reject", message="Who says so?")
    clerk.drive(first)
    again = danas.post(path, {"why": "The bank says so: ticket 12."})
    assert (again.status, again.data["state"], Run.objects.filter(undoes=lent).count()) == (201, "queued", 2)


def test_it_needs_the_right_a_reason_and_a_call_that_can_be_taken_back(
    client_of: Any, dana: User, mia: User, otto: User, lent: ToolExecution
) -> None:
    why = {"why": "Because."}
    assert client_of(mia, "runs:create").post(UNDO.format(lent.pk), why).code == "forbidden"
    assert client_of(otto, "runs:create").post(UNDO.format(lent.pk), why).code == "not_found"
    assert client_of(dana, "runs:read").post(UNDO.format(lent.pk), why).code == "insufficient_scope"
    danas = client_of(dana, "runs:create")
    assert danas.post(UNDO.format(lent.pk), {"why": " "}).code == "message_required"
    assert danas.post(UNDO.format(lent.pk), {}).code == "invalid"
    Tool.objects.filter(name="take_back").update(enabled=False)
    assert danas.post(UNDO.format(lent.pk), why).code == "cannot_undo"
    assert Run.objects.count() == 1


@pytest.fixture
def expired(clerk: Any) -> Approval:
    """Nobody decided in time about the second of two calls; the first still waits."""
    run = clerk.run(calls(call("a", "send", to="ann"), call("b", "send", to="bob")), says("done"))
    approval: Approval = clerk.open(run)[1]
    Approval.objects.filter(pk=approval.pk).update(expires_at=approval.created_at)
    with ledger.transaction():
        assert decisions.expire(approval.pk)
    return approval


def test_people_are_asked_again_by_whoever_started_the_run(
    clerk: Any, client_of: Any, sam: User, expired: Approval
) -> None:
    sams = client_of(sam, "runs:create")
    answer = sams.post(f"/approvals/{expired.pk}/ask_again")
    assert (answer.status, answer.data["id"], answer.data["state"]) == (200, str(expired.pk), "superseded")
    assert answer.data["run"] == str(expired.run_id)
    run = clerk.drive(Run.objects.get(pk=expired.run_id))
    assert [one.supersedes for one in clerk.open(run)] == [None, expired]
    again = sams.post(f"/approvals/{expired.pk}/ask_again")
    assert (again.status, again.code) == (409, "already_asked")


def test_who_decides_about_the_old_request_is_told_of_the_new_one(
    clerk: Any, client_of: Any, answer: Any, sam: User, dana: User, expired: Approval
) -> None:
    client_of(sam, "runs:create").post(f"/approvals/{expired.pk}/ask_again")
    danas, path = client_of(dana, "approvals:decide"), f"/approvals/{expired.pk}/decisions"
    refused = danas.post(path, answer(expired))
    assert (refused.status, refused.code, refused.data["title"]) == (409, "superseded", "A new request has replaced it")
    assert "superseded_by" not in refused.data["approval"]
    run = clerk.drive(Run.objects.get(pk=expired.run_id))
    newer = str(clerk.open(run)[1].pk)
    assert danas.post(path, answer(expired)).data["approval"]["superseded_by"] == newer
    # Nobody sees requests of mocked runs.
    Approval.objects.filter(pk=newer).update(mocked=True)
    assert "superseded_by" not in danas.post(path, answer(expired)).data["approval"]


def test_whoever_may_decide_and_does_not_see_the_run_asks_again_and_is_shown_no_run(
    client_of: Any, expired: Approval
) -> None:
    ned = make_user("ned")
    ned.user_permissions.set(Permission.objects.filter(codename="decide_approval"))
    ned = User.objects.get(pk=ned.pk)
    assert client_of(ned, "runs:read").get(f"/runs/{expired.run_id}").status == 404
    answer = client_of(ned, "runs:create").post(f"/approvals/{expired.pk}/ask_again")
    assert (answer.status, answer.data["id"]) == (200, str(expired.pk))
    assert "input" not in answer.data
    assert "answer" not in answer.data


def test_what_somebody_does_not_see_is_not_there_to_be_asked_again(
    client_of: Any, otto: User, mia: User, expired: Approval
) -> None:
    assert client_of(otto, "runs:create").post(f"/approvals/{expired.pk}/ask_again").code == "not_found"
    assert client_of(mia, "runs:create").post(f"/approvals/{expired.pk}/ask_again").code == "forbidden"
    expired.refresh_from_db()
    assert expired.state == "expired"
