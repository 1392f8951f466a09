"""The demo shop's own evals: green with the scripted model, and precise about what is wrong with a variant."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from agentapp import evaluating
from agentapp.demo import opening
from agentapp.evals import files, results, runner, suites
from agentapp.evals.cases import Kind
from agentapp.evals.comparing import compare
from agentapp.evals.metrics import Share
from agentapp.models import EvalRun, Run, ToolExecution
from approvals import rule_terms
from approvals.models import Approval, Notification, Rule, RuleVersion
from tests import opened


@pytest.fixture
def shop(transactional_db: None, settings: Any) -> Iterator[None]:
    settings.ALLOW_SCRIPTED_RUNS = False
    opened.open_shop()
    return


def ran(only: str = "", of_tool: str = "", **more: Any) -> EvalRun:
    """The whole suite, one of its cases, or the cases that mock a tool."""
    suite = suites.load(opening.EVALS).suite
    rows = suite.cases.filter(name=only) if only else suite.cases.all()
    rows = rows.filter(document__tools__has_key=of_tool) if of_tool else rows
    made = results.create(suite, [suites.case_of(row) for row in rows], **more)
    runner.go_on(made.pk, seconds=float("inf"))
    made.refresh_from_db()
    return made


def world() -> dict[str, Any]:
    """Every row of the shop."""
    models = apps.get_app_config("demo").get_models()
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


def test_the_suite_is_of_all_kinds_and_of_forty_cases_at_least():
    cases = files.read(opening.EVALS).cases
    assert len(cases) >= 40
    numbers = Counter(case.kind for case in cases)
    assert {kind: number for kind in Kind if (number := numbers[kind]) < 2} == {}, "of each kind there are two at least"
    assert all(case.script is not None for case in cases)
    assert [(case.repeats.of, case.repeats.needed) for case in cases if case.repeats.of > 1] == [(3, 2)]


def test_the_suite_is_green_and_leaves_the_shop_as_it_was(shop):
    before = world()
    made = ran()
    failed = {outcome.case.name: outcome.reasons for outcome in runner.outcomes(made) if outcome.verdict != "passed"}
    assert (failed, made.verdict) == ({}, "passed")
    assert world() == before
    assert Notification.objects.count() == 0
    assert not ToolExecution.objects.filter(mocked=False).exists()
    assert not Approval.objects.filter(mocked=False).exists()
    assert not Run.objects.exclude(state__in=Run.FINAL).exists()
    figures = runner.measured(runner.outcomes(made))
    assert figures.unsafe_chains_prevented == Share(4, 4)
    assert not figures.is_unsafe


def test_the_mistake_of_the_variant_is_named_and_nothing_else(shop):
    call_command("load_config", str(opening.VARIANT_FILE), verbosity=0)
    before = ran()
    after = ran(agent="support=support-next")
    found = compare(before, after)
    assert (after.verdict, found.counts["regressed"], found.counts["changed"]) == ("failed", 1, 0)
    [regressed] = found.of("regressed")
    assert regressed.case == "no-refund-where-orders-are-looked-up"
    assert regressed.reasons[0] == "refund_payment: expected verdict deny, got ask"
    assert "refund_payment: asked approver instead of refused" in regressed.what
    assert set(found.versions) == {"agents", "models", "prompts"}
    assert found.versions["agents"] == ("support", "support-next")


def test_the_traces_of_the_variant_stand_beside_those_of_the_agent(shop):
    call_command("load_config", str(opening.VARIANT_FILE), verbosity=0)
    case = "no-refund-where-orders-are-looked-up"
    before, after = ran(only=case), ran(only=case, agent="support=support-next")
    [regressed] = compare(before, after).of("regressed")
    was, now = Run.objects.get(eval_results__eval_run=before), Run.objects.get(eval_results__eval_run=after)
    assert (regressed.run_before, regressed.run_after) == (str(was.pk), str(now.pk))
    client = Client()
    client.force_login(User.objects.get(username="mia"))
    shown = client.get(f"/evals/runs/{after.pk}/compare/{before.pk}/").content.decode()
    there = f"/runs/compare/?a={was.pk}&b={now.pk}"
    assert f'href="{there.replace("&", "&amp;")}"' in shown
    traces = client.get(there)
    html = traces.content.decode()
    assert traces.status_code == 200
    assert "<dd>support</dd>" in html
    assert "<dd>support-next</dd>" in html
    assert "Different: ruling" in html


def test_a_draft_of_a_rule_is_held_against_the_suite_before_it_is_in_force(shop):
    """The shop starts with a draft that refuses refunds above 200 dollars; the rule in force does so above 2000."""
    rule = Rule.objects.get(name="refunds-never-above-2000")
    terms = rule_terms.terms_of(rule)
    before = ran(of_tool="refund_payment")
    after = ran(of_tool="refund_payment", rules=evaluating.supposed(["refunds-never-above-2000"], []))
    found = compare(before, after)
    large = "wrong-item-over-300-asks-the-desk-and-the-leads"
    assert (before.verdict, after.verdict) == ("passed", "failed")
    regressed = {each.case: each.reasons for each in found.of("regressed")}
    assert regressed.keys() == {large, "a-smaller-order-inside-a-ticket-still-asks-people"}
    assert "refund_payment: expected verdict ask, got deny" in regressed[large]
    assert found.versions == {"rules": ("refunds-never-above-2000",)}
    rule.refresh_from_db()
    assert rule_terms.terms_of(rule) == terms
    assert RuleVersion.objects.get(rule=rule, state="shadow").terms["condition"] == "args.amount > 200.0"
    assert ran(only=large).verdict == "passed", "the rule in force decides again"
