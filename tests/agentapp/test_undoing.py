"""Undoing a call that took effect: a proposal of its own, asked about by the usual rules, once at a time."""

import json
import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import IntegrityError, connection

from agentapp import actions, erasing, runs, transcript, undoing
from agentapp.models import Run, Tool, ToolExecution
from agentapp.sweep import sweep
from agentapp.tools.base import OutcomeUnknown, ToolError, tool
from approvals.detectors import MASK
from approvals.models import Approval, Event, Rule
from tests.clerk_tools import effects_of, note
from tests.conftest import call, calls, says

LENT: dict[str, float] = {}
BREAKS: list[Exception] = []


@tool(effect="compensable", title="Take back {amount:money} from {account}", locked=("account",))
def take_back(account: str, amount: float) -> str:
    """Take back what was lent."""
    if BREAKS:
        raise BREAKS[0]
    note("take_back", account=account, amount=amount)
    LENT[account] = LENT.get(account, 0) - amount
    return "taken back"


def taking_back(account: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"account": account, "amount": result["lent"]}


def lending(undo: Any = taking_back, undone_by: str = "take_back") -> Any:
    @tool("lend", effect="compensable", title="Lend {amount:money} to {account}", undo=undo, undone_by=undone_by)
    def lend(account: str, amount: float, secret: str = "") -> dict[str, Any]:
        """Lend something."""
        if amount > 100:
            raise ToolError("too much")
        note("lend", account=account, amount=amount)
        LENT[account] = LENT.get(account, 0) + amount
        return {"lent": amount, **({"log": f"opened with {secret}"} if secret else {})}

    return lend


@pytest.fixture(autouse=True)
def _nothing_is_lent():
    LENT.clear()
    BREAKS.clear()


@pytest.fixture
def lent(clerk, offer, dana):
    """A call that lent something, approved by Dana in a run that Sam started; and the tools it may use by then."""

    def make(amount: float = 20, lend: Any = None, **arguments: str) -> ToolExecution:
        offer(lend or lending(), take_back)
        clerk.agent.tools.remove(Tool.objects.get(name="take_back"))  # no model may call it on its own
        run = clerk.run(calls(call("a", "lend", account="ana", amount=amount, **arguments)), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        assert clerk.drive(run).state == "succeeded"
        return clerk.execution(run, "a")

    return make


def test_its_arguments_came_from_the_call_that_it_takes_back(clerk, lent, dana):
    run = clerk.drive(actions.undo_call(lent().pk, "Ana has paid by card.", dana))
    (approval,) = clerk.open(run)
    [row] = [row for row in approval.provenance if row["path"] == "amount"]
    assert (row["origin"], row["source"]) == ("trusted", "The call to be taken back")


def test_what_that_call_had_from_outside_is_from_outside_in_the_one_that_takes_it_back(clerk, offer, dana):
    @tool(effect="read")
    def read_bill() -> str:
        """Read a bill."""
        return "Lend ana $75."

    offer(read_bill, lending(), take_back)
    run = clerk.run(calls(call("r", "read_bill")), calls(call("a", "lend", account="ana", amount=75)), says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    done = clerk.execution(clerk.drive(run), "a")
    (approval,) = clerk.open(clerk.drive(actions.undo_call(done.pk, "Wrong bill.", dana)))
    assert [row["origin"] for row in approval.provenance if row["path"] == "amount"] == ["outside"]


def test_it_is_proposed_in_a_run_of_its_own_and_waits_for_people(clerk, lent, dana, marco):
    done = lent()
    run = actions.undo_call(done.pk, "Ana has paid by card.", dana)
    assert (run.undoes_id, run.starter, run.title) == (done.pk, dana, f"Undo lend of {done.run.reference}")
    run = clerk.drive(run)
    assert (run.state, run.waiting_for, effects_of("take_back")) == ("waiting", "approval", [])
    (approval,) = clerk.open(run)
    assert (approval.tool, json.loads(approval.arguments_text)) == ("take_back", {"account": "ana", "amount": 20})
    clerk.decide(approval, marco)
    assert clerk.drive(run).state == "succeeded"
    assert effects_of("take_back") == [{"account": "ana", "amount": 20.0}]
    assert LENT == {"ana": 0}


def test_whose_runs_may_not_call_the_way_back_cannot_ask_for_it(clerk, lent, dana):
    execution = lent()
    Tool.objects.get(name="take_back").starters.add(Group.objects.create(name="Lenders"))
    with pytest.raises(actions.Refused, match="kept to those of other people"):
        actions.undo_call(execution.pk, "A mistake.", dana)
    assert not Run.objects.filter(undoes=execution).exists()


def test_they_read_no_secret_argument_that_its_result_repeats(clerk, lent, dana):
    done = lent(secret="very-hush")
    Tool.objects.filter(name="lend").update(secret_fields=["secret"])
    run = clerk.drive(actions.undo_call(done.pk, "Ana has paid by card.", dana))
    [read] = [json.loads(each["body"]) for each in clerk.open(run)[0].evidence if each["kind"] == "result"]
    assert (read["arguments"]["secret"], read["result"]) == (MASK, {"lent": 20, "log": f"opened with {MASK}"})


def test_those_who_decide_read_what_is_taken_back_and_why(clerk, lent, dana):
    run = clerk.drive(actions.undo_call(lent().pk, "Ana has paid by card.", dana))
    first, second = clerk.open(run)[0].evidence
    assert first["body"] == "Ana has paid by card."
    assert second["title"].startswith("The call to be taken back, of run_")
    assert json.loads(second["body"]) == {
        "tool": "lend", "arguments": {"account": "ana", "amount": 20, "secret": ""}, "result": {"lent": 20}
    }  # fmt: skip


def test_neither_who_asked_nor_who_started_the_first_run_decides(clerk, lent, dana, sam, roles):
    sam.groups.add(roles["approver"])
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    (approval,) = clerk.open(run)
    for user, code in ((dana, "starter"), (User.objects.get(pk=sam.pk), "took_over")):
        with pytest.raises(actions.Refused) as refused:
            clerk.decide(approval, user)
        assert refused.value.code == code


def test_a_rule_that_allows_the_tool_does_not_let_it_run(clerk, lent, dana):
    Rule.objects.create(name="free", tool="take_back", verdict="allow")
    assert clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana)).waiting_for == "approval"


