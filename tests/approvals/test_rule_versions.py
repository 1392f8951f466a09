"""Versions of rules: what the database refuses, and two people who activate at once."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.utils import timezone

from approvals import configuration, ledger, rule_terms, rule_versions
from approvals.models import Rule, RuleVersion
from approvals.rule_versions import Simulated
from approvals.standing import Refusal
from tests.races import few_tries, race


def simulated(draft: RuleVersion) -> RuleVersion:
    """As if it had just been simulated, with no differences."""
    found = Simulated(draft.terms_digest, ledger.height(), {"looked_at": 0}, [])
    done = rule_versions.note_simulation(draft.pk, found, "test")
    assert isinstance(done, RuleVersion), done
    return done


def drafted(user: User, rule: Rule, **terms: Any) -> RuleVersion:
    kept = rule_versions.keep_draft(rule, {**rule_terms.terms_of(rule), **terms}, user, "test")
    assert isinstance(kept, RuleVersion), kept
    return kept


@pytest.fixture
def rule(db: None) -> Rule:
    return Rule.objects.create(name="payments", tool="pay", verdict="ask")


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"state": "in_force", "number": 1, "activated_at": timezone.now()}, "rule_version_was_simulated"),
        (
            {
                "state": "in_force", "number": 1, "activated_at": timezone.now(), "simulated_at": timezone.now(),
                "simulated_digest": "of other terms",
            },
            "rule_version_was_simulated",
        ),
        ({"state": "in_force", "origin": "file"}, "rule_version_numbered_in_force"),
        ({"number": 4}, "rule_version_numbered_in_force"),
        ({"state": "shadow"}, "rule_version_shadow_since"),
        ({"needed_second_person": True}, "rule_version_second_person"),
    ],
)  # fmt: skip
def test_the_database_refuses_what_no_person_may_do(
    rule: Rule, ada: User, columns: dict[str, Any], constraint: str
) -> None:
    draft = drafted(ada, rule, verdict="deny")
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        RuleVersion.objects.filter(pk=draft.pk).update(**columns)


def test_the_database_refuses_that_the_last_editor_is_the_second_person(rule: Rule, ada: User, otto: User) -> None:
    draft = drafted(ada, rule, verdict="deny")
    RuleVersion.objects.filter(pk=draft.pk).update(needed_second_person=True, activator=otto)
    with pytest.raises(IntegrityError, match="rule_version_second_person"), transaction.atomic():
        RuleVersion.objects.filter(pk=draft.pk).update(activator=ada)


def test_a_rule_has_one_draft(rule: Rule, ada: User) -> None:
    draft = drafted(ada, rule, verdict="deny")
    with pytest.raises(IntegrityError), transaction.atomic():
        RuleVersion.objects.create(rule=rule, terms={}, terms_digest="x", edited_at=draft.edited_at)
    assert drafted(ada, rule, verdict="deny", risk="high").pk == draft.pk


def test_a_draft_row_of_a_rule_decides_nothing(rule: Rule) -> None:
    with pytest.raises(IntegrityError, match="rule_draft_decides_nothing"), transaction.atomic():
        Rule.objects.filter(pk=rule.pk).update(version=0)


def test_every_column_but_its_identity_is_a_term(rule: Rule, roles: dict[str, Group]) -> None:
    rule.groups.add(roles["approver"])
    terms = rule_terms.terms_of(rule)
    names = {field.name for field in Rule._meta.concrete_fields} - {"id", "name", "version"}
    assert set(terms) == names | {"groups"}
    again = rule_terms.as_rule(rule, terms, rule_terms.groups_of(terms))
    assert configuration.describe(again) == configuration.describe(rule)


def test_a_draft_whose_group_is_gone_is_not_activated(rule: Rule, ada: User) -> None:
    draft = simulated(drafted(ada, rule, groups=["nobody's"]))
    refused = rule_versions.activate(draft.pk, draft.terms_digest, ada, "test")
    assert isinstance(refused, Refusal)
    assert "There is no longer a group" in refused.message


def test_what_was_written_past_the_drafts_is_a_version_before_it_goes(rule: Rule, ada: User) -> None:
    draft = simulated(drafted(ada, rule, verdict="deny"))
    assert isinstance(rule_versions.activate(draft.pk, draft.terms_digest, ada, "test"), RuleVersion)
    assert list(rule.versions.values_list("number", "origin", "state")) == [
        (2, "admin", "in_force"), (1, "found", "retired"),
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_of_two_who_activate_at_once_one_wins(ada: User, otto: User) -> None:
    for number in range(few_tries()):
        rule = Rule.objects.create(name=f"r{number}", tool="pay", verdict="ask")
        draft = simulated(drafted(ada, rule, verdict="deny"))
        done = race(
            *[
                lambda user=user: rule_versions.activate(draft.pk, draft.terms_digest, user, user.username)
                for user in (ada, otto)
            ]
        )
        assert sorted(type(each).__name__ for each in done) == ["Refusal", "RuleVersion"], done
        rule.refresh_from_db()
        [winner] = [each for each in done if isinstance(each, RuleVersion)]
        current = rule.versions.get(state="in_force")
        assert (rule.version, rule.verdict, current.activated_by) == (2, "deny", winner.activated_by)


@pytest.mark.django_db(transaction=True)
def test_of_two_drafts_simulated_beside_each_other_one_comes_into_force(ada: User, otto: User) -> None:
    for number in range(few_tries()):
        drafts = []
        for name in ("a", "b"):
            rule = Rule.objects.create(name=f"{name}{number}", tool="pay", verdict="ask")
            drafts.append(drafted(ada, rule, verdict="deny"))
        drafts = [simulated(draft) for draft in drafts]
        done = race(
            *[
                lambda draft=draft: rule_versions.activate(draft.pk, draft.terms_digest, otto, "otto")
                for draft in drafts
            ]
        )
        assert sorted(type(each).__name__ for each in done) == ["Refusal", "RuleVersion"], done


def test_what_was_in_force_before_versions_were_kept_is_kept_as_it_is_stored(rule: Rule, ada: User) -> None:
    stored = rule_terms.terms_of(rule)
    typed = Rule.objects.get(pk=rule.pk)  # as a form does with the row it edits
    typed.approvals_needed, typed.description = 3, "As somebody would like it."
    rule_versions.keep_draft(typed, rule_terms.terms_of(typed), ada, "test")
    found = RuleVersion.objects.get(rule=rule, state="in_force")
    assert (found.terms, found.terms_digest) == (stored, rule_terms.digest_of(stored))
