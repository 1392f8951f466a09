"""How people write mocks, made into what a run keeps: one answer for one that stands alone, a list for several."""

from collections.abc import Mapping
from typing import Any

from agentapp.mocks import answer_problem

_OF_TOOL = frozenset({"answers", "snapshot"})


def tool_of(said: Any) -> Any:
    """What answers the calls of one tool. It may be written as

    - one answer, as {"result": …}: every call gets it;
    - a list: of answers each for its arguments (`when`); what names none stands last and is for all others;
    - {"sequence": [answer, …]}: attempt by attempt;
    - or at length, {"answers": […], "snapshot": …}.

    Raises ValueError for what is no answer. Whatever else is none of these is refused where mocks are checked.
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
    """One entry: an answer, or several in turn, with the arguments it is for."""
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
