"""Dry runs: looked up without writing, shown before people decide, and compared with the call's outcome."""

import json
import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentapp import actions, previews
from agentapp.deadline import within
from agentapp.models import Tool
from agentapp.read_only import TriedToWrite, reading
from agentapp.tools.base import ToolError, tool
from approvals.models import Approval, Event
from tests.clerk_tools import note
from tests.conftest import call, calls, says

WORLD: dict[str, Any] = {}


def what_withdrawing_changes(account: str, amount: float) -> list[dict[str, Any]]:
    left = WORLD.get(account, 100)
    return [
        {"name": "balance", "before": left, "after": left - amount},
        {"name": "entries", "after": 1},
    ]


def what_withdrawing_changed(account: str, result: dict[str, Any]) -> dict[str, Any]:
    return {"balance": WORLD.get(account, 100), "entries": result["entries"]}


def withdrawing(preview: Any = what_withdrawing_changes, outcome: Any = what_withdrawing_changed, **more: Any) -> Any:
    @tool("withdraw", effect="irreversible", preview=preview, outcome=outcome, **more)
    def withdraw(account: str, amount: float, pin: str = "") -> dict[str, Any]:
        """Take money out."""
        note("withdraw", account=account, amount=amount)
        WORLD[account] = WORLD.get(account, 100) - amount - WORLD.get("fee", 0)
        if WORLD.get("down"):
            raise ToolError("the bank is closed")
        return {"entries": 1 + (1 if WORLD.get("fee") else 0)}

    return withdraw


WITHDRAW = calls(call("a", "withdraw", account="ana", amount=20))


@pytest.fixture(autouse=True)
def _the_world_as_it_was():
    WORLD.clear()


def asked(clerk, *replies) -> Approval:
    run = clerk.run(*(replies or (WITHDRAW, says("done"))))
    (approval,) = clerk.open(run)
    return approval


def said(text: str) -> Any:
    return json.loads(text)


def compared(clerk, approval) -> dict[str, Any]:
    found = approval.execution
    found.refresh_from_db()
    assert found.state == "finished"
    return found.comparison


class TestBeforePeopleDecide:
    def test_the_request_keeps_what_the_call_would_change(self, clerk, offer):
        offer(withdrawing())
        approval = asked(clerk)
        assert said(approval.preview_text) == {
            "lines": [{"name": "balance", "before": 100, "after": 80}, {"name": "entries", "after": 1}]
        }

    def test_a_tool_without_one_has_none_and_keeps_its_version(self, clerk):
        approval = asked(clerk, calls(call("a", "pay", account="ana", amount=20)))
        assert approval.preview_text == ""

    def test_declaring_one_makes_another_version_of_the_contract(self):
        with_it, without = withdrawing(), withdrawing(preview=None, outcome=None)
        assert with_it.version != without.version
        assert withdrawing(outcome=None).version != with_it.version

    def test_one_that_fails_stops_nothing_and_says_why(self, clerk, offer, dana):
        def broken(account: str) -> list[dict[str, Any]]:
            raise RuntimeError(f"no book for {account}")

        offer(withdrawing(broken))
        approval = asked(clerk)
        assert said(approval.preview_text) == {"unavailable": "RuntimeError: no book for ana"}
        clerk.decide(approval, dana)
        run = clerk.drive(approval.execution.run)
        assert run.state == "succeeded"
        assert compared(clerk, approval) is None

    def test_what_a_tool_says_to_people_is_said_in_its_words(self, clerk, offer):
        def broken(account: str) -> list[dict[str, Any]]:
            raise ToolError("the bank is closed")

        offer(withdrawing(broken))
        assert said(asked(clerk).preview_text) == {"unavailable": "the bank is closed"}

    def test_one_that_tries_to_write_changes_nothing_and_says_so(self, clerk, offer):
        def writes(account: str) -> list[dict[str, Any]]:
            User.objects.create_user(f"made-for-{account}")
            return []

        offer(withdrawing(writes))
        approval = asked(clerk)
        assert said(approval.preview_text) == {"unavailable": "it tried to write, which a dry run may not do"}
        assert not User.objects.filter(username="made-for-ana").exists()

    def test_one_that_hangs_is_left_behind(self, clerk, offer, monkeypatch):
        monkeypatch.setattr(previews, "PREVIEW_SECONDS", 0.05)
        held = threading.Event()
        offer(withdrawing(lambda account: held.wait(10) and []))
        approval = asked(clerk)
        held.set()
        assert said(approval.preview_text) == {"unavailable": "no answer in 0.05 s"}

    @pytest.mark.parametrize(
        "lines",
        [
            None,
            {"balance": 1},
            [{"name": "balance"}],
            [{"name": "", "after": 1}],
            [{"name": "balance", "after": [1]}],
            [{"name": "balance", "after": 1, "colour": "red"}],
            [{"name": "balance", "after": 1}, {"name": "balance", "after": 2}],
            [{"name": f"row {n}", "after": n} for n in range(previews.MAX_LINES + 1)],
            [{"name": "balance", "after": 2**60}],
        ],
    )
    def test_what_is_no_list_of_lines_is_no_dry_run(self, clerk, offer, lines):
        offer(withdrawing(lambda: lines))
        assert list(said(asked(clerk).preview_text)) == ["unavailable"]

    def test_secret_arguments_appear_neither_by_name_nor_by_value(self, clerk, offer):
        def leaky(pin: str) -> list[dict[str, Any]]:
            return [{"name": "pin", "after": pin}, {"name": "card", "before": f"locked with {pin}", "after": "open"}]

        offer(withdrawing(leaky, secret=("pin",)))
        approval = asked(clerk, calls(call("a", "withdraw", account="ana", amount=20, pin="83519")))
        assert said(approval.preview_text) == {
            "lines": [{"name": "card", "before": "locked with ••••••", "after": "open"}]
        }

    def test_code_of_another_version_makes_none(self, clerk, offer):
        offer(withdrawing())
        row = Tool.objects.get(name="withdraw")
        row.version = "0" * 64
        assert "another version" in said(previews.take(row, {"account": "ana", "amount": 1}))["unavailable"]