def test_the_rules_of_the_route_go_for_the_way_back_too(clerk, lent, dana):
    done = lent()
    Rule.objects.create(name="never-here", tool="take_back", route="loans", verdict="deny")
    Run.objects.filter(pk=done.run_id).update(route="loans")
    run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
    assert (run.route, clerk.execution(run, "undo").reason) == ("loans", "policy_denied")


def test_a_rule_that_forbids_the_tool_forbids_this_too(clerk, lent, dana):
    Rule.objects.create(name="never", tool="take_back", verdict="deny")
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    assert clerk.execution(run, "undo").reason == "policy_denied"
    assert effects_of("take_back") == []


ANSWERED: dict[str, dict[str, Any]] = {
    "approve": {},
    "respond": {"message": "No, we do not take it back."},
    "edit": {"arguments_text": '{"account": "ana", "amount": 1}'},
}


@pytest.mark.parametrize("how", ANSWERED)
def test_the_call_counts_as_taken_back_only_where_it_was_as_it_was_proposed(clerk, lent, dana, marco, how):
    done = lent()
    run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
    clerk.decide(clerk.open(run)[0], marco, how, **ANSWERED[how])
    assert clerk.drive(run).state == "succeeded"
    assert transcript.taken_back([done.pk]) == ({done.pk} if how == "approve" else set())


def test_a_rejected_one_does_not_run(clerk, lent, dana, marco):
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    clerk.decide(clerk.open(run)[0], marco, "reject", message="It was right.")
    assert clerk.drive(run).is_final
    assert effects_of("take_back") == []


def test_it_is_asked_for_once(clerk, lent, dana, marco):
    done = lent()
    actions.undo_call(done.pk, "Wrong account.", dana)
    with pytest.raises(actions.Refused) as refused:
        actions.undo_call(done.pk, "Wrong account.", marco)
    assert refused.value.code == "already_asked"
    assert Run.objects.filter(undoes=done).count() == 1


def test_it_is_not_asked_for_when_the_run_is_erased_as_the_tool_says_how(lent, dana, ada, monkeypatch):
    done, way_back = lent(), undoing._way_back

    def say_and_be_overtaken(execution: ToolExecution) -> tuple[Tool, dict[str, Any]]:
        said = way_back(execution)
        erasing.erase("run", str(done.run_id), "Ticket 12", ada, "ada")
        return said

    monkeypatch.setattr(undoing, "_way_back", say_and_be_overtaken)
    with pytest.raises(actions.Refused, match="The record of what this call did has been erased"):
        actions.undo_call(done.pk, "Wrong account.", dana)
    assert not Run.objects.filter(undoes=done).exists()


