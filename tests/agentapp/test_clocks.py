"""A process with a wrong clock deletes only what is over, and what it makes ends on time, by the database's clock."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from agentapp import auth, customers, first_admin, health, insights, old_sessions, tasks, weighing
from agentapp import webhooks as hooks
from agentapp.health_figures import WORKER_CLOCK
from agentapp.importing import pending
from agentapp.importing.planning import Given
from agentapp.models import (
    ApiToken,
    CustomerLink,
    Heartbeat,
    PendingImport,
    RollUp,
    SetupToken,
    WebhookDelivery,
    WebhookEndpoint,
)
from agentapp.sweep import sweep
from approvals import clock, ledger
from approvals.models import Checkpoint, Verification
from tests.agentapp.importing.test_planning import shop
from tests.conftest import call, calls, says

pytestmark = pytest.mark.django_db

AHEAD, BEHIND = timedelta(days=365), timedelta(days=-365)
NOW = timezone.now
type Off = Callable[[timedelta], None]


@pytest.fixture
def clock_is_off(monkeypatch: pytest.MonkeyPatch) -> Off:
    def off(by: timedelta) -> None:
        monkeypatch.setattr(timezone, "now", lambda: NOW() + by)
        monkeypatch.setattr(clock, "datetime", type("Off", (datetime,), {"now": lambda zone=None: NOW() + by}))
        monkeypatch.setattr(clock, "_off", timedelta(0))  # this process has not asked the database yet

    return off


def about(moment: datetime | None, after: timedelta = timedelta(0)) -> bool:
    assert moment is not None
    return abs(moment - NOW() - after) < timedelta(minutes=1)


class TestOneThatIsAhead:
    def test_signs_nobody_out(self, client: Client, dana: User, clock_is_off: Off) -> None:
        client.force_login(dana)
        key = client.session.session_key
        UserSession.objects.create(user=dana, session_key="begins", ip="203.0.113.7", user_agent="", data={})
        clock_is_off(AHEAD)
        assert old_sessions.forget() == 0
        assert (Session.objects.get().pk, UserSession.objects.count()) == (key, 1)

    def test_keeps_what_was_delivered_lately(self, clock_is_off: Off) -> None:
        endpoint = WebhookEndpoint.objects.create(
            name="desk", url="https://x.test/", events=["breaker.opened"], credential="DESK"
        )
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "breaker.opened", {})
        hooks.collect()
        assert WebhookDelivery.objects.filter(endpoint=endpoint).update(state="failed") == 1
        clock_is_off(AHEAD)
        assert hooks.forget_old() == 0

    def test_keeps_an_import_that_somebody_is_in_the_middle_of(self, ada: User, clock_is_off: Off) -> None:
        kept = pending.keep(Given(shop(orders="get")), ada)
        clock_is_off(AHEAD)
        pending.forget()
        assert pending.find(kept.pk, ada) == kept

    def test_adds_up_no_hours_that_are_yet_to_come(self, clock_is_off: Off) -> None:
        insights.catch_up()
        clock_is_off(AHEAD)
        insights.catch_up()
        assert RollUp.objects.get().until <= NOW()


@pytest.mark.parametrize("off", [AHEAD, BEHIND])
class TestAWorkersThatIsOff:
    def test_signs_the_ledger_at_the_database_s_time(self, clerk: Any, clock_is_off: Off, off: timedelta) -> None:
        clerk.run(says("done"))
        clock_is_off(off)
        tasks.look_after_ledger()
        assert about(Checkpoint.objects.get().made_at)
        assert about(Verification.objects.get().started_at)

    def test_weighs_a_call_at_the_database_s_time(
        self, clerk: Any, clock_is_off: Off, off: timedelta, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = clerk.start(calls(call("a", "pay", account="ana", amount=20)), says("done"))
        real, seen = weighing.weigh, []
        monkeypatch.setattr(weighing, "weigh", lambda *told: seen.append(told[-1]) or real(*told))
        clock_is_off(off)
        clerk.drive(run)
        assert seen
        assert all(map(about, seen))

    def test_is_said_for_as_long_as_it_sweeps(self, off: timedelta) -> None:
        sweep()
        assert not Heartbeat.objects.filter(pk=WORKER_CLOCK).exists()
        with pytest.MonkeyPatch.context() as wrong:
            wrong.setattr(clock, "datetime", type("Off", (datetime,), {"now": lambda zone=None: NOW() + off}))
            wrong.setattr(clock, "_off", timedelta(0))
            sweep()
        assert [problem.code for problem in health.look()] == ["worker_clock"]
        Heartbeat.objects.filter(pk=WORKER_CLOCK).update(at=NOW() - timedelta(minutes=3))
        assert health.look() == []


class TestWhatOneMakesThatIsAhead:
    def test_of_deliveries_goes_in_its_time(self, clock_is_off: Off) -> None:
        WebhookEndpoint.objects.create(
            name="desk",
            url="https://x.test/",
            events=["breaker.opened"],
            credential="DESK",
            created_at=NOW() - timedelta(hours=1),
        )
        with ledger.transaction():
            ledger.record(ledger.CONFIGURATION, "breaker.opened", {})
        clock_is_off(AHEAD)
        hooks.collect()
        assert about(WebhookDelivery.objects.get().created_at)

    def test_of_imports_goes_in_its_time(self, ada: User, clock_is_off: Off) -> None:
        clock_is_off(AHEAD)
        pending.keep(Given(shop(orders="get")), ada)
        assert about(PendingImport.objects.get().created_at)

    def test_of_links_for_customers_ends_in_its_time(self, clerk: Any, sam: User, clock_is_off: Off) -> None:
        run = clerk.start(says("Hello."), conversation="ticket-1")
        clock_is_off(AHEAD)
        customers.make_link(customers.of_staff(run.conversation, sam), hours=2)
        assert about(CustomerLink.objects.get().expires_at, timedelta(hours=2))

    def test_of_links_for_the_first_administrator_ends_in_its_time(self, clock_is_off: Off) -> None:
        clock_is_off(AHEAD)
        first_admin.issue_token()
        assert about(SetupToken.objects.get().expires_at, first_admin.VALID_FOR)

    def test_of_tokens_ends_in_its_time(self, dana: User, clock_is_off: Off) -> None:
        clock_is_off(AHEAD)
        call_command("create_token", dana.username, "--name=nightly", "--scope=runs:read", "--expires-days=7")
        made = ApiToken.objects.get()
        assert about(made.created_at)
        assert about(made.expires_at, timedelta(days=7))
        new, _ = auth.rotate_token(made, "x", timedelta(hours=1))
        made.refresh_from_db()
        assert about(made.expires_at, timedelta(hours=1))
        assert about(ApiToken.objects.get(pk=new.pk).expires_at, timedelta(days=7))
        auth.revoke_token(new, "x")
        assert about(ApiToken.objects.get(pk=new.pk).revoked_at)


@pytest.mark.parametrize(("lasts", "opens"), [(timedelta(days=1), True), (timedelta(days=-1), False)])
@pytest.mark.parametrize("off", [AHEAD, BEHIND])
def test_a_token_opens_something_until_it_ends_by_the_clock_of_the_database(
    dana: User, clock_is_off: Off, off: timedelta, lasts: timedelta, opens: bool
) -> None:
    _, secret = auth.issue_token(dana, "nightly", ["runs:read"], "x", NOW() + lasts)
    clock_is_off(off)
    assert (auth.authenticate(secret) is not None) is opens
    used = ApiToken.objects.get().last_used_at
    assert (used is not None and about(used)) is opens
