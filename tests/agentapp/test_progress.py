"""A run that makes no progress is stopped, and says what it repeated."""

from agentapp.models import Tool
from approvals.models import Rule
from tests.clerk_tools import effects_of
from tests.conftest import call, calls, says


def look(id, what="x"):
    return calls(call(id, "look_up", what=what))


def test_the_same_call_with_the_same_result_three_times_stops_the_run(clerk):
    run = clerk.run(look("a"), look("b"), look("c"), says("done"))
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "no_progress", "tool:look_up")
    assert "look_up was called 3 times" in run.stop_message
    assert run.step_count == 3


def test_twice_is_not_yet_a_loop(clerk):
    assert clerk.run(look("a"), look("b"), says("done")).state == "succeeded"


def test_a_loop_over_two_calls_is_found_too(clerk):
    steps = [look("a"), look("b", "y"), look("c"), look("d", "y"), look("e"), look("f", "y")]
    run = clerk.run(*steps, says("done"))
    assert (run.stop_reason, run.step_count) == ("no_progress", 5)


def test_looking_again_after_something_new_is_progress(clerk):
    steps = [look("a"), look("b", "y"), look("c"), look("d", "z"), look("e")]
    assert clerk.run(*steps, says("done")).state == "succeeded"


def test_the_same_call_three_times_in_one_reply_is_one_look(clerk):
    thrice = calls(*[call(id, "look_up", what="x") for id in "abc"])
    assert clerk.run(thrice, says("done")).state == "succeeded"


def test_a_tool_that_may_be_repeated_may_be_polled(clerk):
    Tool.objects.filter(name="look_up").update(repeatable=True)
    assert clerk.run(look("a"), look("b"), look("c"), look("d"), says("done")).state == "succeeded"
    assert len(effects_of("look_up")) == 4


def test_the_same_refusal_three_times_in_a_row_stops_the_run(clerk):
    Rule.objects.create(name="no", tool="pay", verdict="deny")
    steps = [calls(call(f"c{n}", "pay", account="ana", amount=n)) for n in (1, 2, 3)]
    run = clerk.run(*steps, says("done"))
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "no_progress", "refusal:policy_denied")
    assert "policy_denied" in run.stop_message


def test_a_result_in_between_starts_the_count_of_refusals_anew(clerk):
    Rule.objects.create(name="no", tool="pay", verdict="deny")
    pays = [calls(call(f"c{n}", "pay", account="ana", amount=n)) for n in (1, 2, 3)]
    assert clerk.run(*pays[:2], look("a"), pays[2], says("done")).state == "succeeded"


def test_three_refusals_in_one_reply_leave_the_model_a_chance(clerk):
    Rule.objects.create(name="no", tool="pay", verdict="deny")
    thrice = calls(*[call(f"c{n}", "pay", account="ana", amount=n) for n in (1, 2, 3)])
    assert clerk.run(thrice, says("done")).state == "succeeded"


def test_people_who_reject_three_times_say_themselves_when_it_is_enough(clerk, dana):
    steps = [calls(call(f"c{n}", "pay", account="ana", amount=n)) for n in (1, 2, 3)]
    run = clerk.run(*steps, says("sorry"))
    for _ in steps:
        clerk.decide(clerk.open(run)[0], dana, "reject", message="No.")
        clerk.drive(run)
    assert run.state == "succeeded"