def test_the_database_itself_refuses_a_second(clerk, lent, dana):
    done = lent()
    actions.undo_call(done.pk, "Wrong account.", dana)
    with pytest.raises(IntegrityError):
        Run.objects.filter(pk=done.run_id).update(undoes=done)


def ask_at_once(done: ToolExecution, *users: User) -> list[Any]:
    """The runs that they began, and the codes of the refusals."""
    came: list[Any] = []

    def ask(user: User) -> None:
        try:
            came.append(actions.undo_call(done.pk, "Wrong account.", user))
        except actions.Refused as refused:
            came.append(refused.code)
        finally:
            connection.close()

    both = [threading.Thread(target=ask, args=(user,)) for user in users]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    return came


def test_two_who_ask_at_once_begin_one(clerk, lent, dana, marco):
    done = lent()
    came = ask_at_once(done, dana, marco)
    assert [one for one in came if isinstance(one, str)] == ["already_asked"]
    assert Run.objects.filter(undoes=done).count() == 1


def reject(clerk: Any, run: Run, user: User) -> None:
    clerk.decide(clerk.open(run)[0], user, "reject", message="It was right.")


def respond(clerk: Any, run: Run, user: User) -> None:
    clerk.decide(clerk.open(run)[0], user, "respond", message="No, we do not take it back.")


def run_out(clerk: Any, run: Run, user: User) -> None:
    approval = clerk.open(run)[0]
    Approval.objects.filter(pk=approval.pk).update(expires_at=approval.created_at)
    sweep()


def cancel(clerk: Any, run: Run, user: User) -> None:
    actions.cancel_run(run.pk, User.objects.get(pk=run.starter_id))


def approve_what_fails(clerk: Any, run: Run, user: User) -> None:
    BREAKS.append(ToolError("the till is shut"))
    clerk.decide(clerk.open(run)[0], user)


def break_in_the_middle(clerk: Any, run: Run, user: User) -> None:
    BREAKS.append(OutcomeUnknown("the line went dead"))
    clerk.decide(clerk.open(run)[0], user)
    assert clerk.drive(run).waiting_for == "outcome"


def find_out_that_nothing_happened(clerk: Any, run: Run, user: User) -> None:
    break_in_the_middle(clerk, run, user)
    actions.resolve_outcome(clerk.execution(run, "undo").pk, "did_not_happen", "The till says so.", user)


@pytest.fixture
def resolver(marco):
    marco.user_permissions.add(Permission.objects.get(codename="resolve_outcome"))
    return User.objects.get(pk=marco.pk)


