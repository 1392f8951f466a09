"""Which candidate tools are looked at together, and which other tools are named for comparison."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentapp.guidance import extensions
from agentapp.guidance.known import ToolFacts

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """A tool that may be called now, and the guidelines that ask for it. None of these: the guidance is open."""

    tool: ToolFacts
    guidelines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Candidates that are looked at in one question, and the other tools named in it."""

    number: int
    candidates: tuple[Candidate, ...]
    reference: tuple[ToolFacts, ...] = ()

    @property
    def names(self) -> list[str]:
        return [candidate.tool.name for candidate in self.candidates]


type Batcher = Callable[[Sequence[Candidate], Sequence[tuple[str, str]]], list[Batch]]


def batches(candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    """Tools that overlap, directly or through other candidates, are together; every other tool is alone.

    A tool whose overlap is `always` is alone, with all the others named for reference; a tool whose overlap
    is `none` is alone, with no other named.
    """
    by_name = {candidate.tool.name: candidate for candidate in candidates}
    pairs = [pair for pair in overlaps if pair[0] in by_name and pair[1] in by_name]
    for pair in pairs:
        alone = [name for name in pair if by_name[name].tool.overlap == "none"]
        if alone:
            log.warning("%s is set to overlap with nothing; its overlap with other tools is ignored", alone[0])
    joined = [pair for pair in pairs if all(by_name[name].tool.overlap == "auto" for name in pair)]
    made: list[Batch] = []
    seen: set[str] = set()
    for name, candidate in by_name.items():
        if name in seen:
            continue
        members = _connected(name, joined)
        seen |= members
        together = tuple(each for each in by_name.values() if each.tool.name in members)
        others = tuple(each.tool for each in by_name.values() if each.tool.name not in members)
        reference = others if candidate.tool.overlap == "always" else ()
        made.append(Batch(len(made) + 1, together, reference))
    return made


def by_code(path: str, candidates: Sequence[Candidate], overlaps: Sequence[tuple[str, str]]) -> list[Batch]:
    """Batches made by an installation's batcher, renumbered. Raises ModelError.

    Each candidate must be in exactly one batch: one that is left out would be skipped silently, and how a batch is
    looked at depends on what is in it.
    """
    what = "The batcher"
    found = extensions.call(path, what, candidates, overlaps)
    if not isinstance(found, list | tuple) or not all(isinstance(each, Batch) for each in found):
        raise extensions.unusable(path, what, "did not return a list of batches")
    asked = [batch for batch in found if batch.candidates]
    made = [replace(batch, number=number) for number, batch in enumerate(asked, start=1)]
    placed = [candidate for batch in made for candidate in batch.candidates]
    if len(placed) != len(candidates) or not all(candidate in placed for candidate in candidates):
        raise extensions.unusable(path, what, "did not put every candidate into one batch, and nothing else")
    return made


def _connected(start: str, pairs: Sequence[tuple[str, str]]) -> set[str]:
    found, pending = {start}, [start]
    while pending:
        name = pending.pop()
        for pair in pairs:
            if name in pair:
                new = set(pair) - found
                found |= new
                pending += new
    return found
