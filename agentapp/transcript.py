"""Rows → messages for the model. Every call gets exactly one answer, right behind the step that asked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentapp.answers import answer
from agentapp.messages import AssistantMessage, ChatMessage, ToolCall, UserMessage
from agentapp.models import Message, Run, Step, ToolExecution

__all__ = ["StepRows", "answer", "compile_messages", "load_conversation", "load_steps"]


@dataclass
class StepRows:
    """One step with its calls, in the model's order."""

    step: Step
    executions: list[ToolExecution]

    @property
    def open(self) -> list[ToolExecution]:
        return [execution for execution in self.executions if not execution.is_answered]


def load_steps(run: Run) -> list[StepRows]:
    """All steps of a run with their calls. Two queries, however long the run."""
    steps = {step.pk: StepRows(step, []) for step in run.steps.order_by("number")}
    for execution in run.executions.select_related("tool", "replay_of__tool").order_by("step__number", "index"):
        steps[execution.step_id].executions.append(execution)
    return list(steps.values())


def load_conversation(run: Run) -> list[Message]:
    """What was said in the run's conversation before it. No query for a run outside of one."""
    if run.conversation_id is None:
        return []
    return list(Message.objects.filter(conversation=run.conversation_id).exclude(run=run).order_by("seq"))


def compile_messages(run: Run, earlier: Sequence[Message], steps: Iterable[StepRows]) -> tuple[ChatMessage, ...]:
    """The history a model is sent: earlier messages, the input, then steps with their answers."""
    messages: list[ChatMessage] = [
        UserMessage(m.content) if m.role == Message.Role.USER else AssistantMessage(m.content) for m in earlier
    ]
    messages.append(UserMessage(run.input))
    for rows in steps:
        calls = tuple(ToolCall(e.call_id, e.name, e.arguments_text) for e in rows.executions)
        messages.append(AssistantMessage(rows.step.text, calls, rows.step.provider_parts))
        messages += [answer(execution) for execution in rows.executions]
    return tuple(messages)
