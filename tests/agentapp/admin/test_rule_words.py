"""A simulation's numbers, written as sentences."""

from typing import Any

import pytest

from agentapp.admin.rule_words import headline

NOTHING = dict.fromkeys(
    ("changed", "more_ask", "fewer_ask", "more_refused", "fewer_refused", "more_run", "fewer_run", "other_terms",
     "since_then", "unknown", "unreadable"),
    0,
)  # fmt: skip


def said(**numbers: Any) -> list[str]:
    return headline({**NOTHING, "days": 30, "looked_at": 200, "cut": False, **numbers})


@pytest.mark.parametrize(
    ("numbers", "sentences"),
    [
        ({"looked_at": 0}, ["No call of the last 30 days falls under this rule, before or after the change."]),
        ({}, ["200 calls of the last 30 days looked at.", "None would be ruled on differently."]),
        (
            {"changed": 19, "more_ask": 14, "fewer_ask": 2, "more_refused": 3},
            ["200 calls of the last 30 days looked at.", "14 more would ask, 2 fewer.", "3 more would be refused."],
        ),
        (
            {"looked_at": 5000, "cut": True, "changed": 1, "fewer_refused": 1, "since_then": 1, "unknown": 1},
            [
                "The latest 5000 calls of the last 30 days looked at, and not those before them.",
                "1 fewer would be refused.",
                "1 of these would turn out so under today's rules, without this draft.",
                "For 1 call nobody knows: it depends on what was not kept.",
            ],
        ),
    ],
)
def test_a_simulation_is_told_in_sentences(numbers: dict[str, Any], sentences: list[str]) -> None:
    assert said(**numbers) == sentences
