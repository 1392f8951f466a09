"""Evals with rules other than those in force: drafts before they are activated, and rules left out."""

import json
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from agentapp import evaluating
from agentapp.evals import reporting, results, runner, suites
from agentapp.evals.cases import Case
from agentapp.evals.comparing import compare
from agentapp.models import EvalRun, EvalSuite, ToolExecution
from agentapp.refused import Refused
from approvals import ledger, rule_terms, rule_versions
from approvals.models import Event, Rule, RuleVersion
from tests.agentapp.evals.conftest import a_case
from tests.conftest import Clerk, call, calls, says
from tests.teams import Team

PAYS = a_case(
    "pays",
    script=[calls(call("a", "pay", account="ana", amount=5)), says("done")],
    tools={"pay": {"result": "paid"}},
    people=[{"decide": "approve"}],
    expect={"routing": [{"tool": "pay", "verdict": "ask"}]},
)


@pytest.fixture
def suite(clerk: Clerk) -> EvalSuite:
    made = suites.create("desk", "What the clerk does.", "test")
    suites.save_case(made, PAYS, "test")
    return made


@pytest.fixture
def rule(db: None) -> Rule:
    return Rule.objects.create(name="payments", tool="pay", verdict="ask")


def drafted(rule: Rule, user: User, **terms: Any) -> RuleVersion:
    kept = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **terms}, user, ledger.actor_of(user))
    assert isinstance(kept, RuleVersion), kept
    return kept


def ran(suite: EvalSuite, *cases: Case, with_drafts: Any = (), without_rules: Any = (), **more: Any) -> EvalRun:
    rules = evaluating.supposed(with_drafts, without_rules)
    made = results.create(suite, cases or evaluating.chosen(suite), rules=rules, **more)
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def test_a_draft_decides_in_an_eval_that_supposes_it_and_nowhere_else(suite, clerk, rule, ada):
    drafted(rule, ada, verdict="deny")
    before = ran(suite)
    after = ran(suite, with_drafts=["payments"])
    found = compare(before, after)
    [regressed] = found.of("regressed")
    assert regressed.reasons == ("pay: expected verdict ask, got deny",)
    assert "pay: refused instead of asked everybody who may decide" in regressed.what
    assert found.versions == {"rules": ("payments",)}
    assert after.supposes == "with the draft of payments"
    assert "By other rules: with the draft of payments." in reporting.summary(after, runner.outcomes(after))
    rule.refresh_from_db()
    assert rule.verdict == "ask"
    real = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
    assert len(clerk.open(real)) == 1
    assert ran(suite).verdict == "passed"


def test_a_rule_that_is_left_out_decides_nothing_in_that_eval(suite):
    Rule.objects.create(name="no-paying", tool="pay", verdict="deny", order=1)
    before, after = ran(suite), ran(suite, without_rules=["no-paying"])
    assert (before.verdict, after.verdict) == ("failed", "passed")
    assert compare(before, after).versions == {"rules": ("no-paying",)}
    assert after.supposes == "without no-paying"


def test_once_its_draft_is_in_force_a_rule_is_of_the_version_that_was_tried(suite, rule, ada):
    draft = drafted(rule, ada, verdict="deny", groups=["manager"])
    tried = ran(suite, with_drafts=["payments"])
    for name, value in rule_terms.columns(draft.terms).items():
        setattr(rule, name, value)
    rule.save()
    rule.groups.set(Group.objects.filter(name="manager"))
    assert compare(tried, ran(suite)).versions == {}


def test_groups_of_a_rule_are_of_its_version(suite, rule, roles):
    before = ran(suite)
    rule.groups.add(roles["manager"])
    assert compare(before, ran(suite)).versions == {"rules": ("payments",)}


