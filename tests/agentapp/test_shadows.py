"""A draft that watches says what it would have said of every live call. It decides nothing, whatever it does."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from agentapp import simulating
from approvals import policy, rule_terms, rule_versions, shadows
from approvals.models import Event, Rule, RuleVersion
from tests.conftest import call, calls, says


def watching(user: User, rule: Rule, **terms: Any) -> RuleVersion:
    if rule._state.adding:
        draft: Any = rule_versions.draft_new(rule, [], user, "test")
    else:
        draft = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **terms}, user, "test")
    done = rule_versions.watch(draft.pk, draft.terms_digest, True, "test")
    assert isinstance(done, RuleVersion), done
    return done


def test_what_it_says_is_kept_beside_the_ruling_and_decides_nothing(clerk, ada):
    draft = watching(ada, Rule(name="no-labels", tool="label", verdict="deny", description="No more labels."))
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("a", "label", text="red"), call("b", "look_up", what="x")), says("ok"))
    labelled = clerk.execution(run, "a")
    assert (labelled.result_status, labelled.allowed_by) == ("ok", "rule:labels")
    kept = [{"rule": "no-labels", "terms": draft.terms_digest, "verdict": "deny", "reason": "No more labels."}]
    assert labelled.ruling["shadow"] == kept
    assert "shadow" not in clerk.execution(run, "b").ruling
    events = [event for event in Event.objects.filter(run_id=run.pk) if "ruling" in event.data]
    assert [event.data["ruling"].get("shadow") for event in events] == [kept, None]
    assert simulating.watched(draft) == {
        "agreed": 0, "allow": 0, "ask": 0, "deny": 1, "failed": 0, "total": 1, "cut": False,
    }  # fmt: skip


def test_it_stands_in_the_place_of_its_own_rule(clerk, ada):
    rule = Rule.objects.create(name="labels", tool="label", verdict="deny")
    draft = watching(ada, rule, verdict="allow", condition='args.text == "red"')
    run = clerk.run(calls(call("a", "label", text="red"), call("b", "label", text="blue")), says("ok"))
    said = [clerk.execution(run, id).ruling["shadow"][0]["verdict"] for id in ("a", "b")]
    assert said == ["allow", "ask"]
    assert [clerk.execution(run, id).reason for id in ("a", "b")] == ["policy_denied"] * 2
    assert {name: n for name, n in simulating.watched(draft).items() if n} == {"allow": 1, "ask": 1, "total": 2}


def test_one_that_breaks_down_is_on_record_and_breaks_nothing(clerk, ada, monkeypatch):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    draft = watching(ada, Rule(name="broken", tool="label", verdict="deny"))

    def breaks(rules: Any, draft: Any) -> Any:
        raise RuntimeError("with a secret in it")

    monkeypatch.setattr(shadows, "with_draft", breaks)
    run = clerk.run(calls(call("a", "label", text="red")), says("ok"))
    execution = clerk.execution(run, "a")
    assert (run.state, execution.result_status) == ("succeeded", "ok")
    assert execution.ruling["shadow"] == [{"rule": "broken", "terms": draft.terms_digest, "error": "RuntimeError"}]
    assert simulating.watched(draft)["failed"] == 1


def test_terms_that_no_rule_can_have_break_nothing(clerk, ada):
    draft = watching(ada, Rule(name="odd", tool="label", verdict="deny"))
    RuleVersion.objects.filter(pk=draft.pk).update(terms={**draft.terms, "order": "first"})
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("a", "label", text="red")), says("ok"))
    assert (run.state, clerk.execution(run, "a").ruling["shadow"][0]["error"]) == ("succeeded", "ValidationError")


def test_one_whose_condition_fails_would_ask(clerk, ada):
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    watching(ada, Rule(name="typo", tool="label", verdict="deny", condition="args.nothing > 3"))
    run = clerk.run(calls(call("a", "label", text="red")), says("ok"))
    assert (run.state, clerk.execution(run, "a").ruling["shadow"][0]["verdict"]) == ("succeeded", "ask")


def test_one_that_stops_watching_says_nothing_more(clerk, ada):
    draft = watching(ada, Rule(name="no-labels", tool="label", verdict="deny"))
    rule_versions.watch(draft.pk, draft.terms_digest, False, "test")
    Rule.objects.create(name="labels", tool="label", verdict="allow")
    run = clerk.run(calls(call("a", "label", text="red")), says("ok"))
    assert "shadow" not in clerk.execution(run, "a").ruling


@pytest.mark.django_db
def test_it_is_read_with_the_rules_and_judged_without_a_query(ada, roles, django_assert_num_queries):
    rule = Rule.objects.create(name="labels", tool="label", verdict="ask")
    rule.groups.add(roles["approver"])
    with django_assert_num_queries(2):
        shadows.read()
    watching(ada, rule, verdict="ask", risk="high")
    watching(ada, Rule(name="other", tool="label", verdict="ask"))
    with django_assert_num_queries(2):
        rules, found = shadows.read()
    assert ([rule.name for rule in rules], [shadow.row.name for shadow in found]) == (["labels"], ["labels", "other"])
    with django_assert_num_queries(0):
        said = shadows.verdicts(found, rules, policy.Call("label", "reversible", {"text": "red"}))
    assert [one["verdict"] for one in said] == ["ask", "ask"]


@pytest.mark.django_db
def test_a_reason_holds_no_secret_argument(ada):
    watching(ada, Rule(name="pins", tool="pay", verdict="deny", description="x", condition="int(args.pin) > 1"))
    rules, found = shadows.read()
    call = policy.Call("pay", "irreversible", {"pin": "hunter2-hunter2"}, secret=("pin",))
    [said] = shadows.verdicts(found, rules, call)
    assert said["verdict"] == "ask"
    assert "hunter2" not in said["reason"]


@pytest.mark.django_db
def test_no_more_than_a_few_watch_at_once(ada):
    for number in range(rule_versions.MAX_SHADOWS):
        watching(ada, Rule(name=f"r{number}", verdict="ask"))
    draft = rule_versions.draft_new(Rule(name="one-too-many", verdict="ask"), [], ada, "test")
    refused = rule_versions.watch(draft.pk, draft.terms_digest, True, "test")
    assert not isinstance(refused, RuleVersion)
    assert refused.code == "too_many"
