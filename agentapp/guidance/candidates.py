"""Which tools may be called in an iteration: those of guidelines that have come to count."""

from collections.abc import Collection, Mapping

from agentapp.guidance.batching import Candidate
from agentapp.guidance.guidelines import Guideline, Guidelines
from agentapp.guidance.known import Known
from agentapp.guidance.matching import called_up_again, latest


def newly(counting: Mapping[str, Guideline], guidelines: Guidelines, known: Known) -> list[Guideline]:
    """The guidelines whose tools are looked at: those that did not count before, and those called up again."""
    if known.iteration == 1:
        return list(counting.values())
    before = {name for name, match in latest(known.matches).items() if match.is_active}
    again = called_up_again(guidelines, known)
    return [guideline for name, guideline in counting.items() if name not in before or name in again]


def candidates(
    asking: Collection[Guideline], guidelines: Guidelines, known: Known, *, is_open: bool = False
) -> list[Candidate]:
    """The disclosed tools of these guidelines, each once, with all the guidelines that ask for it.

    `is_open`: tools without a guideline may be called as well.
    """
    named: dict[str, list[str]] = {}
    for guideline in asking:
        for tool in guideline.tools:
            if tool in known.tools:
                named.setdefault(tool, []).append(guideline.name)
    if is_open:
        for tool in known.tools:
            if tool not in guidelines.gated:
                named.setdefault(tool, [])
    return [Candidate(known.tools[tool], tuple(names)) for tool, names in named.items()]