def test_what_is_supposed_goes_for_agents_that_are_asked(suite, clerk, rule, ada):
    Team(clerk).may_ask("refunds", says("never"))
    drafted(rule, ada, verdict="deny")
    asks = a_case(
        "asks",
        script=[calls(call("a", "ask_refunds", input="Pay Ana.")), says("done")],
        agents={"refunds": [calls(call("b", "pay", account="ana", amount=5)), says("done")]},
        tools={"pay": {"result": "paid"}},
        people=[{"tool": "pay", "decide": "approve"}],
        expect={"tools_called": ["pay"]},
    )
    before, after = ran(suite, asks), ran(suite, asks, with_drafts=["payments"])
    assert (before.verdict, after.verdict) == ("passed", "failed")
    refused = ToolExecution.objects.get(run__parent__eval_results__eval_run=after, name="pay")
    assert refused.reason == "policy_denied"


def test_trying_other_rules_takes_the_right_to_view_rules(suite, rule, ada, sam):
    drafted(rule, ada, verdict="deny")
    with pytest.raises(Refused, match="right to view rules"):
        evaluating.start_eval(suite, sam, with_drafts=["payments"])
    with pytest.raises(Refused, match="right to view rules"):
        evaluating.start_eval(suite, sam, without_rules=["payments"])
    made = evaluating.start_eval(suite, ada, with_drafts=["payments"])
    assert made.rules["drafts"][0]["terms"]["verdict"] == "deny"
    said = Event.objects.filter(chain=results.CHAIN, type="eval.queued").latest("seq").data
    assert (said["with_drafts"], said["without_rules"]) == (["payments"], [])


@pytest.mark.parametrize(("given", "said"), [
    ({"with_drafts": ["payments"]}, "The rule 'payments' has no draft."),
    ({"without_rules": ["other"]}, "There is no rule 'other' in force."),
])  # fmt: skip
def test_what_cannot_be_supposed_begins_nothing(suite, rule, ada, given, said):
    with pytest.raises(Refused, match=said):
        evaluating.start_eval(suite, ada, **given)
    assert EvalRun.objects.count() == 0


def test_a_draft_that_nobody_can_decide_by_any_more_skips_its_cases(suite, rule, ada):
    group = Group.objects.create(name="short-lived")
    drafted(rule, ada, groups=["short-lived"])
    rules = evaluating.supposed(["payments"], [])
    made = results.create(suite, evaluating.chosen(suite), rules=rules)
    group.delete()
    runner.go_on(made.pk)
    made.refresh_from_db()
    [outcome] = runner.outcomes(made)
    assert (made.state, outcome.verdict) == ("finished", "skipped")
    assert outcome.reasons == ["There is no longer a group 'short-lived'."]
    Rule.objects.all().delete()
    assert runner.outcomes(ran_again(made))[0].reasons == ["There is no longer a rule 'payments'."]


def ran_again(made: EvalRun) -> EvalRun:
    again = results.create(made.suite, evaluating.chosen(made.suite), rules=made.rules)
    runner.go_on(again.pk)
    again.refresh_from_db()
    return again


def test_the_command_tries_drafts_and_leaves_rules_out(suite, rule, ada):
    drafted(rule, ada, verdict="deny")
    call_command("evals", "run", "desk", stdout=StringIO())
    out = StringIO()
    with pytest.raises(CommandError, match="failed"):
        call_command(
            "evals", "run", "desk", "--with-draft", "payments", "--baseline", "latest", "--json", stdout=out
        )  # fmt: skip
    said = json.loads(out.getvalue())
    assert said["rules"] == {"with_drafts": ["payments"], "without_rules": []}
    assert said["comparison"]["counts"]["regressed"] == 1
    assert said["comparison"]["versions"] == {"rules": ["payments"]}
    with pytest.raises(CommandError, match="failed"):
        call_command("evals", "run", "desk", "--with-draft", "payments", "--baseline", "latest", stdout=StringIO())
    drafts, again = EvalRun.objects.exclude(rules={}).order_by("created_at")
    assert again.baseline == drafts.baseline != drafts, "the latest is the latest by the rules in force"
    assert drafts.baseline.rules == {}
    with pytest.raises(CommandError, match="no rule 'other' in force"):
        call_command("evals", "run", "desk", "--without-rule", "other", stdout=StringIO())
