"""What stops calls to something that keeps failing, and lets it be tried again."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agentapp import actions, breakers, loop
from agentapp.answers import answer
from agentapp.breakers import Thing
from agentapp.models import Agent, Breaker, Run, Tool
from agentapp.tools.base import ToolError
from approvals import ledger
from approvals.models import Approval, Event, Rule
from tests import stopping_tools
from tests.agentapp.stopping import configured, cool, fail_times
from tests.conftest import call, calls, says
from tests.races import race, tries
from tests.stopping_tools import DONE
from tests.wire import DIALECTS, Answer

ASK = calls(call("x", "ask", about="x"))


def breaker(key: str, scope: str = "tool") -> Breaker:
    return Breaker.objects.get(scope=scope, key=key)


def test_nothing_is_written_while_nothing_fails(desk):
    desk.run(ASK, says("done"))
    assert not Breaker.objects.exists()


def test_it_opens_at_the_third_failure_in_a_row_and_says_so(desk):
    fail_times(desk, 2)
    assert breaker("ask").state == "closed"
    fail_times(desk, 1)
    opened = breaker("ask")
    assert (opened.state, opened.failures) == ("open", 3)
    assert "not now" in opened.last_error
    event = Event.objects.get(type="breaker.opened")
    assert event.chain == "configuration"
    said = {name: event.data[name] for name in ("scope", "name", "threshold", "observed")}
    assert said == {"scope": "tool", "name": "ask", "threshold": 3, "observed": 3}
    assert event.data["trigger"] == "failures in a row"
    assert "60 s" in event.data["action"]


def test_a_success_in_between_starts_the_count_anew(desk):
    fail_times(desk, 2)
    desk.run(ASK, says("done"))
    fail_times(desk, 2)
    assert (breaker("ask").state, breaker("ask").failures) == ("closed", 2)


def test_a_call_of_an_open_tool_is_refused_and_the_model_is_told_to_go_on(desk):
    fail_times(desk, 3)
    run = desk.run(calls(call("x", "ask", about="x"), call("y", "look_up", what="y")), says("done"))
    refused = desk.execution(run, "x")
    assert (run.state, refused.reason, DONE) == ("succeeded", "circuit_open", [])
    assert "Go on without it." in answer(refused).text
    assert desk.execution(run, "y").result_status == "ok"


def test_a_refusal_is_no_failure(desk):
    for number in range(4):
        desk.run(calls(call("a", "ask", wrong=number)), says("done"))
    assert not Breaker.objects.filter(scope="tool").exists()


def test_a_call_that_its_tool_finds_at_fault_is_no_failure_of_the_tool(desk):
    stopping_tools.BROKEN["ask"] = ToolError("There is no such order; look it up first.", refused=True)
    for number in range(4):
        run = desk.run(calls(call("a", "ask", about=f"order {number}")), says("done"))
    execution = desk.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", "tool_failure")
    assert "look it up first" in answer(execution).text
    assert not Breaker.objects.filter(scope="tool").exists()


def test_a_timeout_and_an_unknown_outcome_are_failures(desk):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    stopping_tools.BROKEN["write"] = RuntimeError("a bug")
    desk.run(calls(call("a", "write", about="x")), says("done"))
    assert "outcome_unknown" in breaker("write").last_error
    Tool.objects.filter(name="dig").update(timeout_seconds=1)
    desk.run(calls(call("a", "dig", about="x")), says("done"))
    assert "tool_timeout" in breaker("dig").last_error


def test_one_probe_closes_it_when_it_has_cooled_down(desk):
    fail_times(desk, 3)
    cool()
    run = desk.run(ASK, says("done"))
    assert desk.execution(run, "x").result_status == "ok"
    closed = breaker("ask")
    assert (closed.state, closed.failures, closed.opened_at) == ("closed", 0, None)
    assert configured() == ["breaker.opened", "breaker.half_open", "breaker.closed"]


def test_a_probe_that_fails_opens_it_again(desk):
    fail_times(desk, 3)
    cool()
    fail_times(desk, 1)
    assert breaker("ask").state == "open"
    assert breaker("ask").opened_at > timezone.now() - timedelta(minutes=1)
    assert configured() == ["breaker.opened", "breaker.half_open", "breaker.opened"]
    assert Event.objects.filter(type="breaker.opened").latest("seq").data["trigger"] == "the probe failed"
    run = desk.run(ASK, says("done"))
    assert desk.execution(run, "x").reason == "circuit_open"


def test_a_probe_that_never_came_back_makes_room_for_another(desk):
    fail_times(desk, 3)
    Breaker.objects.filter(key="ask").update(state="half_open", probe_until=timezone.now() + timedelta(hours=1))
    assert desk.execution(desk.run(ASK, says("done")), "x").reason == "circuit_open"
    cool()
    assert desk.execution(desk.run(ASK, says("done")), "x").result_status == "ok"


def test_two_reads_of_a_step_do_not_both_probe(desk):
    fail_times(desk, 3)
    cool()
    run = desk.run(calls(call("x", "ask", about="x"), call("y", "ask", about="y")), says("done"))
    results = {desk.execution(run, id).reason for id in "xy"}
    assert results == {"", "circuit_open"}
    assert len(DONE) == 1


def test_a_probe_of_a_write_needs_a_person_even_where_a_rule_allows_it(desk, dana):
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    fail_times(desk, 3, "write")
    Breaker.objects.filter(key="write").update(state="open", opened_at=timezone.now(), failures=3)
    cool()
    run = desk.run(calls(call("w", "write", about="x")), says("done"))
    assert (run.waiting_for, DONE) == ("approval", [])
    desk.decide(desk.open(run)[0], dana)
    assert desk.drive(run).state == "succeeded"
    assert (DONE, breaker("write").state) == ([("write", "x")], "closed")


def test_an_approved_call_is_refused_while_its_breaker_is_open(desk, dana):
    run = desk.run(calls(call("w", "write", about="x")), says("done"))
    (approval,) = desk.open(run)
    desk.decide(approval, dana)
    Breaker.objects.create(scope="tool", key="write", state="open", opened_at=timezone.now(), failures=3)
    assert desk.drive(run).state == "succeeded"
    approval.refresh_from_db()
    assert (desk.execution(run, "w").reason, approval.state, DONE) == ("circuit_open", "superseded", [])


# --- People are not asked about what cannot run ----------------------------------------------------


@pytest.fixture
def behind(desk, dana):
    """A run whose write a rule allows and which comes after a call that a person has just approved."""
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    order = call("r", "refund", order={"id": 1})
    run = desk.run(calls(order, call("w", "write", about="x")), says("done"))
    desk.decide(desk.open(run)[0], dana)
    return run


def test_nobody_is_asked_about_an_allowed_write_whose_breaker_has_opened_meanwhile(desk, behind):
    Breaker.objects.create(scope="tool", key="write", state="open", opened_at=timezone.now(), failures=3)
    assert desk.drive(behind).state == "succeeded"
    assert (desk.execution(behind, "w").reason, DONE) == ("circuit_open", [("refund", "1")])
    assert Approval.objects.count() == 1
    assert "Go on without it." in answer(desk.execution(behind, "w")).text


def test_nobody_is_asked_about_an_allowed_write_while_another_call_probes(desk, behind):
    soon = timezone.now() + timedelta(minutes=1)
    Breaker.objects.create(
        scope="tool", key="write", state="half_open", opened_at=timezone.now(), probe_until=soon, failures=3
    )
    assert desk.drive(behind).state == "succeeded"
    assert (desk.execution(behind, "w").reason, Approval.objects.count()) == ("circuit_open", 1)
    assert breaker("write").probe_until == soon


def test_a_person_is_asked_about_an_allowed_write_that_would_be_the_probe(desk, dana, behind):
    Breaker.objects.create(scope="tool", key="write", state="open", opened_at=timezone.now(), failures=3)
    cool()
    assert (desk.drive(behind).waiting_for, breaker("write").state) == ("approval", "open")
    desk.decide(desk.open(behind)[0], dana)
    assert desk.drive(behind).state == "succeeded"
    assert (DONE, breaker("write").state) == ([("refund", "1"), ("write", "x")], "closed")


def test_nobody_is_asked_about_a_write_whose_breaker_a_read_of_its_step_has_opened(desk):
    source = "tests-stopping_tools"
    Breaker.objects.create(scope="source", key=source, failures=5, threshold=6, cooldown_seconds=60)
    stopping_tools.BROKEN["ask"] = stopping_tools.failing()
    run = desk.run(calls(call("x", "ask", about="x"), call("w", "write", about="x")), says("done"))
    assert (run.state, breaker(source, "source").state) == ("succeeded", "open")
    assert (desk.execution(run, "w").reason, Approval.objects.count()) == ("circuit_open", 0)


def test_the_other_cards_of_a_step_go_up_when_one_of_its_calls_cannot_run(desk):
    source = "tests-stopping_tools"
    Breaker.objects.create(scope="source", key=source, failures=5, threshold=6, cooldown_seconds=60)
    stopping_tools.BROKEN["ask"] = stopping_tools.failing()
    both = call("w", "write", about="x"), call("p", "pay", account="ana", amount=1)
    run = desk.run(calls(call("x", "ask", about="x"), *both), says("done"))
    assert [approval.tool for approval in desk.open(run)] == ["pay"]
    assert desk.execution(run, "w").reason == "circuit_open"


def test_a_person_who_wants_a_lost_write_tried_again_is_asked_though_its_breaker_is_open(desk, dana):
    """By the time people have looked it may have cooled down, and the act's outcome must not stay unknown."""
    Rule.objects.create(name="writes", tool="write", verdict="allow")
    stopping_tools.BROKEN["write"] = RuntimeError("gone")
    run = desk.run(calls(call("w", "write", about="x")), says("done"))
    Breaker.objects.filter(key="write").update(state="open", opened_at=timezone.now(), failures=3)
    actions.resolve_outcome(desk.execution(run, "w").pk, "retry", "Nothing arrived.", dana)
    assert desk.drive(run).waiting_for == "approval"


