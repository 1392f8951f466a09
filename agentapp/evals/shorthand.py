"""How people write mocks, made into what a run keeps: one answer for one that stands alone, a list for several."""

from collections.abc import Mapping
from typing import Any

from agentapp.mocks import ANSWER_KINDS

_OF_TOOL = frozenset({"answers", "snapshot"})


def tool_of(said: Any) -> Any:
    """What answers the calls of one tool. It may be written as

    - one answer, as {"result": …}: every call gets it;
    - a list: of answers each for its arguments (`when`); what names none stands last and is for all others;
    - {"sequence": [answer, …]}: attempt by attempt;
    - or at length, {"answers": […], "snapshot": …}.

    What is none of these is left as it is, and refused where mocks are checked.
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
    if not isinstance(said, Mapping) or "sequence" in said:
        return said
    answer = {name: value for name, value in said.items() if name != "when"}
    if not ANSWER_KINDS & set(answer):
        return said
    return {"sequence": [answer], **({"when": said["when"]} if "when" in said else {})}