class TestAskingAgain:
    NOTHING = (reject, respond, run_out, cancel, approve_what_fails, find_out_that_nothing_happened)

    @pytest.mark.parametrize("end", NOTHING, ids=lambda end: end.__name__)
    def test_where_nothing_came_of_it_people_are_asked_again(self, clerk, lent, dana, resolver, end):
        done = lent()
        first = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        end(clerk, first, resolver)
        assert clerk.drive(first).is_final
        BREAKS.clear()
        second = clerk.drive(actions.undo_call(done.pk, "It was the wrong account: see ticket 12.", dana))
        clerk.decide(clerk.open(second)[0], resolver)
        assert clerk.drive(second).state == "succeeded"
        assert effects_of("take_back") == [{"account": "ana", "amount": 20.0}]
        assert transcript.taken_back([done.pk]) == {done.pk}
        with pytest.raises(actions.Refused, match="has run") as refused:
            actions.undo_call(done.pk, "Once more.", dana)
        assert refused.value.code == "already_asked"

    def test_where_a_rule_forbade_it_people_are_asked_when_it_does_no_more(self, clerk, lent, dana):
        done, rule = lent(), Rule.objects.create(name="never", tool="take_back", verdict="deny")
        assert clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana)).is_final
        rule.delete()
        assert clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana)).waiting_for == "approval"

    def test_not_where_people_had_it_take_back_something_else(self, clerk, lent, dana, marco):
        done = lent()
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        clerk.decide(clerk.open(run)[0], marco, "edit", arguments_text='{"account": "ana", "amount": 1}')
        clerk.drive(run)
        with pytest.raises(actions.Refused, match="as people changed it"):
            actions.undo_call(done.pk, "The rest.", dana)
        assert effects_of("take_back") == [{"account": "ana", "amount": 1.0}]

    def test_not_while_it_waits_for_people_or_is_put_aside(self, clerk, lent, dana):
        done = lent()
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        for _ in range(2):
            with pytest.raises(actions.Refused, match="not ended"):
                actions.undo_call(done.pk, "Wrong account.", dana)
            actions.pause_run(run.pk, dana)

    def test_not_while_nobody_knows_what_came_of_it(self, clerk, lent, dana, resolver):
        done = lent()
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        break_in_the_middle(clerk, run, resolver)
        for sentence in ("not ended", "Nobody knows"):
            with pytest.raises(actions.Refused, match=sentence):
                actions.undo_call(done.pk, "Wrong account.", dana)
            actions.cancel_run(run.pk, dana)
        assert Run.objects.filter(undoes=done).count() == 1

    def test_not_where_it_was_to_be_tried_again_and_people_did_not_want_that(self, clerk, lent, dana, resolver):
        done = lent()
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        break_in_the_middle(clerk, run, resolver)
        actions.resolve_outcome(clerk.execution(run, "undo").pk, "retry", "The till does not say.", resolver)
        clerk.drive(run)
        reject(clerk, run, resolver)
        assert clerk.drive(run).is_final
        with pytest.raises(actions.Refused, match="Nobody knows"):
            actions.undo_call(done.pk, "Wrong account.", dana)

    def test_two_who_ask_again_at_once_begin_one(self, clerk, lent, dana, marco):
        done = lent()
        first = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        reject(clerk, first, marco)
        clerk.drive(first)
        came = ask_at_once(done, dana, marco)
        assert [one for one in came if isinstance(one, str)] == ["already_asked"]
        assert Run.objects.filter(undoes=done).count() == 2

    def test_the_database_lets_nobody_give_up_a_run_that_has_not_ended(self, clerk, lent, dana):
        done = lent()
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        assert not runs.give_up_undo(run)
        with pytest.raises(IntegrityError):
            Run.objects.filter(pk=run.pk).update(took_back_nothing=True)

    def test_a_process_of_the_release_before_begins_no_second_beside_it(self, clerk, lent, dana, marco):
        done = lent()
        first = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        reject(clerk, first, marco)
        clerk.drive(first)
        with pytest.raises(IntegrityError):  # adding one is all it does
            Run.objects.filter(pk=done.run_id).update(undoes=done)

    def test_the_pages_offer_it_and_lead_from_one_to_the_other(self, client, clerk, lent, dana, marco):
        done = lent()
        client.force_login(dana)
        first = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        page = client.get(f"/calls/{done.pk}/undo/").content.decode()
        assert "This cannot be asked for now." in page
        assert 'name="why"' not in page
        reject(clerk, first, marco)
        clerk.drive(first)
        for path in (f"/runs/{done.run_id}/?step=1&call=0", f"/approvals/{done.approval_id}/"):
            page = client.get(path).content.decode()
            assert ("Ask again…" in page, "nothing was undone" in page) == (True, True), path
        page = client.get(f"/calls/{done.pk}/undo/").content.decode()
        assert "It was asked for before, and nothing was undone." in page
        assert f'href="/runs/{first.pk}/"' in page
        assert 'name="why"' in page
        response = client.post(f"/calls/{done.pk}/undo/", {"why": "Really: ticket 12."})
        second = Run.objects.exclude(pk=first.pk).get(undoes=done)
        assert response["Location"] == f"/runs/{second.pk}/"
        page = client.get(f"/runs/{done.run_id}/?step=1&call=0").content.decode()
        assert f"Undo asked for in {second.reference}" in page
        assert "Ask again…" not in page


def test_both_runs_say_so_in_the_ledger(lent, dana):
    done = lent()
    run = actions.undo_call(done.pk, "Wrong account.", dana)
    asked = Event.objects.get(type="tool_call.undo_asked")
    assert (asked.run_id, asked.data["run"], asked.data["by"]) == (done.run_id, str(run.pk), "take_back")
    assert Event.objects.get(type="run.queued", run_id=run.pk).data["undoes"] == str(done.pk)


def test_it_runs_also_where_runs_may_bring_no_script(clerk, lent, dana, settings):
    done = lent()
    settings.ALLOW_SCRIPTED_RUNS = False
    assert clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana)).waiting_for == "approval"


