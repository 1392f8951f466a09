"""Hooks in runs: when they are called, what becomes of what they return, and that no hook opens anything."""

import dataclasses
import json

import pytest

from agentapp import actions, concluding, llm, loop, points, runs
from agentapp.answers import answer
from agentapp.compilers import GO_ON, Earlier, compile_messages
from agentapp.drivers.base import ModelError
from agentapp.drivers.scripted import ScriptedDriver
from agentapp.hooks import StopRun
from agentapp.messages import AssistantMessage, Reply, ToolCall, ToolMessage, ToolResult, ToolSpec, UserMessage
from agentapp.models import Agent, Run, Tool
from agentapp.state import RunState
from agentapp.transcript import load_steps
from approvals import ledger
from approvals.models import Approval, Event, Rule
from tests import clerk_hooks
from tests.clerk_hooks import DO
from tests.clerk_tools import EFFECTS, effects_of
from tests.conftest import Clerk, call, calls, says
from tests.wire import DIALECTS, Answer, provider

__all__ = ["provider"]

DIALECT = DIALECTS["openai"]


@pytest.fixture
def spied(clerk: Clerk) -> Clerk:
    """A clerk with a hook at every point, under the strict contract."""
    clerk_hooks.forget()
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy"], hook_contract="strict")
    clerk.agent.refresh_from_db()
    return clerk


def change(**fields):
    return lambda context: dataclasses.replace(context, **fields)


def on_call(tool, /, **fields):
    """Change calls of one tool only."""
    return lambda context: dataclasses.replace(context, **fields) if context.name == tool else None


def raises(error):
    def hook(*args):
        raise error

    return hook


def types(run):
    return list(Event.objects.filter(run_id=run.pk).order_by("seq").values_list("type", flat=True))


def event(run, type):
    return Event.objects.get(run_id=run.pk, type=type).data


def told(clerk, run, call_id):
    return answer(clerk.execution(run, call_id)).text


def messages(run):
    return compile_messages(run, Earlier(), load_steps(run))


# --- When ----------------------------------------------------------------------------------------


def test_hooks_run_at_their_points_in_the_order_of_the_loop(spied):
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert run.state == "succeeded"
    step = ["before_step", "before_inference_request", "after_inference_response"]
    assert clerk_hooks.points() == [
        "before_execution", *step, "before_tool_use", "after_tool_use", "after_step", *step, "after_step",
        "on_stop", "after_execution",
    ]  # fmt: skip


def test_a_run_that_waited_does_not_begin_again_and_asks_no_hook_about_the_call_again(spied, dana):
    run = spied.run(calls(call("a", "pay", account="ana", amount=20)), says("done"))
    assert run.waiting_for == "approval"
    before = len(clerk_hooks.SEEN)
    (approval,) = spied.open(run)
    spied.decide(approval, dana)
    assert spied.drive(run).state == "succeeded"
    after = clerk_hooks.points()[before:]
    assert after[:3] == ["after_tool_use", "after_step", "before_step"]
    assert "before_tool_use" not in after
    assert "before_execution" not in after


def test_a_step_whose_calls_were_all_refused_is_over_all_the_same(spied):
    spied.run(calls(call("a", "no_such_tool")), says("done"))
    assert clerk_hooks.points().count("after_step") == 2
    assert "after_tool_use" not in clerk_hooks.points()


def test_a_class_is_made_once_for_each_drive(spied, dana):
    Agent.objects.update(hooks=["tests.clerk_hooks.Counting"])
    run = spied.run(calls(call("r", "look_up", what="x")), calls(call("a", "pay", account="ana", amount=20)), says("d"))
    (approval,) = spied.open(run)
    spied.decide(approval, dana)
    spied.drive(run)
    assert [made.steps for made in clerk_hooks.MADE] == [2, 1]


def test_a_run_keeps_its_hooks_and_the_next_has_those_of_its_agent_by_then(spied):
    script = calls(call("a", "look_up", what="x")), says("done")
    started = spied.start(*script)
    Agent.objects.update(hooks=["tests.clerk_hooks.ten"])
    spied.drive(started)
    heard = len(clerk_hooks.SEEN)
    assert heard > 0
    spied.run(*script)
    assert len(clerk_hooks.SEEN) == heard
    assert effects_of("look_up") == [{"what": "x"}, {"what": "x ten"}]


