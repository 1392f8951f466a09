"""What a result may ask of the conversation."""

import pytest

from agentapp.tools.control import checked_control


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"session_mode": "manual"}, {"session_mode": "manual"}),
        ({"mode": "auto"}, {"session_mode": "auto"}),
        ({"response_lifespan": "session"}, {"response_lifespan": "session"}),
        ({"lifespan": "response"}, {"response_lifespan": "response"}),
        ({"mode": "manual", "session_mode": "auto"}, {"session_mode": "auto"}),
        ({}, {}),
        ({"anything": ["else"]}, {"anything": ["else"]}),
    ],
)
def test_options_are_kept_under_their_full_names(given, kept):
    assert checked_control(given) == kept


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"session_mode": "human"}, "session_mode: it must be one of auto, manual."),
        ({"mode": None}, "mode: it must be one of auto, manual."),
        ({"lifespan": "forever"}, "lifespan: it must be one of response, session."),
        ({"transient_guidelines": "be kind"}, "transient_guidelines: it must be a list of objects."),
        (
            {"transient_guidelines": [{"condition": "x"}]},
            "transient_guidelines: each must be an object with an action.",
        ),
        (
            {"transient_guidelines": [{"action": "x", "weight": 1}]},
            "transient_guidelines: weight is not part of a guideline.",
        ),
        (
            {"transient_guidelines": [{"action": "x", "priority": "1"}]},
            "transient_guidelines: priority must be a whole number.",
        ),
        (
            {"transient_guidelines": [{"action": "x", "condition": 1}]},
            "transient_guidelines: condition, criticality, description must be text.",
        ),
        (
            {"transient_guidelines": [{"action": "x" * 5000}]},
            "transient_guidelines: one is longer than 4000 characters.",
        ),
    ],
)
def test_what_means_nothing_is_left_out_and_named(given, told):
    assert checked_control(given) == {"ignored": [told]}


def test_guidelines_are_kept_as_they_are():
    wanted = [
        {"action": "Offer tea", "condition": "it rains", "priority": 100, "criticality": "high", "description": "d"}
    ]
    assert checked_control({"transient_guidelines": wanted}) == {"transient_guidelines": wanted}


def test_a_guideline_that_means_nothing_takes_none_of_the_others_along():
    made = checked_control({"transient_guidelines": [{"action": " "}, "nonsense", {"action": "Offer tea"}]})
    assert made == {
        "transient_guidelines": [{"action": "Offer tea"}],
        "ignored": ["transient_guidelines: each must be an object with an action."],
    }


def test_of_many_guidelines_the_first_count():
    made = checked_control({"transient_guidelines": [{"action": str(number)} for number in range(25)]})
    assert [one["action"] for one in made["transient_guidelines"]] == [str(number) for number in range(20)]
    assert made["ignored"] == ["transient_guidelines: only the first 20 count."]
