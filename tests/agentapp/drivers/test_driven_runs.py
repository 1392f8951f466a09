"""Whole runs with a real driver, from the first question to the end, with a provider on the loopback interface."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agentapp import actions, drivers, executions, loop, trace
from agentapp.api.tool_executions import execution_out
from agentapp.compilers import Earlier, compile_messages
from agentapp.messages import AssistantMessage, UserMessage
from agentapp.models import Agent, Run, Step, ToolExecution
from agentapp.sweep import sweep
from agentapp.timeline import timeline
from agentapp.transcript import load_steps
from approvals.models import Event
from approvals.sealed import opens
from tests.agentapp.drivers.binding import Counting
from tests.clerk_tools import effects_of
from tests.wire import DIALECTS, Answer, ProviderServer, Question

DIALECT = DIALECTS["openai"]
LOOK = {"thought": "I look.", "type": "call_tool", "tool": "look_up", "args": {"what": "kettle", "why": None}}
FINAL = {"thought": "Found.", "type": "final_answer", "answer": "It is a kettle."}


@pytest.fixture
def asking(clerk: Any) -> Any:
    """The clerk with a model to ask instead of a script."""
    Agent.objects.update(driver="tool_calling", model=DIALECT.model)
    return clerk


@pytest.fixture
def thinking(asking: Any) -> Any:
    Agent.objects.update(driver="react")
    return asking


def start(clerk: Any, **more: Any) -> Run:
    return actions.start_run(actions.NewRun(agent=clerk.agent.name, input="What is it?", **more), clerk.starter)


def run(clerk: Any, **more: Any) -> Run:
    return clerk.drive(start(clerk, **more))


def chat_only(*decisions: Any) -> Any:
    """A server that does not know functions: it refuses requests that mention them."""
    left = [decision if isinstance(decision, str) else json.dumps(decision) for decision in decisions]

    def answer(question: Question) -> Answer:
        if {"tools", "tool_choice", "functions"} & set(question.body):
            return Answer(DIALECT.error("Unknown parameter: tools", "invalid_request_error"), status=400)
        if any(message["role"] == "tool" or "tool_calls" in message for message in question.body["messages"]):
            return Answer(DIALECT.error("Unknown role: tool", "invalid_request_error"), status=400)
        return Answer(DIALECT.reply(left.pop(0)))

    return answer


def events(found: Run, prefix: str) -> list[Event]:
    return list(Event.objects.filter(run_id=found.pk, type__startswith=prefix).order_by("seq"))


# --- Without function calling ------------------------------------------------------------------


def test_a_model_without_functions_calls_a_tool_and_answers(thinking: Any, provider: ProviderServer) -> None:
    provider.answer_with = chat_only(LOOK, FINAL)
    found = run(thinking)
    assert (found.state, found.answer) == ("succeeded", "It is a kettle.")
    first, last = found.steps.order_by("number")
    assert (first.text, last.text, last.reasoning) == ("I look.", "It is a kettle.", "Found.")
    execution = ToolExecution.objects.get(run=found)
    assert (execution.name, execution.result_status, execution.arguments_text) == (
        "look_up",
        "ok",
        '{"what": "kettle"}',
    )
    assert execution.tool_id is not None
    assert effects_of("look_up") == [{"what": "kettle"}]
    assert provider.questions[1].body["messages"][-1]["content"] == 'Observation: {"found": "kettle"}'
    assert [event.data["type"] for event in events(found, "step.decided")] == ["call_tool", "final_answer"]


def test_a_model_without_functions_meets_the_same_gate(thinking: Any, provider: ProviderServer, dana: Any) -> None:
    pay = {"type": "call_tool", "tool": "pay", "args": {"account": "ana", "amount": 5}}
    provider.answer_with = chat_only(pay, FINAL)
    found = run(thinking)
    assert (found.state, found.waiting_for, effects_of("pay")) == ("waiting", "approval", [])
    (approval,) = thinking.open(found)
    thinking.decide(approval, dana)
    assert thinking.drive(found).state == "succeeded"
    assert effects_of("pay") == [{"account": "ana", "amount": 5}]


def test_what_a_tool_refuses_is_an_observation_and_the_run_goes_on(thinking: Any, provider: ProviderServer) -> None:
    provider.answer_with = chat_only({"type": "call_tool", "tool": "fail", "args": {"how": "never"}}, FINAL)
    assert run(thinking).state == "succeeded"
    assert provider.questions[1].body["messages"][-1]["content"].startswith("Observation: ERROR - Error (fatal_error")


@pytest.mark.parametrize(
    ("decision", "reason", "event", "told"),
    [
        ("{bad json", "decision_extraction", "decision.extraction_failed", "call_tool or final_answer"),
        (
            {"type": "call_tool", "tool": "look_up", "args": {}},
            "decision_validation",
            "decision.validation_failed",
            "Required arguments are missing: what.",
        ),
        (
            {"type": "call_tool", "tool": "shell", "args": {}},
            "decision_validation",
            "decision.validation_failed",
            "Requested tool is not available.",
        ),
    ],
)
def test_a_model_that_cannot_decide_fails_the_run_and_is_recorded_once(
    thinking: Any, provider: ProviderServer, decision: Any, reason: str, event: str, told: str
) -> None:
    provider.answer_with = chat_only(*[decision] * 3)
    found = run(thinking)
    assert (found.state, found.stop_reason) == ("failed", "error")
    assert told in found.stop_message
    step = Step.objects.get(run=found)
    assert (step.error, step.input_tokens, found.input_tokens) == (reason, 300, 300)
    execution = ToolExecution.objects.get(run=found)
    assert (execution.tool, execution.name, execution.arguments_text) == (None, reason, "{}")
    assert (execution.state, execution.result_status, execution.reason) == ("finished", "fatal_error", reason)
    assert told in execution.message
    assert not found.had_tool_errors
    (recorded,) = events(found, "decision.")
    assert (recorded.type, recorded.data["attempts"]) == (event, 3)
    assert opens(execution.message, execution.salt, recorded.data["message"])  # the ledger has its digest
    assert not events(found, "tool_call.")
    assert effects_of("look_up") == []


@pytest.mark.parametrize(("decision", "reason"), [(LOOK, "decision_validation"), ("?", "decision_extraction")])
def test_out_of_rounds_a_model_that_does_not_answer_is_stopped_by_the_limit(
    thinking: Any, provider: ProviderServer, decision: Any, reason: str
) -> None:
    Agent.objects.update(max_iterations=1)
    provider.answer_with = chat_only(LOOK, *[decision] * 3)
    found = run(thinking)
    assert (found.state, found.stop_reason, found.stop_source) == ("stopped", "steps_limit", "max_iterations")
    assert "1/1" in found.stop_message
    assert (found.answer, found.answer_is_partial) == ("", False)
    assert found.steps.get(number=2).error == reason
    assert effects_of("look_up") == [{"what": "kettle"}]


def test_a_step_and_its_failure_are_stored_together_or_not_at_all(
    thinking: Any, provider: ProviderServer, monkeypatch: Any
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(executions, "record_failed_decision", broken)
    provider.answer_with = chat_only(*["?"] * 3)
    found = run(thinking)
    assert found.state == "failed"
    assert (Step.objects.count(), ToolExecution.objects.count(), found.step_count) == (0, 0, 0)


def test_the_trace_shows_a_failed_decision_in_the_place_of_a_call(thinking: Any, provider: ProviderServer) -> None:
    provider.answer_with = chat_only(*["?"] * 3)
    found = run(thinking)
    [step] = trace.steps_of(found)
    [shown] = [execution_out(execution) for execution in step.executions.all()]
    assert (shown.tool, shown.state, shown.result_status, shown.reason) == (
        "decision_extraction",
        "finished",
        "fatal_error",
        "decision_extraction",
    )
    rows = timeline(found, timezone.now()).rows
    assert [(row.kind, row.name, row.mark and row.mark.word, row.failed) for row in rows[1:]] == [
        ("model", "?", "No decision", False),
        ("call", "decision_extraction", "Failed", True),
    ]


def test_a_decision_that_failed_is_no_call_in_any_history(thinking: Any, provider: ProviderServer) -> None:
    provider.answer_with = chat_only(LOOK, *["?"] * 3)
    found = run(thinking)
    messages = compile_messages(found, Earlier(), load_steps(found))
    assert [call.name for m in messages if isinstance(m, AssistantMessage) for call in m.tool_calls] == ["look_up"]
    assert messages[-2:] == (
        AssistantMessage("Thought: decision extraction failed."),
        UserMessage(f"Observation: ERROR - {found.stop_message}"),
    )


def test_a_conversation_goes_on_after_a_decision_that_failed(thinking: Any, provider: ProviderServer) -> None:
    provider.answer_with = chat_only(*["?"] * 3, FINAL)
    assert run(thinking, conversation="ticket-1").state == "failed"
    assert run(thinking, conversation="ticket-1").state == "succeeded"


def test_people_see_what_was_thought_and_why_nothing_was_decided(
    thinking: Any, provider: ProviderServer, client: Client, mia: Any
) -> None:
    client.force_login(mia)
    provider.answer_with = chat_only(FINAL, *["<b>no</b> {bad json"] * 3)
    answered, failed = run(thinking), run(thinking)
    page = client.get(f"/runs/{answered.pk}/?step=1").content.decode()
    assert "Found." in page
    page = client.get(f"/runs/{failed.pk}/?step=1").content.decode()
    assert "This reply led to no decision: the reply contains no decision." in page
    assert "&lt;b&gt;no&lt;/b&gt; {bad json" in page
    assert "No decision</span>" in page
    assert "Asked for" not in page
    call = client.get(f"/runs/{failed.pk}/?step=1&call=0").content.decode()
    assert "call_tool or final_answer" in call


# --- The choice of tools -----------------------------------------------------------------------


def native(*replies: Any) -> list[Answer]:
    return [Answer(DIALECT.reply("", reply) if isinstance(reply, list) else DIALECT.reply(reply)) for reply in replies]


LOOKS = [("c1", "look_up", {"what": "x"})]


def choices(provider: ProviderServer) -> list[Any]:
    return [question.body.get("tool_choice") for question in provider.questions]


@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("look_up", {"type": "function", "function": {"name": "look_up"}}),
    ],
)
def test_a_forced_choice_counts_until_tools_were_called(
    asking: Any, provider: ProviderServer, choice: str, first: Any
) -> None:
    Agent.objects.update(tool_choice=choice)
    provider.answer(*native(LOOKS, "Done."))
    assert run(asking).state == "succeeded"
    assert choices(provider) == [first, "auto"]


def test_a_forced_choice_may_be_kept(asking: Any, provider: ProviderServer) -> None:
    Agent.objects.update(tool_choice="required", reset_tool_choice=False)
    provider.answer(*native(LOOKS, "Done."))
    run(asking)
    assert choices(provider) == ["required", "required"]


def test_no_tools_stays_no_tools(asking: Any, provider: ProviderServer) -> None:
    Agent.objects.update(tool_choice="none")
    provider.answer(*native(LOOKS, "Done."))
    run(asking)
    assert choices(provider) == ["none", "none"]


def test_a_chosen_tool_that_is_not_disclosed_is_not_asked_for(asking: Any, provider: ProviderServer) -> None:
    Agent.objects.update(tool_choice="shell")
    provider.answer(*native("Done."))
    run(asking)
    assert choices(provider) == ["auto"]


def test_an_agent_without_tools_says_nothing_of_a_choice(asking: Any, provider: ProviderServer) -> None:
    Agent.objects.update(tool_choice="required")
    asking.agent.tools.clear()
    provider.answer(*native("Done."))
    run(asking)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(provider.questions[0].body)


def test_a_model_is_told_the_tools_its_step_discloses_and_no_others(asking: Any, provider: ProviderServer) -> None:
    provider.answer(*native([("c1", "shell", {})], "Done."))
    found = run(asking)
    for question, step in zip(provider.questions, found.steps.order_by("number"), strict=True):
        assert sorted(DIALECT.read(question).tools) == step.disclosed_tools
    assert asking.execution(found, "c1").reason == "tool_not_disclosed"


# --- What a reply repeats, and what it costs ----------------------------------------------------


def test_a_text_that_repeats_a_call_is_dropped_and_on_record(asking: Any, provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply('{"what":"x"}', LOOKS)), *native("Done."))
    found = run(asking)
    first = found.steps.get(number=1)
    assert (first.text, first.input_tokens) == ("", 100)
    (noted,) = events(found, "step.content_dropped")
    assert noted.data == {"step": 1, "characters": 12, "call": "c1"}
    # The call, then its result, without any text of the model's between or next to them.
    sent = provider.questions[1].body["messages"]
    assert [message["role"] for message in sent[-2:]] == ["assistant", "tool"]
    assert not sent[-2].get("content")


def test_calls_without_end_are_refused_and_leave_no_rows(asking: Any, provider: ProviderServer) -> None:
    many = [(f"c{number}", "look", {"what": str(number)}) for number in range(1000)]
    provider.answer(Answer(DIALECT.reply("", many)), *native("Done."))
    found = run(asking)
    rows = ToolExecution.objects.filter(run=found)
    assert rows.count() == 128
    assert rows.filter(reason="call_limit_exceeded").count() == 96
    assert "Propose fewer" in json.dumps(provider.questions[1].body)
    (noted,) = events(found, "step.calls_dropped")
    assert noted.data == {"step": 1, "kept": 128, "dropped": 872}
    assert found.state == Run.State.SUCCEEDED


def test_nor_do_those_of_a_driver_of_ones_own(asking: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(drivers.DRIVERS, "endless", "tests.agentapp.drivers.binding.Endless")
    Agent.objects.update(driver="endless", model="")
    found = run(asking)
    rows = ToolExecution.objects.filter(run=found)
    assert rows.count() == 128
    assert rows.filter(reason="call_limit_exceeded").count() == 96
    (noted,) = events(found, "step.calls_dropped")
    assert noted.data == {"step": 1, "kept": 128, "dropped": 872}
    assert len(events(found, "step.recorded")[0].data["calls"]) == 128
    assert (found.state, found.answer) == (Run.State.SUCCEEDED, "Done.")


def test_a_text_beside_a_call_is_kept_in_the_history(asking: Any, provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.reply("Calling tool", LOOKS)), *native("Done."))
    found = run(asking)
    assert found.steps.get(number=1).text == "Calling tool"
    assert "Calling tool" in json.dumps(provider.questions[1].body)
    assert not events(found, "step.content_dropped")


# --- Trying again ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_provider_that_may_recover_is_asked_again_from_the_queue(
    asking: Any, provider: ProviderServer, status: int
) -> None:
    failure = DIALECT.error("Later.", "later")
    provider.answer(Answer(failure, status=status, headers={"Retry-After": "7"}))
    found = start(asking)
    assert loop.drive(found.pk) == loop.Again(7)
    found.refresh_from_db()
    assert (found.state, found.model_failures, found.step_count) == ("queued", 1, 0)
    provider.answer(*native("Done."))
    Run.objects.filter(pk=found.pk).update(wake_at=None)
    assert asking.drive(found).state == "succeeded"
    assert found.model_failures == 0


def test_without_a_wish_of_the_providers_the_pause_grows_and_is_bounded(
    asking: Any, provider: ProviderServer, settings: Any
) -> None:
    settings.MODEL_ATTEMPTS = 10
    settings.BREAKER_THRESHOLD = 100
    found = start(asking)
    delays = []
    for _ in range(9):
        provider.answer(Answer(DIALECT.error("Later.", "later"), status=503))
        again = loop.drive(found.pk)
        assert again is not None
        delays.append(again.delay)
        Run.objects.filter(pk=found.pk).update(wake_at=None)
    for failures, delay in enumerate(delays, start=1):
        assert min(2**failures / 2, 32) <= delay <= min(2**failures, 60)
    provider.answer(Answer(DIALECT.error("Later.", "later"), status=503))
    assert loop.drive(found.pk) is None
    found.refresh_from_db()
    assert (found.state, found.stop_reason) == ("failed", "retry_limit")


def test_a_long_wish_of_the_providers_is_kept_by_the_row_and_the_sweep(asking: Any, provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.error("Later.", "later"), status=429, headers={"Retry-After": "300"}))
    found = start(asking)
    before = timezone.now()
    again = loop.drive(found.pk)
    # No queue message lasts longer than a minute; a run that is not due yet is left alone.
    assert again == loop.Again(60)
    found.refresh_from_db()
    assert found.wake_at is not None
    assert found.wake_at >= before + timedelta(seconds=290)
    assert loop.drive(found.pk) is None
    assert found.pk not in sweep()
    Run.objects.filter(pk=found.pk).update(wake_at=before)
    assert found.pk in sweep()


def test_a_request_that_was_wrong_is_not_made_again(asking: Any, provider: ProviderServer) -> None:
    provider.answer(Answer(DIALECT.error("No.", "invalid_request_error"), status=400))
    assert run(asking).state == "failed"
    assert len(provider.questions) == 1


# --- A driver of one's own ---------------------------------------------------------------------


def test_a_driver_of_ones_own_is_one_line_and_is_bound_once_per_drive(asking: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(drivers.DRIVERS, "counting", "tests.agentapp.drivers.binding.Counting")
    Counting.noted.clear()
    Agent.objects.update(driver="counting", model="")
    found = run(asking)
    assert (found.state, found.answer) == ("succeeded", "Turn 2.")
    assert Counting.noted == ["bound", "step 1", "step 2"]
