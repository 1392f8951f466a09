"""Problems are reported, with what they mean; each fault is produced as it happens. And nothing that is down approves
anything or keeps a page from loading.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F
from django.db.utils import OperationalError
from django.test import Client
from django.utils import timezone

from agentapp import breakers, health, loop, sweep, tool_sync
from agentapp.models import Breaker, Heartbeat, Run, Tool, WebhookEndpoint, WebhookProgress
from approvals import broker, ledger, notify
from approvals.models import Approval, Channel, Notification
from approvals.proof import checkpoints
from tests import clerk_tools
from tests.absent import own_redis
from tests.conftest import call, calls, says
from tests.rows import a_request, read, take

pytestmark = pytest.mark.django_db


def codes() -> list[str]:
    return [problem.code for problem in health.look()]


@pytest.fixture
def tool_fails() -> None:
    with ledger.transaction():
        for _ in range(3):
            breakers.failed(breakers.Thing(Breaker.Scope.TOOL, "refund_order"), "secret words of a server")


def told_over(config: dict[str, str]) -> Notification:
    """The notification of a request over a channel."""
    channel = Channel.objects.create(name="desk", kind="memory", config=config)
    approval = a_request()
    return Notification.objects.create(approval=approval, channel=channel, created_at=timezone.now())


def test_where_all_is_well_nothing_is_said_in_one_query(django_assert_num_queries):
    sweep.sweep()
    with django_assert_num_queries(1):
        assert health.look() == []


def test_a_beat_that_has_stopped_is_said_and_one_that_is_back_is_not():
    sweep.sweep()
    Heartbeat.objects.update(at=F("at") - timedelta(seconds=59))
    assert codes() == []
    Heartbeat.objects.update(at=F("at") - timedelta(seconds=61))
    [problem] = health.look()
    assert problem.code == "not_swept"
    assert "2 min" in problem.message
    assert "nothing is approved by itself" in problem.means
    sweep.sweep()
    assert codes() == []


def test_a_run_that_no_worker_takes_is_said(clerk):
    run = clerk.start(says("done"))
    assert codes() == []
    Run.objects.update(updated_at=F("updated_at") - timedelta(seconds=90))
    assert codes() == ["workers_late"]
    assert loop.drive(run.pk) is None
    assert codes() == []


def test_a_lease_that_ran_out_counts_from_its_end(clerk):
    run = clerk.start(says("done"))
    now = timezone.now()
    held = {"state": "running", "lease_token": run.pk, "updated_at": now - timedelta(hours=1)}
    Run.objects.update(**held, lease_until=now - timedelta(seconds=10))
    assert codes() == []
    Run.objects.update(lease_until=now - timedelta(seconds=70))
    assert codes() == ["workers_late"]


def test_people_who_could_not_be_told_are_said():
    notification = told_over({"fails": "for_good"})
    assert codes() == []
    assert notify.send(notification.pk) is False
    assert codes() == ["people_not_told"]
    # The request waits all the same.
    assert read(notification.approval).state == Approval.State.PENDING
    # Held back for a night, say.
    Notification.objects.update(created_at=F("created_at") - timedelta(hours=12))
    assert codes() == ["people_not_told"]
    Notification.objects.update(sending_until=F("sending_until") - timedelta(hours=2))
    assert codes() == []


def test_a_key_that_signs_no_more_is_said_where_it_has_signed(settings: Any, tmp_path: Path) -> None:
    lost = replace(settings.LEDGER, signing_key="", signing_key_file=tmp_path / "away.key", makes_key=False)
    kept = replace(lost, makes_key=True, anchor_file=tmp_path / "checkpoints.jsonl", anchor_url="")
    settings.LEDGER = lost
    assert codes() == []
    settings.LEDGER = kept
    a_request()
    assert checkpoints.make()
    settings.LEDGER = replace(lost, signing_key_file=tmp_path / "elsewhere.key")
    assert codes() == ["ledger_not_signed"]


def test_a_message_that_hangs_is_said_after_a_while():
    notification = told_over({"fails": "for_now"})
    notify.send(notification.pk)
    assert codes() == []
    Notification.objects.update(created_at=F("created_at") - timedelta(minutes=11))
    assert codes() == ["people_not_told"]


def test_a_message_that_was_rightly_not_sent_is_no_fault(dana):
    notification = told_over({})
    take(notification.approval, dana, "reject")
    notify.send(notification.pk)
    assert Notification.objects.get().state == "failed"
    assert codes() == []


def test_a_message_for_somebody_in_their_quiet_hours_is_no_fault(dana):
    Notification.objects.create(approval=a_request(), user=dana, created_at=timezone.now() - timedelta(hours=3))
    assert codes() == []


def test_an_open_breaker_is_said(tool_fails):
    [problem] = health.look()
    assert (problem.code, problem.details) == ("breaker_open", "refund_order")
    Breaker.objects.update(state="closed")
    assert codes() == []


def test_tools_of_another_version_on_record_than_in_the_code_are_said(clerk):
    assert codes() == []
    Tool.objects.filter(name__in=["pay", "send"]).update(version="f" * 64)
    [problem] = health.look()
    assert (problem.code, problem.details) == ("tools_not_synced", "pay and 1 more")
    assert problem.message.startswith("2 tools are of another version")
    assert "sync_tools" in problem.means
    tool_sync.sync("system")
    assert codes() == []


@pytest.mark.parametrize(
    "why",
    [{"enabled": False}, {"missing_since": timezone.now()}, {"name": "of_another_release"}],
    ids=["switched off", "missing", "unknown here"],
)
def test_a_tool_that_nobody_here_would_call_may_be_of_any_version(clerk, why):
    Tool.objects.filter(name="pay").update(version="f" * 64, **why)
    assert codes() == []


@pytest.mark.parametrize("modules", [[], ["no.such.module"]])
def test_an_installation_whose_tools_cannot_be_read_is_looked_at_all_the_same(settings, modules):
    settings.TOOL_MODULES = modules
    assert codes() == []


def test_an_endpoint_that_takes_nothing_is_said():
    endpoint = WebhookEndpoint.objects.create(
        name="desk", url="https://desk.example", events=["run.failed"], credential="D"
    )
    WebhookProgress.objects.create(endpoint=endpoint, read_until=timezone.now(), failing_since=timezone.now())
    assert codes() == []
    WebhookProgress.objects.update(failing_since=F("failing_since") - timedelta(minutes=11))
    assert codes() == ["webhooks_failing"]
    WebhookEndpoint.objects.update(active=False)
    # The person who switched it off knows.
    assert codes() == []
    WebhookProgress.objects.update(problem="It has accepted nothing for 5 days.")
    assert codes() == ["webhooks_failing"]


def test_a_broker_that_cannot_be_reached_is_said(settings, monkeypatch):
    settings.EMBEDDED, settings.REDIS_URL = False, "redis://127.0.0.1:1/0"
    [problem] = health.look()
    assert problem.code == "broker"
    assert "nothing is approved by itself" in problem.means


@pytest.mark.redis
def test_a_broker_that_is_full_is_said_and_one_with_room_is_not(settings, tmp_path):
    with own_redis(tmp_path) as server:
        settings.EMBEDDED, settings.REDIS_URL = False, server.url
        assert codes() == []
        server.fill()
        [problem] = health.look()
    assert problem.code == "broker"
    assert "takes no messages" in problem.message
    assert "maxmemory" in problem.details


def test_a_clock_that_is_off_is_said(monkeypatch):
    now = timezone.now()
    monkeypatch.setattr(health, "_process_time", lambda: now + timedelta(seconds=30))
    [problem] = health.look()
    assert problem.code == "clock"


def no_database(*_: Any) -> None:
    raise OperationalError("could not connect to server at 10.1.2.3")


def test_a_database_that_does_not_answer_is_said_without_a_word_of_its_own(monkeypatch, client: Client):
    monkeypatch.setattr(BaseDatabaseWrapper, "cursor", no_database)
    answer = client.get("/readyz/")
    assert answer.status_code == 503
    assert answer.json()["status"] == "unavailable"
    assert [one["code"] for one in answer.json()["problems"]] == ["database"]
    assert "10.1.2.3" not in answer.content.decode()


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("lacking", "named"),
    [
        ("ALTER TABLE agentapp_heartbeat RENAME TO heartbeats_of_later", "agentapp_heartbeat"),
        ("ALTER TABLE agentapp_heartbeat RENAME COLUMN at TO at_of_later", ".at "),
        ("CREATE ROLE countersign_unprepared; SET LOCAL ROLE countersign_unprepared", "django_content_type"),
    ],
    ids=["a table", "a column", "rights"],
)
def test_a_database_that_was_not_prepared_for_this_release_is_said(client: Client, caplog, lacking: str, named: str):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(lacking)
        answer = client.get("/readyz/")
        transaction.set_rollback(True)
    assert answer.status_code == 503
    [problem] = answer.json()["problems"]
    assert problem["code"] == "database"
    assert "manage.py migrate and grant_tables" in problem["means"]
    assert named not in answer.content.decode()
    assert named in caplog.text


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_database_that_takes_no_changes_is_said():
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    try:
        assert codes() == ["database_read_only"]
    finally:
        # The connection goes back to its pool.
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")


def test_whoever_asks_whether_it_is_ready_is_told_what_is_wrong_and_no_names(client: Client, tool_fails):
    answer = client.get("/readyz/")
    assert answer.status_code == 200
    assert answer.json()["status"] == "degraded"
    assert answer.json()["problems"][0]["code"] == "breaker_open"
    assert "refund_order" not in answer.content.decode()
    assert "secret words" not in answer.content.decode()


def test_it_is_looked_at_once_in_a_few_seconds(django_assert_num_queries):
    with django_assert_num_queries(1):
        health.current()
        health.current()


def test_that_nothing_can_be_served_is_looked_at_again_after_a_second(monkeypatch: pytest.MonkeyPatch):
    sweep.sweep()
    with monkeypatch.context() as away:
        away.setattr(BaseDatabaseWrapper, "cursor", no_database)
        assert health.current() == [health.AWAY]
    assert health.current() == [health.AWAY]
    later = time.time() + health.UNAVAILABLE_FOR_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert health.current() == []


def test_whoever_asks_while_somebody_looks_reads_what_was_found_before(monkeypatch: pytest.MonkeyPatch):
    """The database may be away, and a look then takes a while."""
    found = health.current()
    later = time.time() + health.LOOKED_AT_FOR_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    asked_meanwhile: list[list[health.Problem]] = []

    def look() -> list[health.Problem]:
        asked_meanwhile.append(health.current())
        return [health.AWAY]

    monkeypatch.setattr(health, "look", look)
    assert health.current() == [health.AWAY]
    assert asked_meanwhile == [found]


def test_the_first_to_ask_wait_for_one_look(monkeypatch: pytest.MonkeyPatch):
    """Nothing is known yet; each look of its own would take seconds, one after the other."""
    looks, begun, goes_on = [], threading.Event(), threading.Event()

    def look() -> list[health.Problem]:
        looks.append(1)
        begun.set()
        assert goes_on.wait(30)
        return [health.AWAY]

    monkeypatch.setattr(health, "look", look)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(health.current)
        assert begun.wait(30)
        others = [threads.submit(health.current) for _ in range(2)]
        goes_on.set()
        assert [asked.result(30) for asked in (first, *others)] == [[health.AWAY]] * 3
    assert looks == [1]


class TestBanner:
    def test_staff_read_it_on_every_page_and_a_page_does_not_look_itself(
        self, client: Client, ada: User, tool_fails: None, django_assert_max_num_queries: Any
    ) -> None:
        client.force_login(ada)
        assert 'id="unwell"' in client.get("/runs/").content.decode()
        assert "1 breaker is open" not in client.get("/runs/").content.decode()
        with django_assert_max_num_queries(4):
            part = client.get("/health/").content.decode()
        assert "1 breaker is open" in part
        assert "(refund_order)" in part
        assert "1 breaker is open" in client.get("/runs/").content.decode()

    def test_where_all_is_well_it_is_empty(self, client: Client, ada: User) -> None:
        client.force_login(ada)
        assert client.get("/health/").content == b""
        assert 'hx-trigger="load, every 30s"></div>' in client.get("/runs/").content.decode()

    def test_nobody_else_can_ask_for_it(self, client: Client, dana: User, tool_fails: None) -> None:
        health.current()
        client.force_login(dana)
        assert client.get("/health/").status_code == 404
        assert "breaker is open" not in client.get("/runs/").content.decode()

    def test_names_from_outside_are_shown_as_text(self, client: Client, ada: User) -> None:
        with ledger.transaction():
            for _ in range(3):
                breakers.failed(breakers.Thing(Breaker.Scope.TOOL, "<img src=x>"), "down")
        client.force_login(ada)
        assert "<img" not in client.get("/health/").content.decode()


class TestNothingIsApprovedByWhatIsDown:
    def test_with_the_broker_down_a_decision_is_kept_and_the_sweep_finds_the_run(
        self, clerk: Any, monkeypatch: pytest.MonkeyPatch, dana: User
    ) -> None:
        def down(*_: Any, **__: Any) -> None:
            raise OSError("no route to host")

        monkeypatch.setattr(broker.current_app, "send_task", down)
        run = clerk.run(calls(call("a", "pay", account="ana", amount=5)), says("done"))
        approval = Approval.objects.get()
        assert (run.state, approval.state) == ("waiting", Approval.State.PENDING)
        assert sweep.sweep() == []
        assert clerk_tools.effects_of("pay") == []
        clerk.decide(approval, dana)
        assert read(approval).state == Approval.State.APPROVED
        assert sweep.sweep() == [run.pk]
        assert clerk.drive(run).state == "succeeded"
        assert len(clerk_tools.effects_of("pay")) == 1

    def test_a_channel_that_raises_leaves_the_request_waiting(self) -> None:
        notification = told_over({"no_such_key": "1"})
        assert notify.send(notification.pk) is False
        assert read(notification.approval).state == Approval.State.PENDING
        caches["process"].clear()
        assert codes() == ["people_not_told"]