def test_hooks_are_told_plain_values_and_no_rows(spied):
    spied.run(calls(call("a", "look_up", what="x")), says("done"), customer="C-1", metadata={"vip": True})
    for _, context in clerk_hooks.SEEN:
        json.dumps(dataclasses.asdict(context), default=str)
        assert (context.run.agent, context.run.customer, context.run.metadata) == ("clerk", "C-1", {"vip": True})
        assert context.run.starter == "sam"


def test_the_end_is_told_with_the_final_state_and_never_with_running(spied):
    spied.run(says("done"))
    assert [clerk_hooks.told(point).run.state for point in ("on_stop", "after_execution")] == ["succeeded"] * 2
    assert clerk_hooks.told("after_execution").answer == "done"
    assert clerk_hooks.told("on_stop").reason == "completed"


# --- Loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["tests.clerk_hooks.gone", "no_such_module.hook", "tests.clerk_hooks.plain"])
def test_a_run_whose_hook_cannot_be_found_fails_and_nothing_runs(clerk, path):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    Agent.objects.update(hooks=["tests.clerk_hooks.Spy", path])
    run = clerk.run(calls(call("a", "label", text="red")), says("done"))
    assert (run.state, run.stop_reason, run.step_count) == ("failed", "error", 0)
    assert path in run.stop_message
    assert EFFECTS == []


def test_an_approved_call_does_not_run_when_a_hook_has_gone_meanwhile(spied, dana):
    run = spied.run(calls(call("a", "pay", account="ana", amount=20)), says("done"))
    (approval,) = spied.open(run)
    spied.decide(approval, dana)
    Run.objects.update(agent_snapshot={**run.agent_snapshot, "hooks": ["tests.clerk_hooks.gone"]})
    assert spied.drive(run).state == "failed"
    assert effects_of("pay") == []
    assert spied.execution(run, "a").is_answered


# --- Stopping and failing ------------------------------------------------------------------------


@pytest.mark.parametrize(("point", "steps"), [("before_execution", 0), ("before_step", 0)])
def test_a_hook_before_the_model_stops_the_run_without_asking_it(spied, monkeypatch, point, steps):
    monkeypatch.setattr(ScriptedDriver, "next_step", raises(AssertionError("the model was asked")))
    DO[point] = raises(StopRun("The office is closed.", {"until": "9:00"}))
    run = spied.run(says("done"))
    assert (run.state, run.stop_reason, run.stop_message) == ("stopped", "stop_requested", "The office is closed.")
    assert (run.stop_source, run.step_count) == ("hook:tests.clerk_hooks.Spy", steps)
    assert event(run, "run.stopped")["context"] == {"until": "9:00"}
    assert "after_step" not in clerk_hooks.points()
    assert "on_error" not in clerk_hooks.points()


def test_a_hook_that_raises_before_a_step_fails_the_run_and_stores_no_step(spied):
    DO["before_step"] = raises(ValueError("secret detail"))
    run = spied.run(says("done"))
    assert (run.state, run.stop_reason, run.step_count, run.steps.count()) == ("failed", "error", 0, 0)
    assert "tests.clerk_hooks.Spy" in run.stop_message
    assert "secret" not in run.stop_message
    assert clerk_hooks.points() == ["before_execution", "before_step", "on_error", "on_stop", "after_execution"]


def test_a_driver_that_breaks_down_leaves_a_failed_step_with_its_hooks_run(spied, monkeypatch):
    monkeypatch.setattr(ScriptedDriver, "next_step", raises(KeyError("secret detail")))
    run = spied.run(says("done"))
    (step,) = run.steps.all()
    assert (run.state, step.error) == ("failed", "error")
    assert clerk_hooks.points()[2:] == ["after_step", "on_error", "on_stop", "after_execution"]
    assert clerk_hooks.told("after_step").error == "error"


