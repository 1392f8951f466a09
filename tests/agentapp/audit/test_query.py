"""The line that searches the audit trail: how it is read and rewritten, and what is said of parts without sense."""

import string
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentapp.audit import moments, query, vocabulary
from agentapp.audit.query import Malformed, Query, Term, parse

NOW = datetime(2026, 11, 22, 14, 30, tzinfo=UTC)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
keys = st.uuids().map(str) | st.from_regex(r"\A[0-9a-f]{6}\Z")
values: dict[str, st.SearchStrategy[str]] = {
    **{word: names.map(str.strip) for word in ("who", "tool", "agent", "team", "rule")},
    "did": st.sampled_from(vocabulary.WORDS),
    "risk": st.sampled_from(query.RISKS),
    "via": st.sampled_from(query.VIAS),
    "took": st.sampled_from(["<3s", ">2min", ">=1.5h", "<=20ms", "3d"]),
    "cost": st.sampled_from([">1", "<0.5", "$2", ">=$1.25"]),
    "since": st.sampled_from(["7d", "24h", "today", "2026-11-01", "2026-11-01..2026-11-07", "30min..10m"]),
    "until": st.sampled_from(["7d", "yesterday", "2026-11-01"]),
    "run": keys,
    "approval": keys,
}
terms = st.one_of(
    [
        st.builds(Term, st.just(word), st.lists(found, min_size=1, max_size=3).map(tuple), st.booleans())
        for word, found in values.items()
    ]
    + [st.builds(Term, st.just(query.TEXT), st.tuples(names.map(str.strip)), st.booleans())]
)
queries = st.lists(terms, max_size=5).map(tuple).map(Query).filter(lambda one: len(str(one)) <= query.MAX_CHARS)


@given(queries)
def test_what_is_written_reads_back_as_the_same_query(asked: Query) -> None:
    assert parse(str(asked)) == asked


@given(st.text(max_size=200))
def test_any_line_is_read_or_its_fault_is_named_and_what_was_read_can_be_written(text: str) -> None:
    try:
        found = parse(text)
    except Malformed as wrong:
        found, named = Query(), [problem.sentence for problem in wrong.problems]
    else:
        named = ["nothing"]
    assert named
    assert all(named)
    assert parse(str(found)) == found


@given(st.sampled_from(sorted(query.CHECKS)), st.text(string.printable, max_size=40))
def test_no_value_behind_a_word_breaks_the_reading(word: str, value: str) -> None:
    try:
        found = parse(f"{word}:{value}")
    except Malformed:
        return
    assert parse(str(found)) == found


def test_a_line_is_conditions_in_the_order_they_were_typed() -> None:
    asked = parse('who:dana did:approved,changed -tool:"refund payment" took:<3s "not confirmed" kettle')

    assert asked.terms == (
        Term("who", ("dana",)),
        Term("did", ("approved", "changed")),
        Term("tool", ("refund payment",), negated=True),
        Term("took", ("<3s",)),
        Term("", ("not confirmed",)),
        Term("", ("kettle",)),
    )
    assert str(asked) == 'who:dana did:approved,changed -tool:"refund payment" took:<3s "not confirmed" "kettle"'


