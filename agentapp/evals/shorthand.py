"""Turns mocks as people write them into what a run keeps, whether they give one answer for a tool or several."""

from collections.abc import Mapping
from typing import Any

from agentapp.mocks import answer_problem

_OF_TOOL = frozenset({"answers", "snapshot"})


def tool_of(said: Any) -> Any:
    """The answers to the calls of one tool. They may be written as

    - one answer, such as {"result": …}: every call gets it;
    - a list of answers, each for some arguments (`when`); one without `when` comes last and is for all other calls;
    - {"sequence": [answer, …]}: attempt by attempt;
    - or in full, {"answers": […], "snapshot": …}.

    Raises ValueError for something that is not an answer. Anything else is refused where mocks are checked.
    """
    if isinstance(said, Mapping) and said and set(said) <= _OF_TOOL:
        return {**said, "answers": [_answers(each) for each in _listed(said.get("answers", []))]}
    if isinstance(said, Mapping) and "snapshot" in said:
        rest = {name: value for name, value in said.items() if name != "snapshot"}
        return {"answers": [_answers(rest)], "snapshot": said["snapshot"]}
    return {"answers": [_answers(each) for each in _listed(said)]}


def _listed(said: Any) -> list[Any]:
    return list(said) if isinstance(said, list) else [said]


def _answers(said: Any) -> Any:
    """One entry: an answer, or several in turn, and the arguments it is for."""
    if isinstance(said, Mapping) and "sequence" in said:
        for answer in _listed(said["sequence"]):
            _check(answer)
        return said
    answer = {name: value for name, value in said.items() if name != "when"} if isinstance(said, Mapping) else said
    _check(answer)
    return {"sequence": [answer], **({"when": said["when"]} if "when" in said else {})}


def _check(answer: Any) -> None:
    if problem := answer_problem(answer):
        raise ValueError(problem)
