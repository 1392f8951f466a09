"""ReAct, for models without function calling: the instructions list the tools, and each decision is JSON in the text.

A reply without a decision, or with one that cannot be followed, goes back to the model with what is
wrong with it, a few times.
"""

import dataclasses
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentapp import llm
from agentapp.drivers.base import ModelError, Runtime, StepRequest
from agentapp.drivers.react_decision import Decision, NoDecision, read_decision
from agentapp.drivers.react_text import AGAIN, FINAL_ONLY, GIVE_IT, history, instructions_for, said_of
from agentapp.drivers.timeouts import timeout_of
from agentapp.messages import AssistantMessage, DecisionFailure, Note, Reply, ToolCall, Usage, UserMessage
from agentapp.tools.schema import check_arguments

SETTINGS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "max_retries": {"type": "integer", "minimum": 0, "maximum": 10},
        "final_via_inference": {"type": "boolean"},
        "final_model": {"type": ["string", "null"]},
        "final_options": {"type": "object"},
    },
    "additionalProperties": False,
}


@dataclass(frozen=True)
class ReactSettings:
    """What an agent's `driver_settings` may contain."""

    max_retries: int = 2
    """How often a reply without a usable decision is sent back to the model."""
    final_via_inference: bool = False
    """Ask once more for the answer alone, as plain text."""
    final_model: str | None = None
    """The model to ask for it; None: the agent's model."""
    final_options: dict[str, Any] = field(default_factory=dict)
    """Settings for that question, over the agent's own."""


class ReactDriver:
    runtime: Runtime

    @staticmethod
    def check_settings(settings: object) -> list[str]:
        """What is wrong with an agent's driver settings, as sentences."""
        return [
            f"{problem.field} is not a setting of this driver." if problem.kind == "extra" else problem.sentence
            for problem in check_arguments(SETTINGS_SCHEMA, settings)
        ]

    def bind(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def next_step(self, state: StepRequest) -> Reply:
        chosen = self._settings(state.agent)
        request = _request(state)
        usage, attempt = Usage(), 0
        notes: tuple[Note, ...] = ()
        while True:
            attempt += 1
            said = self.runtime.complete(request)
            usage, notes = usage + said.usage, (*notes, *said.notes)
            so_far = dataclasses.replace(said, tool_calls=(), provider_parts=None, usage=usage, notes=notes)
            try:
                decision = read_decision(said.text, state.tools, state.tool_choice)
            except NoDecision as problem:
                if attempt > chosen.max_retries:
                    return dataclasses.replace(so_far, failure=DecisionFailure(problem.reason, str(problem), attempt))
                wrong = (AssistantMessage(said.text), UserMessage(f"{problem} {AGAIN}"))
                request = dataclasses.replace(request, messages=(*request.messages, *wrong))
                continue
            made = Note("decided", {"type": decision.type, "attempts": attempt})
            reply = _reply(dataclasses.replace(so_far, notes=(*notes, made)), decision)
            return reply if decision.tool or not chosen.final_via_inference else self._final(state, chosen, reply)

    def in_words(self, state: StepRequest) -> Reply:
        """An answer to a person, as plain text and not as a decision."""
        model_settings: dict[str, Any] = state.agent["model_settings"]
        return self.runtime.complete(
            llm.Request(
                model=state.agent["model"],
                instructions=state.agent["instructions"],
                messages=history(state.messages),
                settings=model_settings,
                timeout=timeout_of(model_settings),
            )
        )

    def _final(self, state: StepRequest, chosen: ReactSettings, decided: Reply) -> Reply:
        """The same answer once more, as plain text. If the model says nothing, the decision's answer stays."""
        model_settings = {**state.agent["model_settings"], **chosen.final_options}
        draft = (AssistantMessage(said_of(decided.reasoning, decided.text)), UserMessage(GIVE_IT))
        final = self.runtime.complete(
            llm.Request(
                model=chosen.final_model or state.agent["model"],
                instructions=f"{FINAL_ONLY}\n\n{state.agent['instructions']}".strip(),
                messages=(*history(state.messages), *draft),
                settings=model_settings,
                timeout=timeout_of(model_settings),
            )
        )
        return dataclasses.replace(
            decided,
            text=final.text if final.text.strip() else decided.text,
            usage=decided.usage + final.usage,
            model=final.model,
            finish_reason=final.finish_reason,
            notes=(*decided.notes, *final.notes),
        )

    def _settings(self, agent: Mapping[str, Any]) -> ReactSettings:
        given: Any = agent.get("driver_settings") or {}
        problems = self.check_settings(given)
        if problems:
            raise ModelError(f"The driver settings of the agent are not valid: {problems[0]}", code="not_configured")
        return ReactSettings(**given)


def _request(state: StepRequest) -> llm.Request:
    model_settings: dict[str, Any] = state.agent["model_settings"]
    return llm.Request(
        model=state.agent["model"],
        instructions=instructions_for(state.agent["instructions"], state.tools, state.tool_choice),
        messages=history(state.messages),
        settings=model_settings,
        timeout=timeout_of(model_settings),
    )


def _reply(said: Reply, decision: Decision) -> Reply:
    """A decision in the form that the loop takes. Models write no ids, so each call gets one here."""
    if not decision.tool:
        return dataclasses.replace(said, text=decision.answer, reasoning=decision.thought)
    arguments = json.dumps(decision.arguments, ensure_ascii=False)
    call = ToolCall(id=f"call_{uuid.uuid4().hex}", name=decision.tool, arguments_text=arguments)
    finish_reason = "tool_call" if said.finish_reason == "stop" else said.finish_reason
    return dataclasses.replace(said, text=decision.thought, tool_calls=(call,), finish_reason=finish_reason)