class TestAfterAnEdit:
    def test_the_dry_run_is_of_the_call_as_it_was_changed(self, clerk, offer, dana, marco):
        offer(withdrawing())
        approval = asked(clerk)
        clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 5, "pin": ""}')
        approval.refresh_from_db()
        assert said(approval.shown_preview_text)["lines"][0] == {"name": "balance", "before": 100, "after": 95}
        clerk.decide(approval, marco)  # the person who changed it does not approve it
        clerk.drive(approval.execution.run)
        assert compared(clerk, approval)["lines"][0]["predicted"] == 95
        assert compared(clerk, approval)["lines"][0]["state"] == "as_predicted"

    def test_taking_the_edit_back_takes_its_dry_run_back(self, clerk, offer, dana, settings):
        settings.UNDO_HOLD_SECONDS = 30
        offer(withdrawing())
        approval = asked(clerk)
        clerk.decide(approval, dana, "edit", arguments_text='{"account": "ana", "amount": 5, "pin": ""}')
        undone = actions.undo_decision(approval.pk, dana)
        assert undone.final_preview_text == ""
        assert said(undone.shown_preview_text)["lines"][0]["after"] == 80


class TestAfterTheCall:
    def approve(self, clerk, dana) -> Approval:
        approval = asked(clerk)
        clerk.decide(approval, dana)
        assert clerk.drive(approval.execution.run).state == "succeeded"
        return approval

    def test_what_was_foreseen_is_kept_beside_what_is_so(self, clerk, offer, dana):
        offer(withdrawing())
        approval = self.approve(clerk, dana)
        assert compared(clerk, approval) == {
            "lines": [
                {"name": "balance", "before": 100, "predicted": 80, "actual": 80, "state": "as_predicted"},
                {"name": "entries", "predicted": 1, "actual": 1, "state": "as_predicted"},
            ],
            "unavailable": "",
        }
        event = Event.objects.get(type="tool_call.compared")
        assert (event.data["as_predicted"], event.data["drifted"]) == (True, [])

    def test_what_came_out_otherwise_is_named(self, clerk, offer, dana):
        offer(withdrawing())
        approval = asked(clerk)
        WORLD["fee"] = 2
        clerk.decide(approval, dana)
        clerk.drive(approval.execution.run)
        lines = {line["name"]: line for line in compared(clerk, approval)["lines"]}
        assert (lines["balance"]["predicted"], lines["balance"]["actual"]) == (80, 78)
        event = Event.objects.get(type="tool_call.compared")
        assert (event.data["as_predicted"], event.data["drifted"]) == (False, ["balance", "entries"])

    def test_what_nobody_foresaw_has_drifted(self, clerk, offer, dana):
        offer(withdrawing(outcome=lambda result: {"balance": 80, "entries": 1, "letters": 3}))
        lines = compared(clerk, self.approve(clerk, dana))["lines"]
        assert lines[-1] == {"name": "letters", "actual": 3, "state": "drifted"}

    def test_what_is_not_looked_up_is_not_called_as_predicted(self, clerk, offer, dana):
        offer(withdrawing(outcome=lambda: {"balance": 80}))
        comparison = compared(clerk, self.approve(clerk, dana))
        assert [line["state"] for line in comparison["lines"]] == ["as_predicted", "not_measured"]
        assert not previews.is_as_predicted(comparison)

    def test_an_outcome_that_cannot_be_looked_up_changes_nothing_of_the_result(self, clerk, offer, dana):
        def writes() -> dict[str, Any]:
            User.objects.create_user("somebody")
            return {}

        offer(withdrawing(outcome=writes))
        approval = self.approve(clerk, dana)
        comparison = compared(clerk, approval)
        assert comparison["unavailable"] == "it tried to write, which a dry run may not do"
        assert {line["state"] for line in comparison["lines"]} == {"not_measured"}
        assert (approval.execution.result_status, User.objects.filter(username="somebody").exists()) == ("ok", False)

    def test_a_call_that_did_nothing_is_compared_with_nothing(self, clerk, offer, dana):
        offer(withdrawing())
        WORLD["down"] = True
        assert compared(clerk, self.approve(clerk, dana)) is None

    def test_a_call_whose_world_changed_before_it_ran_asks_again_with_a_new_dry_run(self, clerk, offer, dana):
        offer(withdrawing(snapshot=lambda account: {"balance": WORLD.get(account, 100)}))
        first = asked(clerk)
        WORLD["ana"] = 50
        clerk.decide(first, dana)
        run = clerk.drive(first.execution.run)
        (second,) = clerk.open(run)
        assert second.supersedes_id == first.pk
        assert said(second.preview_text)["lines"][0] == {"name": "balance", "before": 50, "after": 30}


