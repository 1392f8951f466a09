"""Rules under which a conversation's customer answers: whom they ask, and how they read."""

import pytest

from approvals.models import Rule
from approvals.policy import Call, Ruling, evaluate
from approvals.rule_words import in_words

CALL = Call(tool="pay", effect_class="compensable", arguments={"amount": 5})


def a_rule(name: str = "r", **columns) -> Rule:
    return Rule(**{"name": name, "verdict": "ask", **columns})


pytestmark = pytest.mark.django_db


def ruling(*rules: Rule, **call) -> tuple[bool, bool]:
    for order, rule in enumerate(rules):
        rule.order = order
        rule.save()
    found = evaluate(Rule.objects.all(), Call(**{**vars(CALL), **call}))
    assert found.verdict == "ask"
    return found.customer, found.people


CUSTOMER = {"answered_by": "customer"}


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ([{}], (False, True)),
        ([CUSTOMER], (True, False)),
        ([CUSTOMER, {"verdict": "allow", "tool": "pay"}], (True, False)),
        ([CUSTOMER, {}], (True, True)),
        ([CUSTOMER | {"risk": "high"}], (True, True)),
        ([CUSTOMER | {"risk": "critical"}], (True, True)),
        ([CUSTOMER | {"condition": "args.nothing > 3"}], (False, True)),
        ([CUSTOMER | {"verdict": "deny", "condition": "args.nothing > 3"}], (False, True)),
    ],
)
def test_the_customer_alone_answers_only_where_every_rule_says_so_and_the_risk_is_not_high(rules, asked):
    assert ruling(*(a_rule(f"r{n}", **columns) for n, columns in enumerate(rules))) == asked


def test_what_asks_for_another_cause_than_a_rule_asks_people_too():
    assert ruling(a_rule(**CUSTOMER), always_ask=True) == (True, True)


def test_no_rule_asks_people():
    assert ruling() == (False, True)


def test_people_are_asked_by_the_terms_of_their_rules():
    a_rule("customers", order=1, approvals_needed=3, allowed_decisions=["approve"], **CUSTOMER).save()
    a_rule("staff", order=2, approvals_needed=2, risk="low", description="Staff look.").save()
    found = evaluate(Rule.objects.all(), CALL)
    assert (found.rule, found.reason, found.approvals_needed, found.risk) == ("staff", "Staff look.", 2, "medium")
    assert len(found.allowed_decisions) == 4


def test_without_a_customer_people_decide_and_are_told_why():
    found = Ruling("ask", "Ask them.", people=False, customer=True).without_customer()
    assert (found.people, found.customer) == (True, False)
    assert found.reason == "Ask them. (The customer cannot be asked here, so people decide.)"


def test_a_ruling_of_before_asks_people():
    assert Ruling.from_json({"verdict": "ask", "reason": "x"}).people


ANYBODY = "a person with the right to decide, but not the person who started the run"


@pytest.mark.parametrize(
    ("risk", "who"),
    [
        ("medium", f" or, if there is none to ask, for {ANYBODY}."),
        ("high", f", then for {ANYBODY}; without a customer, for them alone."),
    ],
)
def test_the_words_say_who_is_asked(risk, who):
    words = in_words(Rule(name="r", verdict="ask", risk=risk, answered_by="customer"))
    assert (
        words == f"Any call waits for the customer of the conversation{who} If nobody decides in time, it is rejected."
    )