def test_a_model_that_cannot_answer_is_an_error_too(spied, monkeypatch):
    monkeypatch.setattr(ScriptedDriver, "next_step", raises(ModelError("no such model")))
    assert spied.run(says("done")).state == "failed"
    assert clerk_hooks.told("on_error").message == "no such model"


@pytest.mark.parametrize("point", ["on_stop", "after_execution", "on_error"])
@pytest.mark.parametrize("error", [RuntimeError("late"), StopRun("late")])
def test_a_hook_of_the_end_cannot_keep_a_run_from_ending(spied, caplog, point, error):
    DO[point] = raises(error)
    run = spied.run(says("" if point == "on_error" else "done"))
    assert run.state == ("failed" if point == "on_error" else "succeeded")


def test_the_strict_contract_ends_the_run_and_names_hook_field_and_point(spied):
    DO["before_step"] = change(step=9)
    run = spied.run(says("done"))
    assert run.state == "failed"
    assert run.stop_message == "Hook 'tests.clerk_hooks.Spy' cannot mutate 'step' on 'before_step'."


def test_the_diagnostic_contract_is_on_record_and_the_run_goes_on(spied):
    Agent.objects.update(hook_contract="diagnostics")
    DO["before_tool_use"] = change(call_id="other")
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert run.state == "succeeded"
    assert event(run, "hook.contract_violated") == {
        "hook": "tests.clerk_hooks.Spy", "point": "before_tool_use", "field": "call_id",
    }  # fmt: skip
    assert spied.execution(run, "a").result_status == "ok"


def test_without_a_contract_nothing_is_on_record(spied):
    Agent.objects.update(hook_contract="off")
    DO["before_step"] = change(step=9)
    run = spied.run(says("done"))
    assert run.state == "succeeded"
    assert "hook.contract_violated" not in types(run)


def test_a_stop_in_the_middle_keeps_what_is_done_and_answers_what_is_open(spied):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    DO["after_tool_use"] = lambda context: raises(StopRun("Seen enough."))(context) if context.name == "label" else None
    run = spied.run(
        calls(call("a", "look_up", what="x"), call("b", "label", text="red"), call("c", "label", text="blue")),
        says("done"),
    )
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "stop_requested", "hook:tests.clerk_hooks.Spy")
    found = [spied.execution(run, id) for id in "abc"]
    assert [execution.state for execution in found] == ["finished", "finished", "cancelled"]
    assert [execution.result_status for execution in found] == ["ok", "ok", ""]
    assert effects_of("label") == [{"text": "red"}]
    assert run.step_count == 1


def test_a_stop_that_a_worker_did_not_live_to_carry_out_is_carried_out_by_the_next(spied, monkeypatch):
    DO["after_tool_use"] = raises(StopRun("Seen enough.", {"n": 1}, "the clock"))
    run = spied.start(calls(call("a", "look_up", what="x")), says("done"))

    def dies(*args):
        raise runs.LeaseLost("killed")

    with monkeypatch.context() as patch:
        patch.setattr(concluding, "end_by", dies)
        loop.drive(run.pk)
    Run.objects.update(state="queued", lease_token=None, lease_until=None)
    run = spied.drive(run)
    assert (run.state, run.stop_message, run.step_count) == ("stopped", "Seen enough.", 1)
    assert (run.stop_source, event(run, "run.stopped")["context"]) == ("the clock", {"n": 1})


def test_a_tool_can_stop_the_run_and_its_finished_siblings_stay(spied):
    run = spied.run(
        calls(
            call("a", "look_up", what="x"), call("b", "hand_over", to="Dana"), call("c", "pay", account="a", amount=1)
        ),
        says("done"),
    )
    assert (run.state, run.stop_reason, run.stop_source) == ("stopped", "stop_requested", "tool:hand_over")
    assert run.stop_message == "Handed over to Dana."
    assert event(run, "run.stopped")["context"] == {"to": "Dana"}
    assert [spied.execution(run, id).state for id in "abc"] == ["finished", "finished", "cancelled"]
    assert told(spied, run, "a") != ""
    assert Approval.objects.count() == 0
    assert [c.call_id for point, c in clerk_hooks.SEEN if point == "after_tool_use"] == ["a"]