class TestReading:
    """In a thread of its own, as the runtime looks."""

    def test_a_look_sees_what_is_there(self, transactional_db, sam):
        assert within(5, reading, User.objects.filter(username="sam").count) == 1

    @pytest.mark.parametrize("write", [
        lambda: User.objects.create_user("x"),
        lambda: User.objects.update(first_name="X"),
        lambda: User.objects.all().delete(),
    ])  # fmt: skip
    def test_a_change_is_refused_whatever_it_is(self, transactional_db, sam, write):
        with pytest.raises(TriedToWrite):
            within(5, reading, write)
        assert list(User.objects.values_list("username", "first_name")) == [("sam", "Sam")]

    def test_a_refusal_that_the_code_hides_changes_nothing_all_the_same(self, transactional_db, sam):
        def hides() -> str:
            try:
                User.objects.create_user("x")
            except Exception:
                return "nothing happened"
            return "made"

        assert within(5, reading, hides) == "nothing happened"
        assert User.objects.count() == 1

    def test_the_connection_can_write_again_afterwards(self, transactional_db, sam):
        def both() -> None:
            reading(User.objects.count)
            User.objects.create_user("later")

        within(5, both)
        assert User.objects.filter(username="later").exists()

    def test_a_look_keeps_no_writer_waiting(self, transactional_db, sam):
        looking, written = threading.Event(), threading.Event()

        def look() -> bool:
            User.objects.count()
            looking.set()
            return written.wait(10)

        looked: list[bool] = []
        thread = threading.Thread(target=lambda: looked.append(within(15, reading, look)))
        thread.start()
        assert looking.wait(10)
        User.objects.create_user("meanwhile")
        connection.close()
        written.set()
        thread.join()
        assert looked == [True]


class TestADeclaration:
    def test_an_outcome_needs_a_preview_to_be_held_against(self):
        with pytest.raises(ValueError, match="no preview"):
            withdrawing(preview=None)


def test_a_secret_number_is_not_shown(clerk, offer, dana):
    what = [{"name": "code", "before": 48213377, "after": "48213377 or so"}, {"name": "doors", "after": 2}]

    @tool(effect="irreversible", secret=("pin",), preview=lambda pin: what)
    def unlock(pin: int) -> str:
        """Unlock something."""
        return "ok"

    offer(unlock)
    (approval,) = clerk.open(clerk.run(calls(call("a", "unlock", pin=48213377)), says("done")))
    assert json.loads(approval.preview_text) == {
        "lines": [
            {"name": "code", "before": "••••••", "after": "•••••• or so"},
            {"name": "doors", "after": 2},
        ]
    }
