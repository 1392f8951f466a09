"""What people and workers do in `upgrades.py`. Runs in processes of either release, so it uses only what both have."""

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import upgrade_tools
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db.models import QuerySet

from agentapp import actions, loop
from agentapp.models import Agent, Run, Tool, ToolExecution
from agentapp.roles import ensure_roles
from approvals import configuration, ledger
from approvals.models import Approval

WAITING, APPROVED, IN_DOUBT = 50, 10, 5
REJECTED = {f"waits-{number}" for number in range(0, WAITING, 5)}
RETRIED = "doubt-0"
DAY = "day-"
FOUND_OUT = {"doubt-0": "retry", "doubt-1": "happened", "doubt-2": "happened", "doubt-3": "did_not_happen",
             "doubt-4": "did_not_happen"}  # fmt: skip
TIMEOUT_SECONDS = 300


def furnish() -> None:
    """Tools, people and an agent."""
    call_command("sync_tools", verbosity=0)
    ensure_roles()
    for name, role in (("sam", "operator"), ("dana", "approver")):
        User.objects.create(username=name).groups.set(Group.objects.filter(name=role))
    agent = Agent(name="clerk", instructions="Be exact.", driver="scripted")
    configuration.save(agent, ledger.SYSTEM)
    agent.tools.set(Tool.objects.filter(source__location="upgrade_tools"))


def leave() -> None:
    """Runs that wait, calls that are approved and have not begun, and calls of unknown outcome."""
    for number in range(WAITING):
        _start("pay", f"waits-{number}")
    for number in range(IN_DOUBT):
        _start("pay_in_doubt", f"doubt-{number}")
    _drive_until(lambda: _pending() == WAITING + IN_DOUBT)
    _decide("pay_in_doubt")
    _drive_until(lambda: len(_in_doubt()) == IN_DOUBT)
    for number in range(APPROVED):
        _start("pay", f"approved-{number}")
    _drive_until(lambda: _pending() == WAITING + APPROVED)
    _decide("pay", only="approved-")
    _stand_as_left()


def _stand_as_left() -> None:
    approved = Approval.objects.filter(state="approved").count()
    print(f"{_pending()} calls wait, {approved} are approved and have not begun, {len(_in_doubt())} are in doubt")
    assert (_pending(), approved, len(_in_doubt())) == (WAITING, APPROVED, IN_DOUBT)
    assert len(upgrade_tools.effects()) == IN_DOUBT


def go_on(ready: str, stop: str) -> None:
    """Start and drive runs, as during a working day, until the file `stop` is there. They are no others than these."""
    done, deadline = 0, time.monotonic() + TIMEOUT_SECONDS
    while not Path(stop).exists():
        assert time.monotonic() < deadline, "nobody said when to stop"
        mine = Run.objects.filter(pk=_start("look", f"{DAY}{done}").pk)
        _drive_until(lambda mine=mine: mine.get().state == "succeeded", mine)
        done += 1
        Path(ready).touch()
    print(f"{done} runs began and ended meanwhile")


def finish() -> None:
    """People decide and find out what is left; everything ends, and each payment has happened as often as it should."""
    _stand_as_left()
    user = User.objects.get(username="dana")
    for call in _in_doubt():
        actions.resolve_outcome(call.pk, FOUND_OUT[_item(call)], "They were asked.", user)
    runs = Run.objects.exclude(input__startswith=DAY)
    open_runs = runs.exclude(state__in=Run.FINAL)

    def done() -> bool:
        _decide("pay")
        _decide("pay_in_doubt")
        return not open_runs.exists()

    _drive_until(done, runs)
    items = {f"waits-{number}" for number in range(WAITING)} - REJECTED
    expected = sorted([*items, *(f"approved-{number}" for number in range(APPROVED)), *FOUND_OUT, RETRIED])
    assert sorted(upgrade_tools.effects()) == expected
    succeeded = runs.filter(state="succeeded").count()
    print(f"{len(expected)} payments as decided, none missing and none too many; {succeeded} runs succeeded")
    assert succeeded == runs.count()


def _start(tool: str, item: str) -> Run:
    reply = {"text": "", "tool_calls": [{"id": "c", "name": tool, "arguments": {"item": item}}]}
    new = actions.NewRun(agent="clerk", input=item, script=[reply, {"text": "Done."}])
    return actions.start_run(new, User.objects.get(username="sam"))


def _decide(tool: str, only: str = "") -> None:
    user = User.objects.get(username="dana")
    for approval in Approval.objects.filter(state="pending", tool=tool):
        item = _item(approval)
        if not item.startswith(only):
            continue
        seen = {"version": approval.version, "action_digest": approval.final_digest or approval.action_digest}
        kind = {"type": "reject", "message": "Not this one."} if item in REJECTED else {"type": "approve"}
        actions.decide(approval.pk, actions.NewDecision(id=uuid.uuid4(), **kind, **seen), user)


def _item(call: Approval | ToolExecution) -> str:
    return str(json.loads(call.arguments_text)["item"])


def _pending() -> int:
    return Approval.objects.filter(state="pending").count()


def _in_doubt() -> list[ToolExecution]:
    return list(ToolExecution.objects.filter(state=ToolExecution.State.OUTCOME_UNKNOWN))


def _drive_until(seen: Callable[[], bool], runs: QuerySet[Run] | None = None) -> None:
    runs = Run.objects.all() if runs is None else runs
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not seen():
        assert time.monotonic() < deadline, list(runs.values_list("input", "state", "waiting_for"))
        for run in runs.exclude(state__in=Run.FINAL):
            loop.drive(run.pk)
