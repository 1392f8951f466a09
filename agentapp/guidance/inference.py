"""What guidance leaves to a model. Everything it answers is checked by code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentapp.considered import Asked, Insight
from agentapp.guidance.batching import Batch
from agentapp.guidance.evaluation import Choices, Verdict
from agentapp.guidance.guidelines import Guideline
from agentapp.guidance.known import Turn
from agentapp.guidance.matching import Judged
from agentapp.messages import Reply


@dataclass(frozen=True)
class Question:
    """A batch to be looked at, with what is relevant to it."""

    batch: Batch
    is_full: bool
    """Some of its tools change the world: each argument is looked at by itself."""
    guidelines: Mapping[str, Guideline]
    """All guidelines that count, even those without tools: one may say to wait."""
    choices: Choices


@dataclass(frozen=True)
class Brief:
    """What a reply is based on."""

    guidelines: Sequence[Guideline]
    """The most important first."""
    to_ask_for: Sequence[Insight] = ()
    not_done: Sequence[str] = ()
    """Tools that were wanted but cannot run."""
    corrections: Sequence[str] = ()
    """What was wrong in each earlier draft of the reply."""
    is_cut_off: bool = False
    """The iterations are used up, so there is no further look."""


class Inference(Protocol):
    """A model, or a script in its place."""

    asked: list[Asked]
    """The usage of everything so far."""

    def match(self, turn: Turn, guidelines: Sequence[Guideline]) -> Mapping[str, Judged]:
        """Which conditions hold. One that is left out does not."""
        ...

    def evaluate(self, turn: Turn, questions: Sequence[Question]) -> Sequence[Mapping[str, Verdict]]:
        """By batch and tool what should become of it. A tool that is left out is not applicable."""
        ...

    def compose(self, turn: Turn, brief: Brief, *, seen: bool) -> Reply:
        """The reply to the customer. `seen`: people may read it while it is written."""
        ...

    def claims(self, turn: Turn, text: str, tools: Sequence[str]) -> Sequence[str]:
        """Which of these tools' acts a text says were done."""
        ...
