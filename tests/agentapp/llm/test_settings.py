"""What an agent's settings may say to a provider."""

from typing import Any, get_args

import pytest
from pydantic_ai.messages import FinishReason
from pydantic_ai.settings import ModelSettings

from agentapp.llm.settings import OURS, SENT, problems
from agentapp.messages import FINISH_REASONS

GOOD: dict[str, list[Any]] = {
    "cache": [True, False, "1h", {"retention": "5m", "messages": False}],
    "frequency_penalty": [-2, 0.5],
    "max_tokens": [1, 100_000],
    "presence_penalty": [2],
    "seed": [0, -1],
    "stop_sequences": [[], ["END"]],
    "strict": [True, False],
    "temperature": [0, 0.7, 2],
    "thinking": [True, False, "low", "max"],
    "timeout": [0.5, 600],
    "top_k": [1],
    "top_p": [0, 1],
}
BAD: dict[str, list[Any]] = {
    "cache": ["2h", 1.5, {"kept": True}, None],
    "frequency_penalty": [3],
    "max_tokens": [0, "800", 1.5, True],
    "presence_penalty": ["1"],
    "seed": [1.5],
    "stop_sequences": ["END", [""], [1]],
    "strict": ["yes", 1],
    "temperature": [-1, "hot", True, None],
    "thinking": ["hard", 7],
    "timeout": [0, 601, "5"],
    "top_k": [0],
    "top_p": [1.1],
}


def test_every_setting_has_good_and_bad_values_here() -> None:
    assert set(GOOD) == set(BAD) == set(SENT | OURS)


@pytest.mark.parametrize("name", GOOD)
def test_what_makes_sense_is_taken(name: str) -> None:
    assert [problems({name: value}) for value in GOOD[name]] == [[]] * len(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_what_makes_none_is_named_with_what_would(name: str) -> None:
    for value in BAD[name]:
        [problem] = problems({name: value})
        assert problem.startswith(f"{name} must be ")


def test_the_provider_library_knows_everything_that_is_sent() -> None:
    assert set(SENT) <= set(ModelSettings.__annotations__)


def test_the_finish_reasons_are_those_of_the_provider_library() -> None:
    assert get_args(FinishReason) == FINISH_REASONS
