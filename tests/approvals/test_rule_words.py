"""A rule as a sentence: which calls, what happens, who has a say."""

import pytest

from approvals.models import Rule
from approvals.rule_words import in_words, lasting


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"verdict": "deny"}, "Any call is refused, and the model is told why."),
        ({"verdict": "allow", "tool": "pay"}, "A call of pay runs without a person."),
        (
            {"verdict": "allow", "effect_class": "read", "agent": "support", "route": "refunds"},
            "Any call that only reads by the agent support on the route refunds runs without a person.",
        ),
        ({"verdict": "deny", "condition": "args.a\n  > 1"}, "Any call where args.a > 1 is refused"),
        ({"verdict": "ask"}, "waits for a person with the right to decide, but not the person who started the run."),
        ({"verdict": "ask", "starter_excluded": False}, "waits for a person with the right to decide."),
        ({"verdict": "ask", "approvals_needed": 3}, "waits for 3 different people"),
        ({"verdict": "ask", "expires_seconds": 5400}, "If nobody decides within 1 hour 30 minutes, it is rejected."),
        ({"verdict": "ask", "on_expiry": "stop"}, "If nobody decides in time, it is rejected and the run stops."),
        ({"verdict": "ask", "allowed_decisions": ["reject"]}, "People may only reject it."),
        ({"verdict": "ask", "grants_allowed": True}, "it is rejected. A grant may answer instead."),
        (
            {"verdict": "ask", "allowed_decisions": ["approve", "edit", "reject"]},
            "People may only approve it, change it or reject it.",
        ),
    ],
)
def test_a_rule_is_said_in_words(fields: dict[str, object], sentence: str) -> None:
    assert sentence in in_words(Rule(name="r", **fields))


def test_the_groups_that_decide_are_named() -> None:
    assert "a person in the group desk," in in_words(Rule(verdict="ask"), ["desk"])
    assert "a person in the groups desk or night," in in_words(Rule(verdict="ask"), ["desk", "night"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (1, "1 second"), (60, "1 minute"), (90, "1 minute 30 seconds"), (172_800, "2 days")],
)
def test_a_span_of_time_is_said_in_words(seconds: int, words: str) -> None:
    assert lasting(seconds) == words
