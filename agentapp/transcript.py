"""Rows → messages for the model. Every call gets exactly one answer, right behind the step that asked."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentapp.answers import answer, as_proposed
from agentapp.messages import AssistantMessage, ChatMessage, UserMessage
from agentapp.models import Message, Run, Step, ToolExecution

__all__ = ["GO_ON", "StepRows", "answer", "as_proposed", "compile_messages", "load_conversation", "load_steps"]

# Behind a step without calls that did not end the run: a hook wanted more.
GO_ON = "This is not finished yet. Go on."


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
    calls = run.executions.select_related("tool__source", "replay_of__tool")
    for execution in calls.order_by("step__number", "index"):
        steps[execution.step_id].executions.append(execution)
    return list(steps.values())


def load_conversation(run: Run) -> list[Message]:
    """What was said in the run's conversation before it. No query for a run outside of one."""
    if run.conversation_id is None:
        return []
    return list(Message.objects.filter(conversation=run.conversation_id).exclude(run=run).order_by("seq"))


def compile_messages(run: Run, earlier: Sequence[Message], steps: Sequence[StepRows]) -> tuple[ChatMessage, ...]:
    """The history a model is sent: earlier messages, the input, then steps with their answers."""
    messages: list[ChatMessage] = [
        UserMessage(m.content) if m.role == Message.Role.USER else AssistantMessage(m.content) for m in earlier
    ]
    messages.append(UserMessage(run.input))
    for rows in steps:
        if rows.step.error:
            messages += _undecided(rows)
            continue
        calls = tuple(as_proposed(execution) for execution in rows.executions)
        messages.append(AssistantMessage(rows.step.text, calls, rows.step.provider_parts))
        messages += [answer(execution) for execution in rows.executions]
        if not rows.executions and not (run.is_final and rows is steps[-1]):
            messages.append(UserMessage(GO_ON))
    return tuple(messages)


def _undecided(rows: StepRows) -> list[ChatMessage]:
    """A step of which no decision came: what was wrong, in our words. The row that stands for it is no call."""
    what = rows.step.error.replace("_", " ")
    told = " ".join(execution.message for execution in rows.executions)
    return [AssistantMessage(f"Thought: {what} failed."), UserMessage(f"Observation: ERROR - {told}")]