def test_one_failing_tool_does_not_take_its_source_with_it_and_several_do(desk):
    fail_times(desk, 5, "ask")
    assert desk.execution(desk.run(calls(call("y", "ask_too", about="y")), says("done")), "y").result_status == "ok"
    Breaker.objects.all().delete()
    fail_times(desk, 3, "ask")
    fail_times(desk, 3, "ask_too")
    assert breaker("tests-stopping_tools", "source").state == "open"
    run = desk.run(calls(call("w", "dig", about="x")), says("done"))
    assert desk.execution(run, "w").reason == "circuit_open"


def test_a_person_can_reset_it(desk, mia):
    fail_times(desk, 3)
    actions.reset_breaker(breaker("ask").pk, mia)
    assert desk.execution(desk.run(ASK, says("done")), "x").result_status == "ok"
    event = Event.objects.get(type="breaker.reset")
    assert event.actor.endswith(":mia")
    assert event.data["observed"] == 3


def test_only_who_may_stop_things_may_reset_one(desk, dana):
    fail_times(desk, 3)
    with pytest.raises(actions.Refused, match="kill switches"):
        actions.reset_breaker(breaker("ask").pk, dana)
    assert breaker("ask").state == "open"


@pytest.mark.django_db(transaction=True)
def test_exactly_one_of_many_workers_probes(transactional_db):
    thing = Thing("tool", "ask")

    def probe():
        with ledger.transaction():
            return breakers.admit([thing], 30)

    for _ in range(min(tries(), 20)):
        Breaker.objects.all().delete()
        past = timezone.now() - timedelta(hours=1)
        Breaker.objects.create(scope="tool", key="ask", state="open", opened_at=past, failures=3)
        results = race(probe, probe, probe)
        assert results.count(None) == 1, results