def test_a_hook_that_breaks_after_a_call_has_run_keeps_its_result_and_fails_the_run(spied):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    DO["after_tool_use"] = raises(ValueError("x"))
    run = spied.run(calls(call("a", "label", text="red"), call("b", "label", text="blue")), says("done"))
    assert (run.state, run.stop_reason) == ("failed", "error")
    assert json.loads(spied.execution(run, "a").result_text) == "red"
    assert effects_of("label") == [{"text": "red"}]
    assert "on_error" in clerk_hooks.points()


# --- Behind a step, whichever worker ---------------------------------------------------------------


def taken_over(clerk, run):
    """Another worker finds the run as the first one left it."""
    Run.objects.update(state="queued", lease_token=None, lease_until=None, wake_at=None)
    return clerk.drive(run)


def steps_over():
    return [context.step for point, context in clerk_hooks.SEEN if point == "after_step"]


def test_hooks_behind_a_step_run_though_its_worker_died_before_them(spied, monkeypatch):
    run = spied.start(calls(call("a", "look_up", what="x")), says("done"))
    with monkeypatch.context() as patch:
        patch.setattr(points, "after_step", raises(runs.LeaseLost("killed")))
        loop.drive(run.pk)
    assert spied.execution(run, "a").result_status == "ok"
    assert taken_over(spied, run).state == "succeeded"
    assert steps_over() == [1, 2]


def test_hooks_behind_a_step_do_not_run_again_for_the_next_worker(spied, monkeypatch):
    run = spied.start(calls(call("a", "look_up", what="x")), says("done"))
    with monkeypatch.context() as patch:
        patch.setattr(points, "before_step", lambda state: state.steps and raises(runs.LeaseLost("killed"))())
        loop.drive(run.pk)
    assert steps_over() == [1]
    assert taken_over(spied, run).state == "succeeded"
    assert steps_over() == [1, 2]


def test_hooks_behind_the_last_step_do_not_run_again_when_its_worker_died_before_the_end(spied, monkeypatch):
    run = spied.start(says("done"))
    with monkeypatch.context() as patch:
        patch.setattr(concluding, "end", raises(runs.LeaseLost("killed")))
        loop.drive(run.pk)
    assert (taken_over(spied, run).state, steps_over()) == ("succeeded", [1])


def test_a_hook_that_wants_more_is_not_asked_again_when_the_model_fails_and_another_worker_comes(spied, monkeypatch):
    DO["after_step"] = lambda context: dataclasses.replace(context, continue_run=steps_over() == [1])
    run, real, failures = spied.start(says("half"), says("whole")), ScriptedDriver.next_step, [1]

    def fails_once(self, request):
        if request.step == 2 and failures:
            failures.clear()
            raise ModelError("busy", retryable=True, retry_after=60)
        return real(self, request)

    monkeypatch.setattr(ScriptedDriver, "next_step", fails_once)
    assert loop.drive(run.pk) == loop.Again(60)
    run = taken_over(spied, run)
    assert (run.answer, steps_over()) == ("whole", [1, 2])


def test_a_hook_whose_worker_died_under_it_runs_again_and_what_it_stops_is_stopped(spied, monkeypatch):
    DO["after_step"] = raises(StopRun("Enough."))
    run = spied.start(calls(call("a", "look_up", what="x")), says("never said"))
    with monkeypatch.context() as patch:
        patch.setattr(concluding, "end_by", raises(runs.LeaseLost("killed")))
        loop.drive(run.pk)
    run = taken_over(spied, run)
    assert (run.state, run.stop_message, steps_over()) == ("stopped", "Enough.", [1, 1])


def test_what_hooks_behind_a_step_have_said_is_on_record_only_where_there_are_any(clerk, spied):
    run = spied.run(says("done"))
    assert event(run, "step.hooks_ran") == {"step": 1, "continues": False}
    Agent.objects.update(hooks=[])
    assert "step.hooks_ran" not in types(spied.run(says("done")))


# --- Going on ------------------------------------------------------------------------------------


