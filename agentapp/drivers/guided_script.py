"""Guidance by a script: it contains what a model would answer. Everything that code decides still happens."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentapp import llm
from agentapp.considered import Asked
from agentapp.drivers.base import ModelError, Runtime
from agentapp.drivers.scripted import usage_of
from agentapp.guidance.evaluation import Verdict
from agentapp.guidance.guidelines import Guideline
from agentapp.guidance.inference import Brief, Question
from agentapp.guidance.known import Turn
from agentapp.guidance.matching import Judged
from agentapp.messages import Note, Reply


class ScriptedInference:
    """One entry of a script, as `script.GUIDED_SCHEMA` describes it."""

    def __init__(self, runtime: Runtime, entry: Mapping[str, Any]) -> None:
        self.runtime, self.entry = runtime, entry
        self.asked: list[Asked] = []
        self.usage = usage_of(entry.get("usage", {}))
        self.notes: tuple[Note, ...] = ()
        self.composed = 0

    def match(self, turn: Turn, guidelines: Sequence[Guideline]) -> Mapping[str, Judged]:
        said = self.entry.get("matched", {})
        reasons = said if isinstance(said, dict) else dict.fromkeys(said, "")
        unknown = sorted(set(reasons) - set(turn.guidelines.by_name))
        if unknown:
            raise ModelError(f"The script matches {unknown[0]!r}, which is not a guideline.", code="script_invalid")
        return {name: Judged(True, why) for name, why in reasons.items()}

    def evaluate(self, turn: Turn, questions: Sequence[Question]) -> Sequence[Mapping[str, Verdict]]:
        said = self.entry.get("evaluations", {})
        return [{name: _verdict(said[name]) for name in question.batch.names if name in said} for question in questions]

    def compose(self, turn: Turn, brief: Brief, *, seen: bool) -> Reply:
        said = self.entry.get("says")
        drafts = [said] if isinstance(said, str) else said or []
        if not drafts:
            raise ModelError(f"The script has nothing to say in step {turn.step}.", code="script_ended")
        text = drafts[min(self.composed, len(drafts) - 1)]
        self.composed += 1
        request = llm.Request("scripted", turn.agent.get("instructions", ""), turn.messages)
        return self.runtime.replay(request, Reply(text=text, model="scripted", finish_reason="stop"))

    def claims(self, turn: Turn, text: str, tools: Sequence[str]) -> Sequence[str]:
        """`claims` is a list of tools, or a list of such lists, one for each draft."""
        said: list[Any] = self.entry.get("claims", [])
        if said and isinstance(said[0], list):
            found: list[str] = said[min(self.composed, len(said)) - 1]
            return found
        return said


def _verdict(said: Any) -> Verdict:
    """The verdict for a scripted entry. A list of arguments means calls that are needed."""
    if isinstance(said, list):
        return Verdict("needs_to_run", calls=tuple(said))
    return Verdict(said["state"], said.get("why", ""), tuple(said.get("calls", ())))