@pytest.mark.django_db(transaction=True)
def test_failures_counted_by_several_workers_at_once_are_all_counted(transactional_db):
    def fail():
        with ledger.transaction():
            breakers.failed(Thing("tool", "ask"), "no")

    assert race(fail, fail, fail) == [None, None, None]
    assert (breaker("ask").failures, breaker("ask").state) == (3, "open")
    assert Event.objects.filter(type="breaker.opened").count() == 1


# --- Models and agents -------------------------------------------------------------------------


@pytest.fixture
def asking(desk, provider, settings):
    """An agent with a real provider, and its starter."""
    settings.MODEL_ATTEMPTS = 3
    dialect = DIALECTS["openai"]
    Agent.objects.filter(pk=desk.agent.pk).update(driver="tool_calling", model=dialect.model)
    desk.agent.refresh_from_db()

    def start() -> Run:
        return actions.start_run(actions.NewRun(agent=desk.agent.name, input="Hi."), desk.starter)

    return dialect, start


def failing_provider(provider, dialect, times):
    provider.answer(*[Answer(dialect.error("No.", "authentication_error"), status=401) for _ in range(times)])


def test_a_model_that_fails_opens_and_runs_come_back_when_it_has_cooled_down(desk, asking, provider):
    dialect, start = asking
    failing_provider(provider, dialect, 3)
    for _ in range(3):
        assert desk.drive(start()).state == "failed"
    Breaker.objects.filter(scope="agent").delete()
    failing = breaker(dialect.model, "model")
    assert (failing.state, failing.last_run) == ("open", Run.objects.latest("created_at").pk)
    run = start()
    again = loop.drive(run.pk)
    assert 50 < again.delay <= 60
    run.refresh_from_db()
    assert (run.state, run.model_failures, len(provider.questions)) == ("queued", 1, 3)
    cool()
    Run.objects.filter(pk=run.pk).update(wake_at=None)
    provider.answer(Answer(dialect.reply("Hello.")))
    assert desk.drive(run).state == "succeeded"
    assert breaker(dialect.model, "model").state == "closed"


