"""Which guidelines are looked at, and what results bring along."""

from typing import Any

from agentapp.considered import Matched
from agentapp.guidance.guidelines import Guideline, Guidelines, Relation
from agentapp.guidance.known import Done, Known
from agentapp.guidance.matching import to_look_at, transient_of

GUIDELINES = Guidelines((Guideline("a"), Guideline("b"), Guideline("c")), (Relation("reevaluates", "a", "look_up"),))


def names(**known: Any) -> list[str]:
    return [guideline.name for guideline in to_look_at(GUIDELINES, Known(**known))]


def test_all_are_looked_at_first_and_later_those_that_do_not_hold() -> None:
    assert names() == ["a", "b", "c"]
    before = (Matched("a", True, "model", step=1), Matched("b", False, "model", step=1))
    assert names(iteration=2, matches=before) == ["b", "c"]


def test_one_is_looked_at_again_when_its_tool_has_run_since_and_only_then() -> None:
    before = (Matched("a", True, "model", step=1), Matched("b", True, "model", step=1), Matched("c", True, "model"))
    ran = (Done(1, "look_up", {}),)
    assert names(iteration=2, matches=before, calls=ran) == ["a"]
    assert names(iteration=2, matches=before, calls=(Done(1, "other", {}),)) == []
    later = (*before, Matched("a", True, "reevaluated", step=2))
    assert names(iteration=3, matches=later, calls=ran) == []
    assert names(iteration=3, matches=later, calls=(*ran, Done(2, "look_up", {}, is_answered=False))) == []


def test_what_several_calls_of_a_step_bring_along_is_told_apart_and_held_to_what_it_may_say() -> None:
    said = {"action": "Say it.", "condition": "it rains", "priority": "high", "criticality": "extreme"}
    found = transient_of(
        Known(calls=(Done(1, "look_up", {}, transient=(said,)), Done(1, "look_up", {}, transient=(said,))))
    )
    assert [guideline.name for guideline in found] == ["look_up:1.1", "look_up:1.2"]
    assert (found[0].words, found[0].priority, found[0].criticality) == ("When it rains: Say it.", 0, "medium")
