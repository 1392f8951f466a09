"""Thresholds: how many of which people must approve, compared with a model that counts directly."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from approvals import thresholds
from approvals.models import Rule
from approvals.policy import Ruling, evaluate
from approvals.thresholds import Count, Reviewer, Terms, Threshold
from tests.approvals.test_policy import call, rule

GROUPS = {1: "Payments", 2: "Managers", 3: "Legal"}
PEOPLE = [
    Reviewer(n, f"person-{n}", {g: GROUPS[g] for g in groups})
    for n, groups in enumerate([(), (1,), (1,), (2,), (1, 2), (3,), (1, 2, 3)])
]
TWO_OR_ONE = [{"approve": 2, "group": "Payments"}, {"approve": 1, "group": "Managers"}]


def with_groups(*names: str, **fields: Any) -> Rule:
    made = rule("ask", **fields)
    made._prefetched_objects_cache = {"groups": [named(name) for name in names]}
    return made


def named(name: str) -> Any:
    return Group(pk=next(pk for pk, group in GROUPS.items() if group == name), name=name)


a_threshold = st.builds(
    Threshold,
    approve=st.integers(1, 4),
    deny=st.integers(1, 4),
    groups=st.sets(st.sampled_from(sorted(GROUPS)), max_size=2).map(lambda found: tuple(sorted(found))),
)
some_terms = st.lists(st.lists(a_threshold, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(
    lambda rules: Terms(tuple(rules))
)
some_people = st.lists(st.sampled_from(PEOPLE), max_size=10)


def enough(threshold: Threshold, people: list[Reviewer], number: int) -> bool:
    """The model: names in a set, nothing else."""
    names = {one.name for one in people if not threshold.groups or any(g in one.groups for g in threshold.groups)}
    return len(names) >= number


@given(terms=some_terms, approving=some_people, rejecting=some_people)
def test_each_rule_is_satisfied_by_one_of_its_thresholds_and_any_threshold_can_reject(terms, approving, rejecting):
    count = Count(terms, {}, approving, rejecting)
    assert count.is_enough == all(any(enough(t, approving, t.approve) for t in r) for r in terms.rules)
    assert count.is_denied == any(enough(t, rejecting, t.deny) for r in terms.rules for t in r)


@given(terms=some_terms, approving=some_people)
def test_nobody_counts_twice(terms, approving):
    assert Count(terms, {}, approving * 2, approving * 2).is_enough == Count(terms, {}, approving).is_enough


@given(terms=some_terms, approving=some_people, another=st.sampled_from(PEOPLE))
def test_another_approval_never_makes_it_less(terms, approving, another):
    before, after = Count(terms, {}, approving), Count(terms, {}, [*approving, another])
    assert after.is_enough or not before.is_enough


@given(terms=some_terms, approving=some_people, viewer=st.sampled_from(PEOPLE))
def test_the_button_says_how_far_this_person_takes_it(terms, approving, viewer):
    count = Count(terms, {}, approving)
    given_, needed = count.next_for(viewer)
    if not count.is_enough and count.involves(viewer):
        assert given_ >= 0
        if given_ + 1 >= needed and len(terms.rules) == 1 and viewer not in approving:
            assert Count(terms, {}, [*approving, viewer]).is_enough


@given(terms=some_terms)
def test_terms_are_frozen_without_loss(terms):
    assert Terms.from_json(terms.as_json()) == terms


@given(terms=some_terms, approving=some_people)
def test_at_critical_risk_nobody_approves_alone(terms, approving):
    strict = thresholds.floor(terms, "critical", True)
    assert len({one.pk for one in approving}) >= 2 or not Count(strict, {}, approving).is_enough
    assert thresholds.floor(terms, "high", True) == thresholds.floor(terms, "critical", False) == terms


def test_two_of_one_group_or_one_of_another():
    terms = thresholds.of_rules([with_groups("Payments", "Managers", thresholds=TWO_OR_ONE)])
    _, first, second, manager, both, *_ = PEOPLE
    assert terms.words == "Two of Payments, or one of Managers"
    assert not Count(terms, {}, [first]).is_enough
    assert Count(terms, {}, [first, second]).is_enough
    assert Count(terms, {}, [manager]).is_enough
    assert Count(terms, {}, [second]).next_for(first) == (1, 2)
    assert Count(terms, {}, [both]).is_enough
    assert Count(terms, {}).next_for(first) == (0, 2)
    assert Count(terms, {}).next_for(manager) == (0, 1)
    assert terms.fewest == 1


def test_a_rule_with_thresholds_and_one_without_are_both_to_be_satisfied():
    plain = with_groups("Legal", approvals_needed=2)
    terms = thresholds.of_rules([with_groups("Payments", "Managers", thresholds=TWO_OR_ONE), plain])
    _, _, _, manager, _, legal, all_three = PEOPLE
    assert terms.words == "Two of Payments, or one of Managers; and two of Legal"
    assert not Count(terms, {}, [manager, legal]).is_enough
    assert Count(terms, {}, [all_three, legal]).is_enough  # one person counts for more than one rule
    assert set(terms.may_decide) == {1, 2, 3}
    assert terms.fewest == 2


def test_rules_without_thresholds_keep_the_simple_form():
    legal = with_groups("Legal", approvals_needed=2)
    assert not thresholds.of_rules([legal, with_groups("Payments", "Legal"), with_groups()])


def test_rules_of_groups_apart_are_each_to_be_satisfied():
    terms = thresholds.of_rules([with_groups("Legal", approvals_needed=2), with_groups("Payments")])
    assert terms.words == "Two of Legal; and one of Payments"


def test_a_condition_says_for_which_reviewers_and_calls_a_threshold_counts():
    small = [{"approve": 1, "group": "Payments", "condition": "args.amount < 100.0"}, {"approve": 2}]
    terms = thresholds.of_rules([with_groups("Payments", "Managers", thresholds=small)])
    _, first, second, *_ = PEOPLE
    assert Count(terms, {"args": {"amount": 50}}, [first]).is_enough
    assert not Count(terms, {"args": {"amount": 500}}, [first]).is_enough
    assert Count(terms, {"args": {"amount": 500}}, [first, second]).is_enough
    by_name = Threshold(1, condition='reviewer.name == "person-1" && "Payments" in reviewer.groups')
    assert by_name.counts(first, {})
    assert not by_name.counts(second, {})


@pytest.mark.parametrize("condition", ["args.nothing > 1", "args.amount", "1 / 0 > 1", "args.amount > 'x'"])
def test_a_condition_that_cannot_be_evaluated_counts_nobody(condition):
    count = Count(Terms(((Threshold(1, condition=condition),),)), {"args": {"amount": 5}}, PEOPLE, PEOPLE)
    assert not count.is_enough
    assert not count.is_denied


@pytest.mark.parametrize("value", [[{"approve": 1, "group": "Gone"}], [{"aprove": 1}], "two", [{"approve": True}]])
def test_thresholds_that_cannot_be_met_or_read_are_met_by_nobody(value):
    terms = thresholds.of_rules([with_groups("Payments", thresholds=value)])
    assert terms
    assert not Count(terms, {}, PEOPLE).is_enough


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "Give a list of at most 10 thresholds"),
        ([{"approve": 1}] * 11, "Give a list of at most 10 thresholds"),
        (["two"], "Threshold 1: give an object of"),
        ([{"approve": 1, "people": 2}], "Threshold 1: give an object of"),
        ([{"deny": 1}], "approve must be a number of people"),
        ([{"approve": 0}], "approve must be a number of people"),
        ([{"approve": True}], "approve must be a number of people"),
        ([{"approve": 1}, {"approve": 1, "deny": 21}], "Threshold 2: deny must be a number of people"),
        ([{"approve": 1, "group": 3}], "group must be text"),
        ([{"approve": 1, "condition": "args.amount >"}], "Threshold 1: The condition does not compile"),
        ([{"approve": 1, "condition": "history.count('x', '1h') > 1"}], "Unknown name 'history'"),
    ],
)
def test_what_is_no_threshold_is_refused_with_what_is_wrong(value, why):
    with pytest.raises(ValidationError, match=why):
        thresholds.validate(value)


def test_a_group_is_one_of_the_rules():
    thresholds.validate_groups(TWO_OR_ONE, ["Managers", "Payments"])
    with pytest.raises(ValidationError, match=r"'Managers' is not among the rule's groups\. It has Payments"):
        thresholds.validate_groups(TWO_OR_ONE, ["Payments"])


def test_a_ruling_carries_the_terms_and_who_may_decide():
    ruling = evaluate([with_groups("Payments", "Managers", thresholds=TWO_OR_ONE)], call())
    assert (ruling.verdict, set(ruling.groups), ruling.approvals_needed) == ("ask", {1, 2}, 1)
    assert Terms.from_json(ruling.terms).words == "Two of Payments, or one of Managers"
    assert Ruling.from_json(ruling.as_json()) == ruling
    assert ruling.about == {}  # only what some condition reads is kept