def test_a_hook_can_ask_for_another_step_after_a_final_one(spied):
    DO["after_step"] = lambda context: dataclasses.replace(context, continue_run=context.step == 1)
    run = spied.run(says("half"), says("whole"))
    assert (run.state, run.answer, run.step_count) == ("succeeded", "whole", 2)
    request = clerk_hooks.told("before_inference_request").request
    assert request.messages[-2:] == (AssistantMessage("half"), UserMessage(GO_ON))


def test_a_hook_that_always_asks_for_more_is_stopped_by_the_step_limit(spied):
    Agent.objects.update(max_steps=3)
    DO["after_step"] = change(continue_run=True)
    run = spied.run(*[says(str(n)) for n in range(9)])
    assert run.step_count == 3
    assert run.stop_reason == "steps_limit"


# --- The model -----------------------------------------------------------------------------------


def ask_model(clerk, **fields):
    """A run that asks for its steps over HTTP."""
    Agent.objects.update(driver="tool_calling", model=DIALECT.model, **fields)
    return actions.start_run(actions.NewRun(agent="clerk", input="Do it."), clerk.starter)


def test_the_provider_is_sent_what_hooks_make_of_a_request_and_the_step_keeps_what_they_make_of_the_reply(
    spied, provider
):
    provider.answer(Answer(DIALECT.reply("The card is 4111.")))
    DO["before_inference_request"] = lambda c: dataclasses.replace(
        c, request=dataclasses.replace(c.request, instructions="Be brief.")
    )
    DO["after_inference_response"] = lambda c: dataclasses.replace(
        c, reply=dataclasses.replace(c.reply, text="The card is hidden.")
    )
    run = spied.drive(ask_model(spied))
    assert DIALECT.read(provider.questions[0]).instructions == "Be brief."
    assert run.answer == run.steps.get().text == "The card is hidden."
    asked, answered = clerk_hooks.told("before_inference_request"), clerk_hooks.told("after_inference_response")
    assert asked.inference_id == answered.inference_id != ""
    assert answered.request.instructions == "Be brief."


def test_a_script_goes_past_the_same_hooks_as_a_model(spied):
    DO["after_inference_response"] = lambda c: dataclasses.replace(c, reply=Reply(text=c.reply.text.upper()))
    run = spied.run(says("done"))
    assert run.answer == "DONE"
    assert clerk_hooks.told("before_inference_request").request.messages == (UserMessage("Do it."),)


def test_a_hook_cannot_talk_away_what_a_reply_has_cost(spied):
    DO["after_inference_response"] = lambda c: dataclasses.replace(c, reply=Reply(text="free"))
    run = spied.run(says("done"))
    assert (run.input_tokens, run.output_tokens) == (10, 5)


def test_what_a_provider_wants_back_unchanged_is_dropped_with_the_words_it_belongs_to(spied):
    state = RunState.load(runs.claim(spied.start(says("done")).pk))
    points.begin(state)
    given = Reply(text="a", provider_parts=[{"signed": True}])

    def kept(**fields):
        DO["after_inference_response"] = lambda c: dataclasses.replace(c, reply=dataclasses.replace(c.reply, **fields))
        return points.inference(state, llm.Request("m", "", ()), lambda _: given).provider_parts

    assert kept(text="b") is None
    assert kept(reasoning="r") == [{"signed": True}]


def test_a_tool_that_a_hook_shows_to_the_model_is_not_disclosed_by_that(spied):
    Tool.objects.filter(name="label").update(enabled=False)
    shown = ToolSpec("label", "Put a label on something.", {"type": "object"})
    DO["before_inference_request"] = lambda c: dataclasses.replace(
        c, request=dataclasses.replace(c.request, tools=(*c.request.tools, shown))
    )
    run = spied.run(calls(call("a", "label", text="red")), says("done"))
    assert spied.execution(run, "a").reason == "tool_disabled"


def test_a_call_without_an_id_is_given_one(spied):
    added = Reply(tool_calls=(ToolCall("", "look_up", '{"what": "x"}'),))
    DO["after_inference_response"] = lambda c: dataclasses.replace(c, reply=added) if c.step == 1 else None
    run = spied.run(says("one"), says("two"))
    (execution,) = run.executions.all()
    assert execution.call_id
    assert (
        clerk_hooks.told("before_tool_use").call_id == execution.call_id == clerk_hooks.told("after_tool_use").call_id
    )
    assert run.answer == "two"


