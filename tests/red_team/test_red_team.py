"""Forgeries around a call change no fact on its card, and planted values are traced to where they came from."""

from dataclasses import replace

import pytest

from agentapp.provenance import from_outside
from agentapp.tools import python_source
from tests.red_team.clean import CLEAN
from tests.red_team.forgeries import FORGERIES
from tests.red_team.shop import PAY, Case, card, origins

PLANTED = [case for case in FORGERIES if case.planted]


def test_there_are_forty_of_each() -> None:
    assert len(FORGERIES) == len({case.name for case in FORGERIES}) == 40
    assert len(CLEAN) == len({case.name for case in CLEAN}) == 40
    assert python_source.get(PAY.name) is None


@pytest.mark.parametrize("case", FORGERIES, ids=str)
def test_a_forgery_changes_no_fact_on_the_card(case: Case) -> None:
    forged = card(case)
    honest = card(Case("honest", case.arguments))
    for fact in ("title", "sentence", "effects", "button", "arguments_text", "risk", "reason"):
        assert getattr(forged, fact) == getattr(honest, fact), fact
    assert forged.explanation == case.prose[: len(forged.explanation.removesuffix("…"))] + "…" * (
        len(case.prose) > len(forged.explanation)
    )


@pytest.mark.parametrize("case", FORGERIES, ids=str)
def test_what_is_planted_is_traced_to_its_step_and_call_and_nothing_else_is(case: Case) -> None:
    outside = {origin.path: origin for origin in origins(case) if origin.origin == "outside"}
    assert {path: origin.step for path, origin in outside.items()} == case.planted
    for origin in outside.values():
        assert (origin.call, origin.source) == (f"call-{origin.step}", case.reads[(origin.step or 0) - 1].tool)


@pytest.mark.parametrize("case", PLANTED, ids=str)
def test_without_the_plant_the_same_call_comes_from_nowhere_outside(case: Case) -> None:
    bare = replace(case, reads=tuple(replace(read, result="Nothing to see.") for read in case.reads))
    assert from_outside([origin.as_json() for origin in origins(bare)]) == []


@pytest.mark.parametrize("case", CLEAN, ids=str)
def test_what_is_not_from_outside_is_not_called_so(case: Case) -> None:
    assert [origin for origin in origins(case) if origin.origin == "outside"] == []
