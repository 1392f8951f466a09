"""Conditions in CEL: how long one may be, and what the longest does to the process that reads it."""

import subprocess
import sys

import pytest
from django.core.exceptions import ValidationError

from approvals import conditions, policy
from approvals.models import Rule


@pytest.mark.parametrize(
    "text",
    [
        '"+".join(["1"] * 30_000) + " == 1"',
        '"args" + ".a" * 15_000 + " == 1"',
        # The longest chains that are evaluated.
        '"+".join(["1"] * 998) + " == 1"',
        '"args" + ".a" * 990 + " == 1"',
        '"!" * 1990 + "true"',
        '"[" * 990 + "]" * 990 + " == []"',
    ],
    ids=["read", "evaluated", "longest sum", "longest path", "longest denial", "deepest list"],
)
def test_no_condition_however_long_ends_the_process(text: str) -> None:
    """Limited to a thread's stack, as in a worker. Without a bound, a signal kills the process."""
    tried = (
        "from django.conf import settings; settings.configure()\n"
        "import django; django.setup()\n"
        "import threading\n"
        "from approvals import conditions\n"
        "def look(done):\n"
        "    try: done()\n"
        "    except Exception as error: print(type(error).__name__)\n"
        f"text = {text}\n"
        "for done in (lambda: conditions.check(text, ('args',)), lambda: conditions.is_true(text, {'args': {}})):\n"
        "    thread = threading.Thread(target=look, args=(done,)); thread.start(); thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", tried], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])


def test_one_that_is_too_long_is_refused_when_it_is_typed() -> None:
    longest = "true" + " " * (conditions.MAX_CHARS - 4)
    conditions.check(longest, ())
    with pytest.raises(ValidationError, match="at most 2,000"):
        conditions.check(f"{longest} ", ())


def test_a_stored_one_that_is_too_long_asks() -> None:
    rule = Rule(name="endless", verdict="allow", condition=" || ".join(["true"] * 1000), order=1)
    rule._prefetched_objects_cache = {"groups": []}  # type: ignore[attr-defined]
    ruling = policy.evaluate([rule], policy.Call(tool="t", effect_class="irreversible", arguments={}))
    assert (ruling.verdict, "could not be evaluated" in ruling.reason) == ("ask", True)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("", 0),
        ("args.amount > 3", 0),
        ("args.name in ['a', 'b']", 0),
        ("args.items.exists(i, i > 3)", 1),
        ("args.items.exists(i, i > 3) && args.others.all(o, (o + 1) > 3)", 1),
        ("args.items.filter(i, i > 3).map(i, i).all(i, i > 4)", 1),
        ("args.items.all(i, args.known.exists(k, k == i))", 2),
        ("args.items.all(i, i in args.known)", 2),
        ("args.items . all ( i , (i.parts.exists(p, p.of.exists_one(o, o == p))))", 3),
        ("args.items.exists(i, i == '.all(x, .all(y,')", 1),
        ('args.items.exists(i, i == "it\\"s .all(x, in" )', 1),
        ("// it's theirs\nargs.items.all(i, args.known.exists(k, k == i)) // isn't it", 2),
    ],
)
def test_loops_within_loops_are_counted(text: str, depth: int) -> None:
    assert conditions.depth_of(text) == depth


TWICE = "args.people.all(p, args.known.exists(k, k == p))"


def test_loops_within_loops_are_followed_over_lists_that_people_write() -> None:
    assert conditions.is_true(TWICE, {"args": {"people": ["b"] * 500, "known": ["a", "b"]}})
    assert not conditions.is_true(TWICE, {"args": {"people": ["c"], "known": ["a", "b"]}})


@pytest.mark.parametrize(
    "condition", [TWICE, TWICE.replace("args.known.", "(args.known + args.known).")], ids=["as it is", "put together"]
)
def test_what_would_go_round_without_end_is_not_evaluated(condition: str) -> None:
    """Nothing can interrupt it, and the rest of the process would stand still meanwhile."""
    long = [f"somebody-{number}" for number in range(50_000)]
    with pytest.raises(ValueError, match="to the power of 2"):
        conditions.is_true(condition, {"args": {"people": long, "known": ["a"]}})


def test_a_call_with_a_list_that_is_too_long_for_its_rules_asks() -> None:
    rule = Rule(name="known people", verdict="allow", condition=TWICE, order=1)
    rule._prefetched_objects_cache = {"groups": []}  # type: ignore[attr-defined]
    arguments = {"people": ["a"] * 2000, "known": ["a"]}
    ruling = policy.evaluate([rule], policy.Call(tool="t", effect_class="irreversible", arguments=arguments))
    assert (ruling.verdict, "has too many values for the condition of known people" in ruling.reason) == ("ask", True)
    few = {"people": ["a"] * 20, "known": ["a"]}
    assert policy.evaluate([rule], policy.Call(tool="t", effect_class="irreversible", arguments=few)).verdict == "allow"


def test_no_list_is_long_enough_to_turn_what_is_forbidden_into_a_question() -> None:
    """The model writes the list."""
    rule = Rule(name="strangers", verdict="deny", condition=f"!({TWICE})", order=1)
    arguments = {"people": ["stranger"], "known": ["a"], "labels": ["x"] * 5000}
    ruling = policy.evaluate([rule], policy.Call(tool="t", effect_class="irreversible", arguments=arguments))
    assert (ruling.verdict, ruling.rule) == ("deny", "strangers")