@pytest.mark.parametrize("point", ["before_inference_request", "after_inference_response"])
@pytest.mark.parametrize(("error", "state"), [(StopRun("No."), "stopped"), (ValueError("x"), "failed")])
def test_hooks_around_the_model_can_stop_and_fail_a_run(spied, point, error, state):
    DO[point] = raises(error)
    run = spied.run(says("done"))
    assert (run.state, run.step_count) == (state, 0)


# --- Before a call -------------------------------------------------------------------------------


def test_hooks_change_a_call_by_priority_and_what_they_make_of_it_runs(clerk):
    paths = [f"tests.clerk_hooks.{name}" for name in ("ten", "hundred", "fifty")]
    Agent.objects.update(hooks=paths, hook_contract="strict")
    run = clerk.run(calls(call("a", "look_up", what="x")), says("done"))
    assert effects_of("look_up") == [{"what": "x hundred fifty ten"}]
    changed = event(run, "tool_call.changed_by_hook")
    assert changed["hooks"] == [f"tests.clerk_hooks.{name}" for name in ("hundred", "fifty", "ten")]
    assert changed["before_digest"] != changed["after_digest"]
    assert "x hundred" not in json.dumps(changed)


def test_the_row_keeps_what_the_model_proposed_and_the_model_reads_its_own_words_again(spied):
    DO["before_tool_use"] = change(name="look_up", arguments={"what": "y"})
    run = spied.run(calls(call("a", "read_mail", number=3)), says("done"))
    execution = spied.execution(run, "a")
    assert (execution.name, json.loads(execution.arguments_text)) == ("look_up", {"what": "y"})
    assert (execution.proposed_name, execution.proposed_text) == ("read_mail", '{"number":3}')
    _, asked, answered, *_ = messages(run)
    assert asked.tool_calls == (ToolCall("a", "read_mail", '{"number":3}'),)
    assert isinstance(answered, ToolMessage)
    assert (answered.call_id, answered.name, answered.ok) == ("a", "read_mail", True)
    assert "was changed before it ran" in answered.text
    assert '{"found": "y"}' in answered.text


def test_a_call_that_no_hook_changed_keeps_its_text_to_the_letter(spied):
    text = '{ "what" :  "x" }'
    run = spied.run(calls({"id": "a", "name": "look_up", "arguments": text}), says("done"))
    execution = spied.execution(run, "a")
    assert (execution.arguments_text, execution.proposed_name, execution.proposed_text) == (text, "", "")
    assert "tool_call.changed_by_hook" not in types(run)


def test_a_call_that_a_hook_made_consequential_waits_for_a_person_who_sees_what_the_hook_made(spied, dana):
    DO["before_tool_use"] = on_call("look_up", name="pay", arguments={"account": "ana", "amount": 20})
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert (run.waiting_for, EFFECTS) == ("approval", [])
    (approval,) = spied.open(run)
    assert json.loads(approval.arguments_text) == {"account": "ana", "amount": 20, "memo": ""}
    spied.decide(approval, dana)
    assert spied.drive(run).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 20.0}]
    assert "A person changed" not in told(spied, run, "a")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "no_such_tool"}, "tool_not_disclosed"),
        ({"name": "label", "arguments": {"text": "red"}}, "tool_disabled"),
        ({"name": "pay", "arguments": {"account": "ana", "amount": 5000}}, "invalid_arguments"),
        ({"name": "pay", "arguments": {"account": "ana"}}, "missing_arguments"),
        ({"name": "send", "arguments": {"to": "ana"}}, "policy_denied"),
    ],
)
def test_what_a_hook_makes_of_a_call_passes_every_check_or_does_not_run(spied, fields, reason):
    Tool.objects.filter(name="label").update(enabled=False)
    Rule.objects.create(name="no-sending", tool="send", verdict="deny")
    DO["before_tool_use"] = change(**fields)
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    execution = spied.execution(run, "a")
    assert (execution.result_status, execution.reason) == ("refused", reason)
    assert EFFECTS == []