def test_it_cannot_be_tried_again_as_another_run(clerk, lent, dana, marco):
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    clerk.decide(clerk.open(run)[0], marco)
    clerk.drive(run)
    with pytest.raises(actions.Refused, match="ask for that again at the call"):
        actions.retry_run(run.pk, dana)


class TestWhoAndWhat:
    def test_it_needs_the_right(self, lent, mia):
        done = lent()
        with pytest.raises(actions.Refused) as refused:
            actions.undo_call(done.pk, "Wrong account.", mia)
        assert refused.value.code == "forbidden"

    def test_who_may_not_see_the_run_is_not_told_of_the_call(self, lent, otto):
        otto.user_permissions.add(Permission.objects.get(codename="undo_call"))
        with pytest.raises(actions.Refused) as refused:
            actions.undo_call(lent().pk, "Wrong account.", User.objects.get(pk=otto.pk))
        assert refused.value.code == "not_found"

    def test_it_needs_a_reason(self, lent, dana):
        with pytest.raises(actions.Refused, match="Say why"):
            actions.undo_call(lent().pk, "  ", dana)

    def test_a_call_that_did_nothing_cannot_be_taken_back(self, lent, dana):
        with pytest.raises(actions.Refused, match="not taken effect"):
            actions.undo_call(lent(amount=500).pk, "Wrong account.", dana)

    def test_a_tool_that_names_no_way_back_has_none(self, clerk, dana):
        run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
        clerk.decide(clerk.open(run)[0], dana)
        clerk.drive(run)
        with pytest.raises(actions.Refused, match="names no way"):
            actions.undo_call(clerk.execution(run, "a").pk, "Wrong account.", dana)

    @pytest.mark.parametrize(
        ("undo", "message"),
        [
            (lambda: {"account": "ana"}, "would not accept"),
            (list, "would not accept"),
            (lambda result: {"account": result["no such"]}, "KeyError"),
            (lambda: User.objects.create_user("x") and {}, "TriedToWrite"),
        ],
    )
    def test_a_tool_that_cannot_say_how_is_believed_in_nothing(self, lent, dana, undo, message):
        done = lent(lend=lending(undo))
        with pytest.raises(actions.Refused, match=message):
            actions.undo_call(done.pk, "Wrong account.", dana)
        assert not Run.objects.filter(undoes=done).exists()
        assert not User.objects.filter(username="x").exists()

    def test_a_way_back_that_is_switched_off_is_none(self, lent, dana):
        done = lent()
        Tool.objects.filter(name="take_back").update(enabled=False)
        with pytest.raises(actions.Refused, match="not in use"):
            actions.undo_call(done.pk, "Wrong account.", dana)

    def test_a_tool_that_has_changed_since_has_another_way_back(self, lent, dana):
        done = lent()
        Tool.objects.filter(name="lend").update(version="0" * 64)
        with pytest.raises(actions.Refused, match="changed since"):
            actions.undo_call(done.pk, "Wrong account.", dana)

    @pytest.mark.parametrize("half", [{"undo": None}, {"undone_by": ""}])
    def test_a_tool_declares_both_halves(self, half):
        with pytest.raises(ValueError, match="both undone_by and undo, or neither"):
            lending(**half)


