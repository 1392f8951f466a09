"""What a condition asks about other calls, the clock and the place: read, refused, and answered."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from approvals import moments, totals
from approvals.business_hours import BusinessHours
from approvals.policy import evaluate, validate_condition
from approvals.totals import Look
from tests.approvals.test_policy import call, rule

OVER = "history.sum('refund_order.amount', '24h', 'customer') + args.amount > 500.0"


class Known:
    """A history that knows these answers, and records the questions it was asked."""

    def __init__(self, **answers: float | int | bool) -> None:
        self.answers, self.asked = answers, list[str]()

    def answer(self, look: Look) -> float | int | bool:
        self.asked.append(str(look))
        return self.answers[look.function]


def test_a_total_and_the_call_itself_are_held_against_a_limit():
    history = Known(sum=300.0)
    limit = rule("deny", condition=OVER)
    assert evaluate([limit], call(history=history, arguments={"amount": 200})).verdict == "ask"
    assert evaluate([limit], call(history=history, arguments={"amount": 201})).verdict == "deny"
    assert evaluate([limit], call(history=history, arguments={"amount": 200.5})).verdict == "deny"


def test_nobody_is_asked_unless_a_rule_that_addresses_the_call_looks_at_other_calls():
    history = Known(sum=0.0)
    rules = [rule("deny", condition="args.amount > 500.0"), rule("deny", tool="other", condition=OVER)]
    evaluate(rules, call(history=history))
    assert history.asked == []


def test_the_ruling_says_what_the_total_was():
    ruling = evaluate([rule("ask", condition=OVER)], call(history=Known(sum=480.0)))
    assert {"name": "history.sum('refund_order.amount', '1d', 'customer')", "value": 480.0} in ruling.values
    assert {"name": "args.amount", "value": 240} in ruling.values


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("history", [None, Known()])
def test_a_total_that_nobody_knows_asks(verdict, history):
    ruling = evaluate([rule(verdict, condition=OVER)], call(history=history))
    assert ruling.verdict == "ask"
    assert "could not be evaluated" in ruling.reason


def test_first_time_and_count():
    new = rule("deny", condition="history.first_time('refund_order.order')")
    assert evaluate([new], call(history=Known(first_time=True))).verdict == "deny"
    assert evaluate([new], call(history=Known(first_time=False))).verdict == "ask"
    often = rule("deny", condition='history.count("refund_order", "1h") >= 3')
    assert evaluate([often], call(history=Known(count=3))).verdict == "deny"
    assert evaluate([often], call(history=Known(count=2))).verdict == "ask"


@pytest.mark.parametrize(
    "condition",
    [
        "history.sum('refund_order', '24h') > 1.0",
        "history.sum('refund_order.amount') > 1.0",
        "history.sum('refund_order.amount', 'a day') > 1.0",
        "history.sum('refund_order.amount', '0h') > 1.0",
        "history.sum('refund_order.amount', '400d') > 1.0",
        "history.count('', '24h') > 1",
        "history.count('refund_order', '24h', 'everyone') > 1",
        "history.first_time('refund_order') ",
        "history.average('refund_order.amount', '24h') > 1.0",
        "history.count(tool.name, '24h') > 1",
        "history.total > 1",
        "size(history) > 1",
    ],
)
def test_a_question_that_has_no_answer_is_refused_where_it_is_written(condition):
    with pytest.raises(ValidationError):
        validate_condition(condition)


@pytest.mark.parametrize("condition", [OVER, 'args.note == "history"', "args.history > 3", "args.a.history.count > 1"])
def test_what_only_looks_like_a_question_is_none(condition):
    validate_condition(condition)


@given(st.integers(1, 365), st.sampled_from(["", *totals.SCOPES]))
def test_a_question_is_read_as_it_is_written(days, scope):
    look = Look("sum", "pay.amount", days * 86400, scope)
    assert totals.asked_in(f"{look} > 1.0 || {look} < 0.0") == [look]


def test_whole_numbers_become_decimals_and_nothing_else_does():
    given_ = {"a": 1, "b": [True, {"c": 2}], "d": "3", "e": None, "f": 2**60}
    assert totals.with_decimals(given_) == given_
    assert [type(value) for value in totals.with_decimals(given_).values()] == [float, list, str, type(None), int]


# --- The clock and the place -------------------------------------------------------------------

HOURS = BusinessHours.parse("mon-fri 09:00-17:00", ZoneInfo("Europe/Berlin"))
SUNDAY_NIGHT = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)


def test_now_is_what_the_clock_of_the_installation_shows():
    assert moments.seen(SUNDAY_NIGHT, HOURS) == {
        "hour": 23, "minute": 30, "weekday": "sun", "day": 1, "month": 3, "date": "2026-03-01",
        "is_business_hours": False,
    }  # fmt: skip
    assert moments.seen(datetime(2026, 3, 1, 23, 0, tzinfo=UTC), HOURS)["weekday"] == "mon"


@pytest.mark.parametrize(
    ("at", "verdict"),
    [
        ("2026-03-02T07:59:59", "deny"),
        ("2026-03-02T08:00:00", "ask"),
        ("2026-03-06T15:59:59", "ask"),
        ("2026-03-06T16:00:00", "deny"),
    ],
)
def test_a_rule_for_the_time_after_work_holds_to_the_second(at, verdict):
    night = rule("deny", condition="!now.is_business_hours")
    now = moments.seen(datetime.fromisoformat(at).replace(tzinfo=UTC), HOURS)
    assert evaluate([night], call(now=now)).verdict == verdict


def test_a_moment_that_is_not_known_asks():
    assert evaluate([rule("allow", condition="now.hour < 24")], call()).verdict == "ask"


def test_a_rule_of_another_environment_does_not_address_the_call():
    there = rule("deny", environment="production")
    assert evaluate([there], call(environment="production")).verdict == "deny"
    assert evaluate([there], call(environment="staging")).verdict == "ask"
    assert evaluate([there], call()).verdict == "ask"
    named = rule("deny", condition='environment != "production"')
    assert evaluate([named], call()).verdict == "deny"
