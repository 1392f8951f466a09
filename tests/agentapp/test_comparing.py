"""Two runs side by side: which steps and calls are the same, different, missing or new."""

import pytest
from django.contrib.auth.models import User

from agentapp import actions
from agentapp.comparing import Comparison, compare
from agentapp.models import Run, Tool
from approvals.models import Rule
from tests.conftest import Clerk, call, calls, says
from tests.forks import DONE, LOOK, PAY, fork


def told(found: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(step.kind, [(pair.name, pair.kind) for pair in step.calls]) for step in found.steps]


def drive(clerk: Clerk, run: Run) -> Run:
    for _ in range(20):
        if clerk.drive(run).is_final:
            break
    return run


@pytest.fixture
def paid(clerk: Clerk, dana: User) -> Run:
    run = clerk.run(LOOK, PAY, DONE)
    clerk.decide(clerk.open(run)[0], dana)
    return clerk.drive(run)


def test_a_run_is_the_same_as_its_replay(clerk, paid, sam):
    found = compare(paid, drive(clerk, actions.replay_run(paid.pk, sam)))
    assert found.is_same
    assert told(found) == [("same", [("look_up", "same")]), ("same", [("pay", "same")]), ("same", [])]
    assert (found.counts["same"], found.differs) == (2, ())


def test_what_today_would_do_otherwise_is_named(clerk, paid, sam):
    Rule.objects.create(name="no pay", tool="pay", verdict="deny", order=1)
    clerk.agent.tools.remove(Tool.objects.get(name="send"))
    Tool.objects.filter(name="look_up").update(version="c" * 64)
    found = compare(paid, drive(clerk, actions.replay_run(paid.pk, sam)))
    assert not found.is_same
    look, pay = (step.calls[0] for step in found.steps[:2])
    assert look.differs == ("version of the tool",)
    assert pay.differs == ("ruling", "outcome", "what ran", "result")
    assert [list(step.gone) for step in found.steps] == [["send"]] * 3
    assert found.differs == (), "it ended the same way all the same"


def test_calls_that_are_missing_new_or_have_other_arguments(clerk):
    was = clerk.run(calls(call("a", "look_up", what="x"), call("b", "read_mail")), LOOK, says("One."))
    now = clerk.run(calls(call("a", "look_up", what="y"), call("c", "fail", how="never")), says("Two."))
    found = compare(was, now)
    assert told(found) == [
        ("different", [("look_up", "different"), ("read_mail", "missing"), ("fail", "new")]),
        ("missing", [("look_up", "missing")]),
        ("different", []),
    ]
    assert found.steps[0].calls[0].differs == ("arguments", "what ran", "result")
    assert found.steps[2].differs == ("words",)
    assert found.differs == ("answer",)


def test_the_same_calls_in_another_order_are_the_same_calls(clerk):
    one, other = call("a", "look_up", what="x"), call("b", "look_up", what="y")
    found = compare(clerk.run(calls(one, other), DONE), clerk.run(calls(other, one), DONE))
    assert [pair.kind for pair in found.steps[0].calls] == ["same", "same"]


def test_what_a_fork_kept_is_kept_and_a_call_it_began_with_stands_in_its_step(clerk, sam, dana):
    run = clerk.run(LOOK, calls(call("l", "look_up", what="cup"), call("p", "pay", account="ana", amount=5)), DONE)
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    forked = clerk.drive(fork(run, sam, 2, call=1, arguments={"account": "ana", "amount": 7}))
    clerk.decide(clerk.open(forked)[0], dana)
    found = compare(run, clerk.drive(forked))
    assert told(found) == [
        ("kept", [("look_up", "kept")]),
        ("different", [("look_up", "kept"), ("pay", "different")]),
        ("same", []),
    ]


def test_runs_without_a_step_are_the_same(clerk):
    assert compare(clerk.start(DONE), clerk.start(DONE)).is_same