def test_a_hook_sees_a_malformed_call_and_can_mend_it(spied):
    DO["before_tool_use"] = lambda c: dataclasses.replace(c, arguments={"what": "x"}) if c.arguments is None else None
    run = spied.run(calls({"id": "a", "name": "look_up", "arguments": '{"what": '}), says("done"))
    assert spied.execution(run, "a").result_status == "ok"
    assert spied.execution(run, "a").proposed_text == '{"what": '


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object(), "\ud800"])
def test_arguments_that_are_not_plain_json_fail_the_run_and_nothing_runs(spied, value):
    Agent.objects.update(hook_contract="off")
    DO["before_tool_use"] = change(arguments={"what": value})
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert (run.state, EFFECTS) == ("failed", [])
    assert "plain JSON" in run.stop_message


def test_a_call_that_a_hook_blocks_is_answered_and_told(spied):
    DO["before_tool_use"] = on_call("look_up", blocked=True, message="Not on Sundays.")
    run = spied.run(calls(call("a", "look_up", what="x"), call("b", "read_mail")), says("done"))
    execution = spied.execution(run, "a")
    assert (execution.state, execution.result_status, execution.reason) == ("finished", "refused", "blocked_by_hook")
    assert execution.was_blocked
    assert told(spied, run, "a") == "Not executed (blocked_by_hook): Not on Sundays."
    assert effects_of("look_up") == []
    assert (run.state, spied.execution(run, "b").result_status) == ("succeeded", "ok")
    assert not spied.execution(run, "b").was_blocked


def test_a_blocked_call_is_neither_started_nor_completed_and_has_no_hook_behind_it(spied):
    DO["before_tool_use"] = change(blocked=True)
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert [type for type in types(run) if type.startswith("tool_call.")] == ["tool_call.proposed", "tool_call.blocked"]
    assert event(run, "tool_call.blocked")["hooks"] == ["tests.clerk_hooks.Spy"]
    assert "after_tool_use" not in clerk_hooks.points()
    assert spied.execution(run, "a").message == "A hook blocked this call. It did not run."


def test_a_block_ends_the_run_where_the_agent_says_so_and_leaves_no_call_without_an_answer(spied):
    Agent.objects.update(stop_on_tool_block=True)
    DO["before_tool_use"] = on_call("read_mail", blocked=True, message="Private.")
    run = spied.run(
        calls(call("a", "look_up", what="x"), call("b", "read_mail"), call("c", "pay", account="ana", amount=1)),
        says("done"),
    )
    assert (run.state, run.stop_reason, run.step_count) == ("stopped", "blocked_by_hook", 1)
    found = [spied.execution(run, id) for id in "abc"]
    assert [(execution.result_status, execution.reason) for execution in found] == [
        ("ok", ""), ("refused", "blocked_by_hook"), ("refused", "cancelled"),
    ]  # fmt: skip
    assert Approval.objects.count() == 0
    assert "Private." in run.stop_message


def test_a_block_ends_the_run_after_a_person_has_decided_about_the_call_before_it(spied, dana):
    Agent.objects.update(stop_on_tool_block=True)
    DO["before_tool_use"] = on_call("read_mail", blocked=True)
    run = spied.run(calls(call("a", "pay", account="ana", amount=1), call("b", "read_mail")), says("done"))
    (approval,) = spied.open(run)
    spied.decide(approval, dana)
    assert spied.drive(run).stop_reason == "blocked_by_hook"
    assert effects_of("pay") == [{"account": "ana", "amount": 1.0}]


@pytest.mark.parametrize(("error", "state"), [(StopRun("No."), "stopped"), (ValueError("x"), "failed")])
def test_a_hook_that_raises_at_a_call_ends_the_run_with_nothing_run_and_everything_answered(spied, error, state):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    DO["before_tool_use"] = lambda c: raises(error)(c) if c.name == "label" else None
    run = spied.run(calls(call("a", "look_up", what="x"), call("b", "label", text="red")), says("done"))
    assert (run.state, run.step_count, run.input_tokens) == (state, 1, 10)
    assert [spied.execution(run, id).reason for id in "ab"] == ["cancelled", "cancelled"]
    assert EFFECTS == []