@pytest.mark.parametrize(
    ("typed", "sentence", "fixed"),
    [
        ("tol:refund", "There is no word `tol`. Did you mean `tool`?", "tool:refund"),
        ("xyzzy:3", "There is no word `xyzzy`. Put it in quotes to search for it as text.", '"xyzzy:3"'),
        ("who:dana did:aproved risk:low", "`did:` knows no `aproved`. Did you mean `approved`?",
         "who:dana did:approved risk:low"),
        ("did:ran,aproved", "`did:` knows no `aproved`. Did you mean `approved`?", "did:ran,approved"),
        ("risk:hi", "`risk:` knows no `hi`. Did you mean `high`?", "risk:high"),
        ("took:soon", "`took:` takes a bound, such as `took:<3s`; `soon` is not one.", ""),
        ("cost:-1", "`cost:` takes a bound, such as `cost:>1`; `-1` is not one.", ""),
        ("who:", "`who:` has no value.", ""),
        ("who:a,,b", "`who:` has a comma too many.", ""),
        ("who:a,", "Put one comma between the values of `who:`.", ""),
        ('tool:"refund', "The quote after `tool:` is never closed.", 'tool:"refund"'),
        ('"refund', "A quote is never closed.", '"refund"'),
        ('""', "There is nothing between the quotes.", ""),
        ("run:zz", "`zz` names no run: give a reference as people read it, or a whole id.", ""),
        ("since:2026-13-01", "`since:` takes `7d`, `24h`, `today`, `yesterday`, a day such as `2026-11-01` or a "
         "moment such as `2026-11-01T14:00`; `2026-13-01` is none of them.", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_named_with_what_may_have_been_meant(typed: str, sentence: str, fixed: str) -> None:
    with pytest.raises(Malformed) as wrong:
        parse(typed)

    [problem] = wrong.value.problems
    assert (problem.sentence, problem.fixed) == (sentence, fixed)


def test_every_fault_of_a_line_is_named_at_once() -> None:
    with pytest.raises(Malformed) as wrong:
        parse("tol:a risk:none")

    assert len(wrong.value.problems) == 2


@pytest.mark.parametrize("text", ["x" * 501, " ".join(["a"] * 25), "who:" + ",".join(["a"] * 21)])
def test_a_line_has_an_end(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_a_value_that_is_chosen_takes_the_place_of_the_one_before() -> None:
    asked = parse("who:dana -who:sam risk:high")

    assert str(asked.with_value("who", "marco reyes")) == '-who:sam risk:high who:"marco reyes"'
    assert str(asked.without("who")) == "risk:high"


def test_a_name_that_nothing_has_is_named_with_the_nearest() -> None:
    asked = parse("tool:refund_paymnt risk:low")
    problem = query.unknown("tool", "refund_paymnt", ["look_up", "refund_payment"], asked)

    assert problem.sentence == "There is no tool `refund_paymnt`. Did you mean `refund_payment`?"
    assert problem.fixed == "tool:refund_payment risk:low"
    assert query.unknown("rule", "zzz", ["refunds"], asked).sentence == "There is no policy `zzz`."


def test_bounds_are_read_in_dollars_and_milliseconds() -> None:
    assert query.amount(">=$1.25") == query.Amount(">=", Decimal("1.25"))
    assert query.span_ms("<1.5min") == query.Amount("<", Decimal(90_000))
    assert query.span_ms("20ms") == query.Amount("=", Decimal(20))


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("24h", NOW - timedelta(hours=24), NOW - timedelta(hours=24)),
        ("today", datetime(2026, 11, 22, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)),
        ("yesterday", datetime(2026, 11, 21, tzinfo=UTC), datetime(2026, 11, 22, tzinfo=UTC)),
        ("2026-11-01..2026-11-07", datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC)),
        ("2w..7d", NOW - timedelta(days=14), NOW - timedelta(days=7)),
        ("2026-11-01T14:30Z", datetime(2026, 11, 1, 14, 30, tzinfo=UTC), datetime(2026, 11, 1, 14, 30, tzinfo=UTC)),
        ("2026-11-01T14:00..2026-11-01", datetime(2026, 11, 1, 14, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)),
    ],
)
def test_a_stretch_of_time_begins_and_is_over(text: str, begins: datetime, ends: datetime) -> None:
    span = moments.read(text)

    assert span is not None
    assert (span.begins(NOW, UTC), span.ends(NOW, UTC)) == (begins, ends)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        "7",
        "7y",
        "2026-02-30",
        "1066-10-14",
        "9999-12-31",
        "today..",
        "d",
        "2026-11-01T25:00",
        "2026-11-01T14",
        "9999-12-31T00:00Z",
    ],
)
def test_what_names_no_time_is_not_read_as_one(text: str) -> None:
    assert moments.read(text) is None
