"""Which tools share one question."""

import logging

import pytest

from agentapp.guidance.batching import Candidate, batches
from agentapp.guidance.known import ToolFacts
from agentapp.models import Tool
from agentapp.tools.base import tool


def candidate(name: str, overlap: str = "auto") -> Candidate:
    return Candidate(ToolFacts(name, overlap=overlap))  # type: ignore[arg-type]


def made(*candidates: Candidate, overlaps: tuple[tuple[str, str], ...] = ()) -> list[tuple[list[str], list[str]]]:
    """(tools, tools named with them) of each batch."""
    return [
        (sorted(batch.names), sorted(tool.name for tool in batch.reference)) for batch in batches(candidates, overlaps)
    ]


def test_tools_that_overlap_through_a_third_are_one_batch() -> None:
    pairs = (("a", "c"), ("b", "c"))
    assert made(candidate("a"), candidate("b"), candidate("c"), overlaps=pairs) == [(["a", "b", "c"], [])]


def test_a_tool_that_is_no_candidate_does_not_connect_two_others() -> None:
    pairs = (("a", "c"), ("b", "c"))
    assert made(candidate("a"), candidate("b"), overlaps=pairs) == [(["a"], []), (["b"], [])]


def test_a_tool_stands_in_one_batch_however_often_it_overlaps() -> None:
    pairs = (("a", "b"), ("b", "a"), ("a", "c"), ("b", "c"))
    assert made(candidate("a"), candidate("b"), candidate("c"), overlaps=pairs) == [(["a", "b", "c"], [])]


def test_a_tool_that_always_overlaps_is_alone_with_all_others_beside_it() -> None:
    assert made(candidate("a", "always"), candidate("b"), overlaps=(("a", "b"),)) == [(["a"], ["b"]), (["b"], [])]


def test_a_tool_that_overlaps_with_nothing_is_alone_and_its_overlaps_are_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        found = made(candidate("a", "none"), candidate("b"), candidate("c"), overlaps=(("a", "b"), ("b", "c")))
    assert found == [(["a"], []), (["b", "c"], [])]
    assert caplog.messages == ["a is set to overlap with nothing; its overlap with other tools is ignored"]


def test_a_tool_that_says_nothing_of_it_overlaps_automatically() -> None:
    @tool(effect="read")
    def plain() -> str:
        """A tool."""
        return ""

    assert (plain.overlap, Tool().overlap) == ("auto", "auto")
