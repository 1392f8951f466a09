import itertools
import threading
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from hypothesis import given
from hypothesis import strategies as st

from approvals.models import EffectClass, Risk, Rule
from approvals.policy import Call, Ruling, evaluate, validate_allowed_decisions, validate_condition
from approvals.thresholds import Count, Reviewer, Terms

LAX_TO_STRICT = ["allow", "ask", "deny"]


def rule(verdict: str, groups: tuple[int, ...] = (), **fields: Any) -> Rule:
    """A rule as a query with prefetched groups returns it: judging needs no database."""
    made = Rule(verdict=verdict, **{"name": f"{verdict}-rule"} | fields)
    made._prefetched_objects_cache = {"groups": [Group(pk=pk, name=f"group-{pk}") for pk in groups]}
    return made


def call(**fields: Any) -> Call:
    given: dict[str, Any] = {
        "tool": "refund_order",
        "effect_class": "irreversible",
        "arguments": {"amount": 240, "order": "1001", "items": [1, 2, 3], "note": None},
        "agent": "support",
        "route": "refunds",
        "run": {"step": 3},
        "customer": "c-17",
    }
    return Call(**given | fields)


# --- Verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(["deny", "ask", "allow"])))
def test_deny_beats_ask_beats_allow_in_any_order(order):
    rules = [rule(verdict) for verdict in order]
    assert evaluate(rules, call()).verdict == "deny"
    assert evaluate([r for r in rules if r.verdict != "deny"], call()).verdict == "ask"
    assert evaluate([r for r in rules if r.verdict == "allow"], call()).verdict == "allow"


def test_the_ruling_names_the_rule_and_its_reason():
    ruling = evaluate([rule("deny", name="no-refunds", description="We do not pay back.")], call())
    assert (ruling.rule, ruling.reason) == ("no-refunds", "We do not pay back.")
    assert evaluate([rule("ask", name="refunds")], call()).reason == "refunds"


def test_without_a_rule_reads_run():
    ruling = evaluate([], call(effect_class="read"))
    assert (ruling.verdict, ruling.rule, ruling.risk) == ("allow", "", "low")


@pytest.mark.parametrize(
    ("effect_class", "risk"), [("reversible", "low"), ("compensable", "medium"), ("irreversible", "high")]
)
def test_without_a_rule_everything_but_a_read_asks(effect_class, risk):
    ruling = evaluate([], call(effect_class=effect_class))
    assert (ruling.verdict, ruling.risk, ruling.starter_excluded, ruling.approvals_needed) == ("ask", risk, True, 1)
    assert set(ruling.allowed_decisions) == {"approve", "edit", "reject", "respond"}


@pytest.mark.parametrize("effect_class", ["", "unknown", "READ"])
def test_an_effect_class_nobody_knows_asks_at_high_risk(effect_class):
    ruling = evaluate([], call(effect_class=effect_class))
    assert (ruling.verdict, ruling.risk) == ("ask", "high")


def test_a_tool_that_always_asks_is_not_run_by_an_allowing_rule():
    for effect_class in EffectClass.values:
        ruling = evaluate([rule("allow")], call(effect_class=effect_class, always_ask=True))
        assert (ruling.verdict, ruling.reason) == ("ask", "This tool always asks.")
    assert evaluate([rule("deny"), rule("allow")], call(always_ask=True)).verdict == "deny"
    assert evaluate([rule("ask", name="mine"), rule("allow")], call(always_ask=True)).rule == "mine"


