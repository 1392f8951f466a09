"""A draft of a rule is tried on last month's calls, and the numbers match counting by hand."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import simulating
from agentapp.admin.rule_words import headline
from agentapp.messages import ToolCall
from agentapp.models import Tool, ToolExecution
from agentapp.proposals import Proposal
from approvals import ledger, rule_terms, rule_versions
from approvals.digest import canonical
from approvals.models import Rule, RuleVersion
from approvals.policy import Ruling
from tests.agentapp.run_builder import RunBuilder, make_tool

pytestmark = pytest.mark.django_db

NOW = timezone.now()


def a_call(run: RunBuilder, tool: Tool, verdict: str, rule: str = "", **arguments: Any) -> ToolExecution:
    """A call of the last days, with the ruling frozen on it."""
    text = canonical(arguments)
    ruling = {
        "verdict": verdict, "reason": rule or "No rule.", "rule": rule, "risk": "medium",
        "allowed_decisions": ["approve", "edit", "reject", "respond"],
    }  # fmt: skip
    call = ToolCall(f"c{ToolExecution.objects.count()}", tool.name, text)
    [execution] = run.step("", Proposal(call, tool, arguments, text, ruling, asks=verdict == "ask"))
    return execution


def drafted(user: User, rule: Rule | None = None, **terms: Any) -> RuleVersion:
    if rule is None:
        return rule_versions.draft_new(Rule(name="drafted", **terms), [], user, "test")
    kept = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **terms}, user, "test")
    assert isinstance(kept, RuleVersion)
    return kept


def simulated(draft: RuleVersion, user: User) -> RuleVersion:
    done = simulating.simulate(RuleVersion.objects.select_related("rule").get(pk=draft.pk), user, timezone.now())
    assert isinstance(done, RuleVersion), done
    return RuleVersion.objects.get(pk=draft.pk)


@pytest.fixture
def pay(db: None) -> Tool:
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "number"}, "pin": {"type": "string"}, "memo": {"default": "none"}},
    }
    return make_tool("pay", "irreversible", input_schema=schema, secret_fields=["pin"])


@pytest.fixture
def over_100(db: None) -> Rule:
    return Rule.objects.create(name="over-100", tool="pay", verdict="ask", condition="args.amount > 100.0")


def test_the_numbers_of_a_month_are_those_of_counting_by_hand(ada: User, pay: Tool, over_100: Rule) -> None:
    small = Rule.objects.create(name="small", tool="pay", verdict="allow", condition="args.amount <= 100.0")
    run, look = RunBuilder(ada), make_tool("look")
    amounts = [5, 20, 40, 60, 80, 100, 120, 200, 400, 600, 900]
    for amount in amounts:
        verdict, rule = ("ask", over_100.name) if amount > 100 else ("allow", small.name)
        a_call(run, pay, verdict, rule, amount=amount)
    a_call(run, look, "allow", what="this rule is not about it")
    old = a_call(run, pay, "allow", small.name, amount=99)
    ToolExecution.objects.filter(pk=old.pk).update(proposed_at=timezone.now() - timedelta(days=31))

    # It asks from 50 on but not above 500. No other rule covers those, so they ask too, for want of a rule.
    draft = simulated(drafted(ada, over_100, condition="args.amount > 50.0"), ada)
    more = [amount for amount in amounts if 50 < amount <= 100]
    assert draft.simulation["looked_at"] == len(amounts)
    assert draft.simulation["more_ask"] == len(more) == draft.simulation["fewer_run"] == draft.simulation["changed"]
    assert draft.simulation["fewer_ask"] == draft.simulation["more_refused"] == draft.simulation["more_run"] == 0
    assert [(call["before"], call["after"]) for call in draft.simulated_calls] == [("allow", "ask")] * len(more)

    denying = simulated(drafted(ada, verdict="deny", tool="pay", condition="args.amount >= 400.0"), ada)
    refused = [amount for amount in amounts if amount >= 400]
    assert denying.simulation["more_refused"] == len(refused) == denying.simulation["fewer_ask"]
    # The next draft stands in for the rule in force, not for that other draft.
    allowing = simulated(drafted(ada, small, condition="args.amount <= 10000.0"), ada)
    assert (allowing.simulation["looked_at"], allowing.simulation["changed"]) == (len(amounts), 0)


@pytest.mark.parametrize("condition", ["args.amount > '5'", "1 + 1"])
def test_calls_for_which_the_condition_cannot_be_evaluated_are_counted(ada: User, pay: Tool, condition: str) -> None:
    run = RunBuilder(ada)
    for amount in range(9):
        a_call(run, pay, "ask", amount=amount)
    a_call(run, make_tool("look"), "allow", what="this rule is not about it")

    draft = simulated(drafted(ada, verdict="ask", tool="pay", condition=condition), ada)

    assert (draft.simulation["failed"], draft.simulation["about"]) == (9, 9)
    said = "The condition could not be evaluated for 9 of 9 calls it is about; such a call asks a person."
    assert said in headline(draft.simulation)
    sound = simulated(drafted(ada, draft.rule, **draft.terms | {"condition": "args.amount > 5.0"}), ada)
    assert (sound.simulation["failed"], sound.simulation["about"]) == (0, 9)
    assert not any("could not be evaluated" in sentence for sentence in headline(sound.simulation))


def test_switching_a_rule_off_is_simulated_too(ada: User, pay: Tool) -> None:
    never = Rule.objects.create(name="never", tool="pay", verdict="deny")
    a_call(RunBuilder(ada), pay, "deny", "never", amount=5)
    draft = simulated(drafted(ada, never, active=False), ada)
    assert (draft.simulation["fewer_refused"], draft.simulation["more_ask"]) == (1, 1)


def test_calls_that_ask_on_other_terms_are_counted_apart(ada: User, pay: Tool, over_100: Rule) -> None:
    a_call(RunBuilder(ada), pay, "ask", "over-100", amount=200)
    draft = simulated(drafted(ada, over_100, risk="critical"), ada)
    assert (draft.simulation["changed"], draft.simulation["other_terms"]) == (0, 1)


@pytest.mark.parametrize(
    "terms",
    [
        {"thresholds": [{"approve": 1, "deny": 2}]},
        {"escalation": [{"after": 60, "remind": True}]},
        {"assurance": "passkey"},
    ],
)
def test_who_must_decide_and_who_may_later_are_terms_too(ada: User, pay: Tool, over_100: Rule, terms: Any) -> None:
    a_call(RunBuilder(ada), pay, "ask", "over-100", amount=200)
    draft = simulated(drafted(ada, over_100, **terms), ada)
    assert (draft.simulation["changed"], draft.simulation["other_terms"]) == (0, 1)


def test_what_only_the_rules_of_today_changed_is_said_so(ada: User, pay: Tool, over_100: Rule) -> None:
    a_call(RunBuilder(ada), pay, "allow", "a rule that is gone", amount=200)
    draft = simulated(drafted(ada, over_100, description="Another word."), ada)
    assert (draft.simulation["more_ask"], draft.simulation["since_then"]) == (1, 1)


@pytest.mark.parametrize(
    ("verdict", "unknown", "refused"), [("deny", 1, 0), ("ask", 0, 0)], ids=["it matters", "it does not matter"]
)
def test_what_history_does_not_hold_is_unknown_and_not_guessed(
    ada: User, pay: Tool, monkeypatch: pytest.MonkeyPatch, verdict: str, unknown: int, refused: int
) -> None:
    monkeypatch.setattr(simulating, "KNOWN", simulating.KNOWN - {"customer"})
    a_call(RunBuilder(ada), pay, "ask", amount=200)
    draft = simulated(drafted(ada, verdict=verdict, tool="pay", condition='customer == "4711"'), ada)
    assert (draft.simulation["unknown"], draft.simulation["more_refused"]) == (unknown, refused)


def test_defaults_count_as_they_did_when_the_call_was_judged(ada: User, pay: Tool) -> None:
    a_call(RunBuilder(ada), pay, "ask", amount=5)
    draft = simulated(drafted(ada, verdict="deny", tool="pay", condition='args.memo == "none"'), ada)
    assert draft.simulation["more_refused"] == 1


def test_secret_arguments_are_nowhere_in_what_is_kept(ada: User, pay: Tool) -> None:
    a_call(RunBuilder(ada), pay, "ask", amount=5, pin="hunter2-hunter2")
    for condition in ('args.pin == "x" || args.amount < 9.0', "int(args.pin) > 1", "args.pin > 1"):
        draft = drafted(ada, verdict="deny", tool="pay", condition=condition)
        simulated(draft, ada)
        draft.refresh_from_db()
        assert draft.simulation["looked_at"] == 1
        assert "hunter2" not in canonical([draft.simulation, draft.simulated_calls])
        rule_versions.discard(RuleVersion.objects.select_related("rule").get(pk=draft.pk), "test")


def test_only_the_latest_calls_are_looked_at_and_that_is_said(
    ada: User, pay: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulating, "MAX_CALLS", 3)
    monkeypatch.setattr(simulating, "MAX_SHOWN", 2)
    run = RunBuilder(ada)
    made = [a_call(run, pay, "ask", amount=amount) for amount in range(5)]
    draft = simulated(drafted(ada, verdict="deny", tool="pay"), ada)
    assert (draft.simulation["looked_at"], draft.simulation["cut"], draft.simulation["more_refused"]) == (3, True, 3)
    assert [call["execution"] for call in draft.simulated_calls] == [str(made[4].pk), str(made[3].pk)]


def test_it_asks_the_database_as_often_for_many_calls_as_for_few(
    ada: User, pay: Tool, django_assert_num_queries: Any
) -> None:
    run = RunBuilder(ada)
    draft = RuleVersion.objects.select_related("rule").get(pk=drafted(ada, verdict="deny", tool="pay").pk)
    since = timezone.now() - timedelta(days=30)
    for number in range(2, 9, 6):
        for amount in range(number):
            a_call(run, pay, "ask", amount=amount)
        with django_assert_num_queries(3):  # the rules, the tools, the calls
            sets = simulating._sets(draft)
            assert isinstance(sets, simulating.Sets)
            found = simulating._count(sets, since)
        assert found.looked_at == ToolExecution.objects.count()


def test_a_simulation_of_terms_that_changed_meanwhile_is_not_kept(ada: User, pay: Tool, over_100: Rule) -> None:
    seen = drafted(ada, over_100, condition="args.amount > 50.0")
    drafted(ada, over_100, condition="args.amount > 60.0")
    before = ledger.height()
    assert not isinstance(simulating.simulate(seen, ada, timezone.now()), RuleVersion)
    assert ledger.height() == before


@pytest.mark.parametrize(
    "terms",
    [
        {"answered_by": "customer"},
        {"grants_allowed": True},
        {"on_expiry": "stop"},
        {"expires_seconds": 60},
        {"business_hours": True},
        {"target_seconds": 60},
        {"hold_seconds": 0},
    ],
    ids=lambda terms: next(iter(terms)),
)
def test_a_draft_by_which_others_answer_or_not_as_long_asks_on_other_terms(
    ada: User, pay: Tool, over_100: Rule, terms: dict[str, Any]
) -> None:
    a_call(RunBuilder(ada), pay, "ask", "over-100", amount=200)
    draft = simulated(drafted(ada, over_100, **terms), ada)
    assert (draft.simulation["looked_at"], draft.simulation["other_terms"]) == (1, 1)


def test_other_terms_that_only_the_rules_of_today_set_are_said_to_be_theirs(
    ada: User, pay: Tool, over_100: Rule
) -> None:
    a_call(RunBuilder(ada), pay, "ask", "over-100", amount=200)
    Rule.objects.filter(pk=over_100.pk).update(approvals_needed=2)
    over_100.refresh_from_db()

    as_today = simulated(drafted(ada, over_100, description="Another word."), ada)
    assert (as_today.simulation["other_terms"], as_today.simulation["since_then"]) == (1, 1)
    otherwise = simulated(drafted(ada, over_100, approvals_needed=3), ada)
    assert (otherwise.simulation["other_terms"], otherwise.simulation["since_then"]) == (1, 0)


def test_a_customer_who_could_not_be_asked_is_not_asked_by_a_draft_either(ada: User, pay: Tool, over_100: Rule) -> None:
    call = a_call(RunBuilder(ada), pay, "ask", "over-100", amount=200)
    frozen = Ruling.from_json({**call.ruling, "customer": True, "people": False}).without_customer()
    ToolExecution.objects.filter(pk=call.pk).update(ruling=frozen.as_json())
    draft = simulated(drafted(ada, over_100, answered_by="customer"), ada)
    assert (draft.simulation["looked_at"], draft.simulation["other_terms"]) == (1, 0)
