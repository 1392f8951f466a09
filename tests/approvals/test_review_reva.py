"""What rules and hours promise and do not keep: each test fails on what is."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from approvals import rule_terms, rule_versions
from approvals.business_hours import BusinessHours
from approvals.models import Rule, RuleVersion


@pytest.mark.django_db
def test_what_was_in_force_before_versions_were_kept_is_kept_as_it_was(client, roles, django_user_model):
    """The first edit in the admin of a rule without a version writes down, as in force, what was typed."""
    from django.contrib.auth.models import User
    from django.urls import reverse

    admin = User.objects.create_superuser("root", password="x")
    rule = Rule.objects.create(name="pays", tool="", verdict="ask", approvals_needed=2, description="As it was.")
    stored = rule_terms.terms_of(rule)
    typed = Rule.objects.get(pk=rule.pk)  # what a ModelForm does to the row it edits
    typed.approvals_needed, typed.description = 1, "As somebody would like it."
    rule_versions.keep_draft(typed, rule_terms.terms_of(typed), admin, "user:root")
    kept = RuleVersion.objects.get(rule=rule, state="in_force")
    assert kept.terms == stored


def test_hours_into_a_skipped_hour_end_where_it_begins():
    """01:00-02:30 on the night when 02:00 becomes 03:00: one hour of it takes place."""
    hours = BusinessHours.parse("sun 01:00-02:30", ZoneInfo("Europe/Berlin"))
    begin, end = datetime(2026, 3, 29, 0, tzinfo=UTC), datetime(2026, 3, 29, 1, tzinfo=UTC)  # 01:00 CET to 03:00 CEST
    assert hours.between(begin, end) == 3600


@pytest.mark.parametrize("seconds", [2147483647])
def test_a_time_that_a_rule_may_have_can_be_counted(seconds):
    hours = BusinessHours.parse("mon 09:00-10:00", ZoneInfo("UTC"))
    assert hours.add(datetime(2026, 1, 1, tzinfo=UTC), seconds)


@pytest.mark.parametrize(
    "condition", ['"+".join(["1"] * 30_000) + " == 1"', '"args" + ".a" * 15_000 + " == 1"'], ids=["read", "evaluated"]
)
def test_a_long_condition_is_refused_and_does_not_end_the_process(condition):
    """By a signal: the web process where it is typed (`admin:rule_meaning`, the right to view rules is enough), and
    each worker that judges a call by it where it was stored. A condition has no longest length.
    """
    import subprocess
    import sys

    tried = (
        "from django.conf import settings; settings.configure()\n"
        "import django; django.setup()\n"
        "from approvals import conditions\n"
        f"text = {condition}\n"
        "try: conditions.check(text, ('args',)); conditions.is_true(text, {'args': {}})\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", tried], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])


@pytest.mark.skipif("connection.vendor != 'postgresql'")
@pytest.mark.django_db(transaction=True)
def test_a_group_that_a_rule_comes_to_name_meanwhile_is_not_deleted(monkeypatch):
    """Without it the rule would be open to everybody who may decide."""
    import threading

    from django.contrib.auth.models import Group
    from django.db.models import ProtectedError

    from approvals import configuration

    legal = Group.objects.create(name="Legal")
    rule = Rule.objects.create(name="pays", tool="pay", verdict="ask")
    naming = configuration.naming

    def looked(group):
        """Between the look and the deletion somebody activates a draft that names the group."""
        found = naming(group)

        def activate():
            configuration.save(Rule.objects.get(pk=rule.pk), "user:ada", {"groups": [legal]})
            connection.close()

        other = threading.Thread(target=activate)
        other.start()
        other.join(20)
        assert not other.is_alive()
        return found

    monkeypatch.setattr(configuration, "naming", looked)
    try:
        configuration.delete(legal, "user:bob")
    except ProtectedError:
        pass
    assert [group.name for group in rule.groups.all()] == ["Legal"]