@pytest.mark.parametrize(
    "narrower",
    [
        {"active": False},
        {"agent": "sales"},
        {"route": "orders"},
        {"tool": "refund_orders"},
        {"tool": "REFUND_ORDER"},
        {"effect_class": "read"},
        {"condition": "args.amount > 500"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_rule_that_does_not_address_the_call_is_ignored(narrower):
    for verdict in ("deny", "allow"):
        assert evaluate([rule(verdict, **narrower)], call()).rule == ""


@pytest.mark.parametrize(
    "exact",
    [{"agent": "support"}, {"route": "refunds"}, {"tool": "refund_order"}, {"effect_class": "irreversible"}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_rule_that_addresses_the_call_counts(exact):
    assert evaluate([rule("deny", **exact)], call()).verdict == "deny"


# --- Conditions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "condition",
    [
        "args.amount > 100",
        "args.amount > 100.0",
        "args.amount == 240 && args.order == '1001'",
        "args.items.exists(item, item > 2)",
        "args.items.all( item , item > 0 )",
        "args.items.map(x, x * 2)[0] == 2",
        "!has(args.discount)",
        "!(has(args.discount) && args.discount > 5)",
        "args.note == null",
        "tool.name == 'refund_order' && tool.effect_class == 'irreversible'",
        "agent.name == 'support' && agent.route == 'refunds'",
        "run.step == 3 && customer.startsWith('c-')",
        "args.order in ['1001', '1002']",
        "  ",
    ],
)
def test_a_condition_that_holds_makes_the_rule_count(condition):
    validate_condition(condition)
    assert evaluate([rule("deny", condition=condition)], call()).verdict == "deny"


BROKEN = [
    "args.discount > 5",  # no such key
    "args.note > 5",  # null is not a number
    "args.order > 5",  # text is not a number
    "args.items[9] == 1",
    "args.amount / 0 == 1",
    "args.order.matches('[')",
    "9223372036854775807 + args.amount > 0",
    "int(args.order + 'x') == 1",
    "nobody.knows == 1",
    "args.amount +",
    "args.amount",  # a number, not true or false
    "args.items",
    "'true'",
    "null",
]


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("condition", BROKEN)
def test_a_condition_that_cannot_be_evaluated_asks_whatever_its_rule_says(condition, verdict):
    for effect_class in ("read", "irreversible"):
        ruling = evaluate([rule(verdict, condition=condition, name="broken")], call(effect_class=effect_class))
        assert (ruling.verdict, ruling.rule) == ("ask", "broken")
        assert "the condition of broken could not be evaluated" in ruling.reason


@pytest.mark.parametrize("condition", ['{"a": 1}[args.token] > 0', 'duration(args.token) > duration("1s")'])
def test_the_reason_of_a_ruling_quotes_no_argument_where_a_condition_fails(condition):
    validate_condition(condition)
    hidden = call(arguments={"token": "sk_live_42"}, secret=("token",))
    ruling = evaluate([rule("ask", condition=condition, name="keys")], hidden)
    assert ruling.verdict == "ask"
    assert ruling.reason.startswith("the condition of keys could not be evaluated: ")
    assert "sk_live_42" not in ruling.reason


def test_a_broken_rule_does_not_weaken_a_denial_nor_let_an_allowance_through():
    broken = rule("allow", condition="args.discount > 5")
    assert evaluate([broken, rule("deny")], call()).verdict == "deny"
    assert evaluate([broken, rule("allow")], call()).verdict == "ask"


def test_has_guards_a_key_that_may_be_missing():
    guarded = rule("deny", condition="has(args.discount) && args.discount > 5")
    assert evaluate([guarded], call()).rule == ""
    assert evaluate([guarded], call(arguments={"discount": 9})).verdict == "deny"


def test_one_condition_can_be_judged_by_many_threads_at_once():
    rules, verdicts = [rule("deny", condition="args.items.exists(x, x == args.amount)")], []

    def judge(amount: int) -> None:
        for _ in range(200):
            ruling = evaluate(rules, call(arguments={"items": [1, 2, 3], "amount": amount}))
            verdicts.append((amount, ruling.verdict))

    threads = [threading.Thread(target=judge, args=(amount,)) for amount in (2, 7, 3, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(verdicts) == 800
    assert all(verdict == ("deny" if amount < 4 else "ask") for amount, verdict in verdicts)


@pytest.mark.parametrize(
    "condition", ["args.amount >", "1 +", "args.", "args.amount > 5 )", "(" * 300 + "true" + ")" * 300]
)
def test_a_condition_that_does_not_compile_is_refused_when_saved(condition):
    with pytest.raises(ValidationError, match="does not compile"):
        validate_condition(condition)


@pytest.mark.parametrize("condition", ["amount > 5", "arg.amount > 5", "args.amount > limit", "item > args.amount"])
def test_a_condition_that_names_what_rules_cannot_see_is_refused_when_saved(condition):
    with pytest.raises(ValidationError, match="can look at args, tool, agent, run, customer"):
        validate_condition(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "args.items.all(item, item > 0)",
        "args.items.exists( item, item > args.amount )",
        "args.items . exists (item, item > 0)",
        "args.items.exists_one(x, x == 1)",
        "args.items.filter(x, x > 1).size() == 2",
        "args.items.map(x, x + 1).exists(y, y == 2)",
        "args.items.all(a, args.items.exists(b, a == b))",
    ],
)
def test_the_loop_names_of_macros_are_allowed(condition):
    validate_condition(condition)


@pytest.mark.parametrize("value", [[], None, "approve", {"approve": 1}, ["approve", "shrug"], [["approve"]], [{}], [1]])
def test_allowed_decisions_are_a_list_of_known_ones(value):
    with pytest.raises(ValidationError, match="non-empty list"):
        validate_allowed_decisions(value)
    validate_allowed_decisions(["approve", "reject"])


# --- Terms -------------------------------------------------------------------------------------


def test_the_strictest_terms_of_all_asking_rules_apply():
    ruling = evaluate(
        [
            rule("ask", name="first", risk="low", approvals_needed=2, expires_seconds=600, hold_seconds=5,
                 starter_excluded=False),
            rule("ask", name="second", risk="critical", expires_seconds=60, on_expiry="stop",
                 allowed_decisions=["reject", "approve"]),
            rule("ask", name="third", risk="medium", hold_seconds=30, allowed_decisions=["approve", "edit", "reject"]),
        ],
        call(),
    )  # fmt: skip
    assert ruling == Ruling(
        verdict="ask",
        reason="first",
        rule="first",
        rule_version=1,
        risk="critical",
        approvals_needed=2,
        starter_excluded=True,
        expires_seconds=60,
        on_expiry="stop",
        allowed_decisions=("approve", "reject"),
        hold_seconds=30,
    )


def test_rules_that_allow_no_decision_in_common_leave_only_a_rejection():
    rules = [rule("ask", allowed_decisions=["approve"]), rule("ask", allowed_decisions=["edit"])]
    assert evaluate(rules, call()).allowed_decisions == ("reject",)


def test_terms_nobody_sets_are_left_to_the_installation():
    ruling = evaluate([rule("ask")], call())
    assert (ruling.expires_seconds, ruling.hold_seconds, ruling.groups) == (None, None, ())


def test_a_rule_that_names_no_times_asks_for_those_of_the_installation(settings):
    settings.APPROVAL_EXPIRES_SECONDS, settings.APPROVAL_TARGET_SECONDS, settings.UNDO_HOLD_SECONDS = 3600, 60, 5
    silent, patient = rule("ask"), rule("ask", expires_seconds=604800, target_seconds=900, hold_seconds=0)
    for rules in ([silent, patient], [patient, silent]):
        ruling = evaluate(rules, call())
        assert (ruling.expires_seconds, ruling.target_seconds, ruling.hold_seconds) == (3600, 60, 5)


def test_an_expiry_of_0_is_none_and_no_shorter_than_any_other(settings):
    settings.APPROVAL_EXPIRES_SECONDS = 3600
    assert evaluate([rule("ask", expires_seconds=0)], call()).expires_seconds is None
    assert evaluate([rule("ask", expires_seconds=0), rule("ask", expires_seconds=60)], call()).expires_seconds == 60


def test_an_installation_without_a_target_brings_none_into_the_comparison(settings):
    settings.APPROVAL_TARGET_SECONDS = 0
    assert evaluate([rule("ask"), rule("ask", target_seconds=900)], call()).target_seconds == 900


@pytest.mark.parametrize(
    ("groups", "who"),
    [
        ([(), ()], ()),
        ([(1, 2), ()], (1, 2)),
        ([(), (2,)], (2,)),
        ([(1, 2), (2, 3)], (2,)),
        ([(2, 3), (1, 2)], (2,)),
    ],
)
def test_only_groups_that_every_rule_accepts_may_decide(groups, who):
    ruling = evaluate([rule("ask", groups=ids) for ids in groups], call())
    assert (ruling.groups, ruling.terms) == (who, ())


def test_rules_that_name_other_groups_each_want_their_own():
    """Otherwise an added rule that asks could replace the people whom another asks."""
    ruling = evaluate([rule("ask", groups=ids, grants_allowed=True) for ids in [(1, 2), (2, 3), (3, 1)]], call())
    assert set(ruling.groups) == {1, 2, 3}
    assert not ruling.grants_allowed
    assert not approves(ruling, [person(1)])
    assert approves(ruling, [person(1), person(2)])


def test_a_rule_whose_condition_breaks_is_named_beside_those_that_ask():
    """It may have been meant to forbid the call, with a misspelled name."""
    typo = rule("deny", condition="args.ammount > 3", name="no-more-than-three")
    ruling = evaluate([rule("ask", risk="low"), typo], call())
    assert ruling.verdict == "ask"
    assert ruling.reason == "ask-rule; the condition of no-more-than-three could not be evaluated: KeyError"
    assert evaluate([typo], call()).reason == "the condition of no-more-than-three could not be evaluated: KeyError"


def test_a_ruling_survives_being_stored():
    ruling = evaluate([rule("ask", groups=(4, 5), hold_seconds=7)], call())
    stored = ruling.as_json()
    assert stored["groups"] == [4, 5]
    assert Ruling(**{name: tuple(v) if isinstance(v, list) else v for name, v in stored.items()}) == ruling


# --- Properties --------------------------------------------------------------------------------


conditions = st.sampled_from(
    ["", "args.amount > 100", "args.amount > 500", "args.missing > 1", "args.amount", "nonsense("]
)
rules = st.builds(
    rule,
    st.sampled_from(LAX_TO_STRICT),
    condition=conditions,
    tool=st.sampled_from(["", "refund_order", "get_order"]),
    effect_class=st.sampled_from(["", "read", "irreversible"]),
    active=st.booleans(),
    risk=st.sampled_from(Risk.values),
    approvals_needed=st.integers(1, 3),
    starter_excluded=st.booleans(),
    expires_seconds=st.none() | st.integers(1, 100),
    hold_seconds=st.none() | st.integers(0, 60),
    groups=st.sets(st.integers(1, 3)).map(tuple),
)
calls = st.builds(
    call,
    tool=st.sampled_from(["refund_order", "get_order"]),
    effect_class=st.sampled_from(EffectClass.values),
    always_ask=st.booleans(),
)


def person(*groups: int) -> Reviewer:
    return Reviewer(sum(2**group for group in groups), f"person-{groups}", {group: str(group) for group in groups})


PEOPLE = [person(*groups) for groups in [(), (1,), (2,), (3,), (1, 2), (2, 3), (1, 2, 3)]]


def approves(ruling: Ruling, people: list[Reviewer]) -> bool:
    """Whether these people are enough."""
    if ruling.terms:
        return Count(Terms.from_json(ruling.terms), ruling.about, people).is_enough
    counted = [one for one in people if not ruling.groups or set(ruling.groups) & set(one.groups)]
    return len(counted) >= ruling.approvals_needed


def strictness(verdict: str) -> int:
    return LAX_TO_STRICT.index(verdict)


@given(st.lists(rules, max_size=6), calls, rules.filter(lambda r: r.verdict != "allow"), st.data())
def test_adding_a_rule_that_denies_or_asks_never_makes_a_ruling_laxer(existing, judged, added, data):
    before = evaluate(existing, judged)
    place = data.draw(st.integers(0, len(existing)))
    after = evaluate([*existing[:place], added, *existing[place:]], judged)
    assert strictness(after.verdict) >= strictness(before.verdict)
    if before.verdict == after.verdict == "ask" and before.rule:
        assert Risk.values.index(after.risk) >= Risk.values.index(before.risk)
        assert after.approvals_needed >= before.approvals_needed
        assert after.starter_excluded >= before.starter_excluded
        assert (after.hold_seconds or 0) >= (before.hold_seconds or 0)
        assert before.expires_seconds is None or after.expires_seconds <= before.expires_seconds
        assert set(after.allowed_decisions) <= {*before.allowed_decisions, "reject"}
        assert not before.groups or after.groups
        people = data.draw(st.lists(st.sampled_from(PEOPLE), max_size=4, unique_by=lambda one: one.pk))
        assert not approves(after, people) or approves(before, people)


@given(st.lists(rules, max_size=6), calls, st.data())
def test_the_order_of_rules_never_changes_the_verdict(existing, judged, data):
    reordered = data.draw(st.permutations(existing))
    assert evaluate(reordered, judged).verdict == evaluate(existing, judged).verdict


@given(st.lists(rules, max_size=6), calls)
def test_nothing_but_a_read_or_an_allowing_rule_runs(existing, judged):
    ruling = evaluate(existing, judged)
    if ruling.verdict == "allow" and judged.effect_class != "read":
        assert any(r.verdict == "allow" and r.active and r.name == ruling.rule for r in existing)
    if judged.always_ask:
        assert ruling.verdict != "allow"


# --- What the database refuses -----------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, False),
        ({"effect_class": "irreversible"}, False),
        ({"agent": "support", "route": "refunds"}, False),
        ({"effect_class": "read"}, True),
        ({"tool": "refund_order"}, True),
        ({"tool": "refund_order", "effect_class": "irreversible"}, True),
    ],
)
def test_a_rule_allows_one_exact_tool_or_only_reads(fields, allowed):
    made = Rule(name="lax", verdict="allow", **fields)
    if allowed:
        made.full_clean()
        made.save()
        return
    with pytest.raises(ValidationError, match="must name one tool exactly, or cover only reads"):
        made.full_clean()
    with pytest.raises(IntegrityError), transaction.atomic():
        made.save()
    for verdict in ("ask", "deny"):
        Rule.objects.create(name=verdict, verdict=verdict, **fields)
        with pytest.raises(IntegrityError), transaction.atomic():
            Rule.objects.filter(name=verdict).update(verdict="allow")


@pytest.mark.django_db
@pytest.mark.parametrize("fields", [{"approvals_needed": 0}, {"hold_seconds": 61}])
def test_a_rule_without_a_person_or_with_a_long_hold_is_refused(fields):
    with pytest.raises(IntegrityError), transaction.atomic():
        Rule.objects.create(name="odd", verdict="ask", **fields)


@pytest.mark.django_db
def test_stored_rules_are_judged_with_their_groups(roles, django_assert_num_queries):
    made = Rule.objects.create(name="refunds", verdict="ask", tool="refund_order", order=2)
    made.groups.set([roles["approver"], roles["manager"]])
    Rule.objects.create(name="big-refunds", verdict="ask", condition="args.amount > 100", risk="high", order=1)
    with django_assert_num_queries(2):
        ruling = evaluate(Rule.objects.prefetch_related("groups"), call())
    assert (ruling.rule, ruling.risk) == ("big-refunds", "high")
    assert set(ruling.groups) == {roles["approver"].pk, roles["manager"].pk}


# --- Where values came from --------------------------------------------------------------------


def test_a_condition_can_look_at_where_a_value_came_from_and_the_ruling_says_what_was_found():
    planted = call(origins=lambda: {"order": "outside", "amount": "trusted"})
    ruling = evaluate([rule("deny", condition='provenance.order == "outside"')], planted)
    assert ruling.verdict == "deny"
    assert ruling.values == ({"name": "provenance.order", "value": "outside"},)
    assert evaluate([rule("deny", condition='provenance.amount == "outside"')], planted).verdict == "ask"


def test_where_values_came_from_is_found_once_and_only_for_a_condition_that_asks():
    asked = []

    def origins():
        asked.append("asked")
        return {"order": "outside"}

    evaluate([rule("ask", condition="args.amount > 100")] * 3, call(origins=origins))
    assert asked == []
    evaluate([rule("ask", condition='provenance.order == "outside"')] * 3, call(origins=origins))
    assert asked == ["asked"]


def test_a_condition_about_the_origin_of_what_is_not_there_asks():
    ruling = evaluate([rule("allow", condition='provenance.iban == "staff"')], call())
    assert (ruling.verdict, "could not be evaluated" in ruling.reason) == ("ask", True)
