"""What a worker caches of the configuration between runs. Elsewhere in the tests nothing is cached."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agentapp import configuration_cache, loop
from agentapp.models import Run, Tool
from approvals import configuration
from approvals.clock import Now
from approvals.models import Grant, Rule
from tests.conftest import Clerk, call, calls, says
from tests.grants import a_grant

READ = ('FROM "approvals_rule" ', 'FROM "agentapp_tool" ', 'FROM "approvals_channel" ', 'FROM "agentapp_killswitch" ')
PAYING = calls(call("p", "pay", account="ana", amount=1))


@pytest.fixture
def rule(settings, clerk: Clerk) -> Rule:
    """A rule that lets the agent pay, with its event."""
    settings.CONFIGURATION_KEPT_SECONDS = 60
    made = Rule(name="payments", tool="pay", verdict="allow")
    configuration.save(made, "user:ada")
    return made


def drive(run: Run) -> list[str]:
    """Which parts of the configuration one drive has read."""
    with CaptureQueriesContext(connection) as captured:
        loop.drive(run.pk)
    run.refresh_from_db()
    return [part for part in READ if any(part in query["sql"] for query in captured)]


def test_a_worker_reads_the_configuration_once_for_many_runs(clerk: Clerk, rule: Rule) -> None:
    first, second = (clerk.start(PAYING, says("done")) for _ in range(2))

    assert drive(first) == list(READ)
    assert drive(second) == []
    assert (first.state, second.state) == ("succeeded", "succeeded")


def test_a_changed_rule_counts_from_the_next_look_on(clerk: Clerk, rule: Rule) -> None:
    allowed, denied = (clerk.start(PAYING, says("done")) for _ in range(2))
    drive(allowed)
    rule.verdict = "deny"
    configuration.save(rule, "user:ada")

    assert drive(denied) == list(READ)

    assert clerk.execution(allowed, "p").result_status == "ok"
    assert clerk.execution(denied, "p").reason == "policy_denied"


def test_a_tool_that_is_disabled_while_its_request_waits_does_not_run(clerk: Clerk, rule: Rule, dana: User) -> None:
    rule.verdict = "ask"
    configuration.save(rule, "user:ada")
    run = clerk.run(PAYING, says("done"))
    [approval] = clerk.open(run)
    clerk.decide(approval, dana)
    pay = Tool.objects.get(name="pay")
    pay.enabled = False
    configuration.save(pay, "user:ada")

    clerk.drive(run)

    assert clerk.execution(run, "p").reason == "tool_disabled"


def test_a_grant_counts_no_longer_than_it_is_in_force(clerk: Clerk, rule: Rule, dana: User) -> None:
    """Expiry is not an event."""
    grant = a_grant(clerk, dana)
    sending = calls(call("s", "send", to="ann"))
    granted = clerk.run(sending, says("done"))
    Grant.objects.filter(pk=grant.pk).update(made_at=Now() - timedelta(days=2), expires_at=Now() - timedelta(days=1))

    asked = clerk.run(sending, says("done"))

    assert (granted.state, asked.state) == ("succeeded", "waiting")


def test_what_is_changed_by_hand_is_noticed_when_the_time_is_over(
    clerk: Clerk, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [1000.0]
    monkeypatch.setattr(configuration_cache.time, "monotonic", lambda: moment[0])
    drive(clerk.start(PAYING, says("done")))
    Rule.objects.update(verdict="deny")
    moment[0] += 59
    before = clerk.start(PAYING, says("done"))
    drive(before)
    moment[0] += 2
    after = clerk.start(PAYING, says("done"))
    drive(after)

    assert clerk.execution(before, "p").result_status == "ok"
    assert clerk.execution(after, "p").reason == "policy_denied"


@pytest.mark.parametrize(("hash", "seconds", "reads"), [("a", 60, 1), ("", 60, 2), ("a", 0, 2)])
def test_nothing_is_kept_without_a_chain_or_without_time(settings, hash: str, seconds: int, reads: int) -> None:
    settings.CONFIGURATION_KEPT_SECONDS = seconds
    configuration_cache.at("another", "part", lambda: 0)
    read: list[int] = []

    for _ in range(2):
        configuration_cache.at(hash, "part", lambda: read.append(1))

    assert len(read) == reads
