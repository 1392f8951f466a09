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
    """A batch to be looked at, with what bears on it."""

    batch: Batch
    is_full: bool
    """Some of its tools change the world: each argument is looked at by itself."""
    guidelines: Mapping[str, Guideline]
    """All that count, those without tools too: one may say to wait."""
    choices: Choices


@dataclass(frozen=True)
class Brief:
    """What a reply is written by."""

    guidelines: Sequence[Guideline]
    """In the order in which they weigh."""
    to_ask_for: Sequence[Insight] = ()
    not_done: Sequence[str] = ()
    """Tools that were wanted and cannot run."""
    corrections: Sequence[str] = ()
    """What earlier drafts of the reply said wrongly, one each."""
    is_cut_off: bool = False
    """There is no more looking: the iterations are used up."""


class Inference(Protocol):
    """A model, or a script in its place."""

    asked: list[Asked]
    """What everything so far took."""

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