@pytest.mark.parametrize(("error", "state"), [(StopRun("No.", {"n": 1}), "stopped"), (ValueError("x"), "failed")])
@pytest.mark.parametrize("rounds", [1, 50])
def test_what_a_hook_raised_at_a_call_ends_the_run_though_its_worker_died_behind_the_step(
    spied, monkeypatch, error, state, rounds
):
    Agent.objects.update(max_iterations=rounds)
    DO["before_tool_use"] = raises(error)
    run = spied.start(calls(call("a", "look_up", what="x")), says("never said"))
    with monkeypatch.context() as patch:
        patch.setattr(concluding, "end_by", raises(runs.LeaseLost("killed")))
        loop.drive(run.pk)
    assert Run.objects.get().step_count == 1
    Run.objects.update(state="queued", lease_token=None, lease_until=None)
    DO.clear()
    run = spied.drive(run)
    assert (run.state, run.step_count, run.stop_source) == (state, 1, "hook:tests.clerk_hooks.Spy")
    assert event(run, f"run.{state}")["context"] == ({"n": 1} if state == "stopped" else {})
    assert EFFECTS == []


def test_a_hook_answers_in_a_tools_place_even_of_one_there_is_not(spied):
    made = ToolResult(data={"cached": 1})
    DO["before_tool_use"] = on_call("weather", result=made)
    run = spied.run(calls(call("a", "weather", city="Oslo"), call("b", "look_up", what="x")), says("done"))
    execution = spied.execution(run, "a")
    assert (execution.result_status, json.loads(execution.result_text)) == ("ok", {"cached": 1})
    assert execution.started_at is None
    assert not execution.was_blocked
    assert "untrusted content" in told(spied, run, "a")


def test_what_a_hook_hands_on_reaches_the_next_call_of_the_step_and_the_tool(spied):
    DO["before_tool_use"] = lambda c: dataclasses.replace(c, shared={"n": c.shared.get("n", 0) + 1})
    run = spied.run(calls(call("a", "look_up", what="x"), call("b", "shared")), says("done"))
    assert json.loads(spied.execution(run, "b").result_text) == "{'n': 2}"


# --- After a call --------------------------------------------------------------------------------


def test_a_hook_replaces_a_result_and_the_row_keeps_what_the_tool_gave(spied):
    DO["after_tool_use"] = lambda c: dataclasses.replace(c, result=dataclasses.replace(c.result, data={"found": "***"}))
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    execution = spied.execution(run, "a")
    assert json.loads(execution.result_text) == {"found": "***"}
    assert json.loads(execution.raw_result_text) == {"found": "x"}
    assert told(spied, run, "a") == '{"found": "***"}'
    assert clerk_hooks.told("after_tool_use").arguments == {"what": "x"}


def test_a_result_that_no_hook_changed_is_kept_once(spied):
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert spied.execution(run, "a").raw_result_text == ""


def test_an_outcome_that_nobody_knows_is_shown_to_no_hook(spied):
    Rule.objects.create(name="sending", tool="send", verdict="allow")
    DO["after_tool_use"] = change(result=ToolResult(data="sent"))
    run = spied.run(calls(call("a", "send", to="ana", how="lost")), says("done"))
    assert (run.state, run.waiting_for) == ("waiting", "outcome")
    assert "after_tool_use" not in clerk_hooks.points()


def test_a_failure_in_a_call_does_not_fail_the_run(spied):
    run = spied.run(calls(call("a", "fail", how="never")), says("sorry"))
    assert (run.state, run.had_tool_errors) == ("succeeded", True)
    assert clerk_hooks.told("after_tool_use").result.status == "fatal_error"


def test_the_chain_of_a_run_full_of_hooks_holds(spied):
    DO["before_tool_use"] = change(arguments={"what": "y"})
    run = spied.run(calls(call("a", "look_up", what="x")), says("done"))
    assert ledger.verify(ledger.run_chain(run.pk))[1] is None
