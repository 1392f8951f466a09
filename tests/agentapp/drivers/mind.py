"""A model's answers to the questions of guidance, behind a provider on the loopback interface."""

import json
import threading
from typing import Any

from agentapp.models import Run
from tests.guided import Guide
from tests.wire import DIALECTS, Answer, Question

DIALECT = DIALECTS["openai"]
TOOLS = {"look_up": "Tools to decide about:\n\nlook_up:", "pay": "Tools to decide about:\n\npay:"}


def run(guide: Guide, **more: Any) -> Run:
    return guide.run_by_model("What is a kettle?", **more)


class Mind:
    """Answers each kind of question with what was given for it, as often as it is asked."""

    def __init__(self, **said: Any) -> None:
        self.said = said
        self.asked: list[str] = []
        self.temperatures: list[float | None] = []
        self.lock = threading.Lock()

    def __call__(self, question: Question) -> Answer:
        kind = kind_of(question)
        with self.lock:
            self.asked.append(kind)
            self.temperatures.append(question.body.get("temperature"))
            said = self.said[kind]
            said = said.pop(0) if isinstance(said, list) else said
        return said if isinstance(said, Answer) else Answer(DIALECT.reply(text_of(said)))


def kind_of(question: Question) -> str:
    sent = DIALECT.read(question)
    if not sent.instructions:  # about the reply alone, not about the conversation
        assert "is about to say:" in sent.users[0]
        return "claims"
    if "Conditions:" in sent.instructions:
        return "match"
    return next((tool for tool, beginning in TOOLS.items() if beginning in sent.instructions), "compose")


def text_of(said: Any) -> str:
    return said if isinstance(said, str) else json.dumps(said)


def matched(**names: bool) -> Any:
    return {"guidelines": {name: {"why": f"Because of {name}.", "holds": holds} for name, holds in names.items()}}


def short(tool: str, *calls: Any, run: bool = True, **more: Any) -> Any:
    return {"tools": {tool: {"why": "Needed.", "should_run": run, "calls": list(calls), **more}}}


def argument(value: Any, source: str = "customer", state: str = "valid") -> dict[str, Any]:
    return {"value": value, "source": source, "state": state}