def test_a_run_that_was_cancelled_before_it_met_an_open_model_does_not_wait_for_it(desk, asking, sam, monkeypatch):
    dialect, start = asking
    Breaker.objects.create(scope="model", key=dialect.model, state="open", opened_at=timezone.now(), failures=4)
    run, real = start(), breakers.admit

    def cancelled_meanwhile(*arguments):
        actions.cancel_run(run.pk, sam)
        return real(*arguments)

    monkeypatch.setattr(breakers, "admit", cancelled_meanwhile)
    assert loop.drive(run.pk) is None
    run.refresh_from_db()
    assert (run.state, run.stop_reason) == ("cancelled", "user_requested")


def test_a_run_gives_up_when_the_model_stays_open_and_says_what_stopped_it(desk, asking):
    dialect, start = asking
    Breaker.objects.create(
        scope="model", key=dialect.model, state="open", opened_at=timezone.now() + timedelta(hours=1), failures=4
    )
    run = start()
    for _ in range(3):
        loop.drive(run.pk)
        Run.objects.filter(pk=run.pk, state="queued").update(wake_at=None)
    run.refresh_from_db()
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "circuit_open", f"model:{dialect.model}")
    assert "failed 4 times" in run.stop_message


def test_waiting_behind_a_probe_uses_no_attempt_up(desk, asking):
    dialect, start = asking
    soon = timezone.now() + timedelta(seconds=30)
    Breaker.objects.create(
        scope="model", key=dialect.model, state="half_open", opened_at=soon, probe_until=soon, failures=3
    )
    run = start()
    assert loop.drive(run.pk).delay > 20
    run.refresh_from_db()
    assert (run.state, run.model_failures) == ("queued", 0)


def test_an_answer_that_was_asked_for_wrongly_is_not_the_models_failure(desk, asking, provider):
    dialect, start = asking
    provider.answer(Answer(dialect.error("Bad.", "invalid_request_error"), status=400))
    desk.drive(start())
    assert not Breaker.objects.filter(scope="model").exists()


def test_an_agent_whose_runs_fail_starts_no_work_until_it_has_cooled_down(desk):
    for _ in range(3):
        assert desk.run(says("")).state == "failed"
    assert breaker("clerk", "agent").state == "open"
    run = desk.start(says("done"))
    assert loop.drive(run.pk).delay > 50
    cool()
    Run.objects.filter(pk=run.pk).update(wake_at=None)
    assert desk.drive(run).state == "succeeded"
    assert breaker("clerk", "agent").state == "closed"