class TestPages:
    @pytest.fixture
    def done(self, lent):
        return lent()

    def text(self, client, path: str) -> str:
        response = client.get(path)
        assert response.status_code == 200
        return response.content.decode()

    def test_the_trace_and_the_request_offer_it_to_who_may_ask(self, client, done, dana, mia):
        link = f'href="/calls/{done.pk}/undo/"'
        pages = (f"/runs/{done.run_id}/?step=1&call=0", f"/approvals/{done.approval_id}/")
        for user, offered in ((dana, True), (mia, False)):
            client.force_login(user)
            for page in pages:
                assert (link in self.text(client, page)) is offered

    def test_the_form_asks_and_the_runs_name_each_other(self, client, clerk, done, dana):
        client.force_login(dana)
        page = self.text(client, f"/calls/{done.pk}/undo/")
        assert "Undo: Lend $20.00 to ana?" in page
        assert "does not run until people approve it" in page
        response = client.post(f"/calls/{done.pk}/undo/", {"why": "Wrong account."})
        run = Run.objects.get(undoes=done)
        assert response["Location"] == f"/runs/{run.pk}/"
        clerk.drive(run)
        assert f"Undo asked for in {run.reference}" in self.text(client, f"/runs/{done.run_id}/?step=1&call=0")
        assert f"Undo asked for in {run.reference}" in self.text(client, f"/approvals/{done.approval_id}/")
        assert "This takes a call back" in self.text(client, f"/runs/{run.pk}/")
        assert "This takes a call back" in self.text(client, f"/approvals/{clerk.open(run)[0].pk}/")
        again = client.post(f"/calls/{done.pk}/undo/", {"why": "Wrong account."})
        assert (again.status_code, Run.objects.filter(undoes=done).count()) == (409, 1)

    def test_whoever_is_asked_again_reads_what_became_of_it_before(self, client, clerk, done, dana, marco):
        first = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        reject(clerk, first, marco)
        clerk.drive(first)
        second = clerk.drive(actions.undo_call(done.pk, "It was the wrong account: see ticket 12.", dana))
        asked = clerk.open(second)[0]
        before = "Asked for before, and nothing was undone:"
        marco.user_permissions.add(Permission.objects.get(codename="view_run"))
        client.force_login(User.objects.get(pk=marco.pk))
        pages = (
            f"/runs/{second.pk}/",
            f"/approvals/{asked.pk}/",
            f"/inbox/peek/{asked.pk}/",
            f"/approvals/{done.approval_id}/",
        )
        for page in pages:
            shown = self.text(client, page)
            assert before in shown, page
            assert f'<a href="/runs/{first.pk}/">{first.reference}</a>' in shown, page
        assert before not in self.text(client, f"/runs/{first.pk}/")

    def test_a_reason_of_many_lines_is_kept_whole(self, client, done, dana):
        client.force_login(dana)
        client.post(f"/calls/{done.pk}/undo/", {"why": "a\r\n" * 999 + "ab"})
        assert Run.objects.get(undoes=done).input == "a\n" * 999 + "ab"

    def test_a_refusal_keeps_what_was_typed(self, client, done, dana):
        client.force_login(dana)
        Tool.objects.filter(name="take_back").update(enabled=False)
        response = client.post(f"/calls/{done.pk}/undo/", {"why": "Because of <b>this</b>."})
        assert response.status_code == 409
        assert "Because of &lt;b&gt;this&lt;/b&gt;." in response.content.decode()

    def test_looking_asks_for_nothing(self, client, done, dana):
        client.force_login(dana)
        self.text(client, f"/calls/{done.pk}/undo/")
        assert not Run.objects.filter(undoes=done).exists()

    def test_who_may_not_see_the_run_finds_nothing(self, client, done, otto):
        client.force_login(otto)
        assert client.get(f"/calls/{done.pk}/undo/").status_code == 404
        assert client.post(f"/calls/{done.pk}/undo/", {"why": "x"}).status_code == 404

    def test_no_page_asks_the_database_more_than_twelve_times(
        self, client, clerk, done, dana, django_assert_max_num_queries
    ):
        client.force_login(dana)
        run = clerk.drive(actions.undo_call(done.pk, "Wrong account.", dana))
        (approval,) = clerk.open(run)
        for path in (
            f"/calls/{done.pk}/undo/", f"/runs/{done.run_id}/?step=1&call=0", f"/approvals/{done.approval_id}/",
            f"/runs/{run.pk}/", f"/approvals/{approval.pk}/", f"/inbox/peek/{approval.pk}/",
        ):  # fmt: skip
            with django_assert_max_num_queries(12, info=path):
                assert client.get(path).status_code == 200, path


def test_nothing_is_asked_of_the_database_about_a_tool_without_a_way_back(clerk, dana, django_assert_num_queries):
    run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
    execution = ToolExecution.objects.select_related("tool").get(run=run)
    with django_assert_num_queries(0):
        assert undoing.hindrance(execution)
    assert Approval.objects.filter(run_id=run.pk).count() == 1


def test_who_asked_for_it_does_not_decide_whatever_a_rule_says_of_starters(clerk, lent, dana):
    Rule.objects.create(name="anybody", tool="take_back", verdict="ask", starter_excluded=False, hold_seconds=0)
    run = clerk.drive(actions.undo_call(lent().pk, "Wrong account.", dana))
    with pytest.raises(actions.Refused) as refused:
        clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    assert (refused.value.code, effects_of("take_back")) == ("starter", [])
