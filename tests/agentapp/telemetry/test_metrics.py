"""What Prometheus reads, read as Prometheus does."""

import subprocess
import sys
from datetime import timedelta

import pytest
from django.conf import settings as django_settings
from django.core.cache import caches
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from agentapp import health, tasks
from agentapp.models import Breaker, Run
from agentapp.telemetry import counting, metrics
from approvals import ledger
from approvals.ledger import Fact
from approvals.models import Approval
from tests.conftest import call, calls, says

TOKEN = "a long random text"
LOOK = calls(call("l", "look_up", what="kettle"))
PAY = calls(call("p", "pay", account="ana", amount=5))


@pytest.fixture
def read(settings, db):
    settings.METRICS_TOKEN = TOKEN

    def ask():
        caches["process"].clear()
        answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.content.decode())
            for sample in family.samples
        }

    return ask


@pytest.fixture
def counted():
    ledger.listeners.append(counting.hear)
    yield
    ledger.listeners.remove(counting.hear)


def test_without_a_token_in_the_settings_there_is_no_such_page(db):
    assert Client().get("/metrics").status_code == 404
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


@pytest.mark.parametrize("header", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer é"])
def test_without_the_token_nothing_is_told(settings, db, header):
    settings.METRICS_TOKEN = TOKEN
    answer = Client().get("/metrics", headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"countersign_" not in answer.content


def test_a_person_who_is_signed_in_needs_the_token_as_well(settings, client, ada):
    settings.METRICS_TOKEN = TOKEN
    client.force_login(ada)
    assert client.get("/metrics").status_code == 401


def test_what_waits_and_for_how_long_is_told(clerk, read):
    clerk.run(PAY, says("done"))
    clerk.start(says("later"))
    Approval.objects.update(created_at=timezone.now() - timedelta(hours=2))
    found = read()
    [risk] = Approval.objects.values_list("risk", flat=True)
    assert found["countersign_requests_waiting", ("risk", risk)] == 1
    assert found["countersign_requests_waiting", ("risk", "low")] == 0
    assert 7190 < found[("countersign_requests_oldest_seconds",)] < 7300
    assert found["countersign_runs", ("state", "waiting"), ("waiting_for", "approval")] == 1
    assert found["countersign_runs", ("state", "queued"), ("waiting_for", "")] == 1
    assert found["countersign_runs", ("state", "running"), ("waiting_for", "")] == 0


def test_what_is_broken_is_told(clerk, read):
    run = clerk.start(says("hello"))
    past = timezone.now() - timedelta(minutes=1)
    Run.objects.filter(pk=run.pk).update(
        state="running", lease_token="0" * 32, lease_until=past, claimed_at=past, started_at=past
    )
    Breaker.objects.create(scope="tool", key="pay", state="open", opened_at=past)
    found = read()
    assert found[("countersign_leases_lost",)] == 1
    assert found["countersign_breakers", ("state", "open")] == 1
    assert found[("countersign_run_due_seconds",)] > 30


def test_each_thing_that_is_wrong_is_told_by_its_code(read, monkeypatch):
    assert ("countersign_problem", ("code", "broker")) not in read()
    wrong = [health.Problem(code, "It is away.", "Nothing is sent.") for code in ("ledger_broken", "broker", "broker")]
    monkeypatch.setattr(health, "look", lambda: wrong)
    told = {key: value for key, value in read().items() if key[0] == "countersign_problem"}
    assert told == {("countersign_problem", ("code", code)): 1 for code in ("broker", "ledger_broken")}


@pytest.mark.parametrize("before", [None, []], ids=["all along", "since it was last looked at"])
def test_while_the_database_is_away_that_is_told_and_what_processes_have_counted(read, monkeypatch, caplog, before):
    assert ("countersign_problem", ("code", "database")) not in read()

    def gone(*_):
        raise OperationalError("could not connect to server at 10.1.2.3")

    if before is not None:
        monkeypatch.setattr(health, "current", lambda: before)
    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "cursor", gone)
        found = read()
    assert found["countersign_problem", ("code", "database")] == 1
    assert ("countersign_outcomes_unknown",) not in found
    assert [name for name, *_ in found if name.startswith("countersign_http_request_seconds")]
    assert not [record for record in caplog.records if record.exc_info]
    assert ("countersign_outcomes_unknown",) in read()


def test_what_a_process_did_is_counted(clerk, dana, read, counted):
    before = read()
    run = clerk.run(LOOK, PAY, says("done"))
    clerk.decide(clerk.open(run)[0], dana)
    clerk.drive(run)
    found = read()

    def grown(name, **labels):
        key = (name, *sorted(labels.items()))
        return found[key] - before.get(key, 0)

    assert grown("countersign_runs_ended_total", state="succeeded") == 1
    assert grown("countersign_tool_calls_total", tool="look_up", status="ok") == 1
    assert grown("countersign_tool_calls_total", tool="pay", status="ok") == 1
    assert grown("countersign_decisions_total", outcome="approved") == 1
    assert grown("countersign_model_tokens_total", model="scripted", direction="input") == 30
    assert grown("countersign_steps_total", model="scripted") == 3
    assert grown("countersign_events_total", kind="tool_call") > 0


def test_requests_are_timed_by_page_and_not_by_address(clerk, sam, client, read):
    client.force_login(sam)
    for _ in range(2):
        run = clerk.start(says("hello"))
        client.get(f"/runs/{run.pk}/")
    client.get("/nowhere/at/all/")
    found = read()
    assert found["countersign_http_request_seconds_count", ("method", "GET"), ("status", "200"), ("view", "run")] >= 2
    assert not [name for name in found if "nowhere" in str(name) or str(run.pk) in str(name)]


def test_tools_and_models_beyond_so_many_are_counted_together(monkeypatch):
    monkeypatch.setattr(counting, "_known", {"tool": set(), "model": set()})
    facts = [
        Fact("run:x", "tool_call.completed", "system", {"tool": f"invented_{n}", "status": "ok"})
        for n in range(counting.MOST_TOOLS + 50)
    ]
    counting.hear(facts)
    told = metrics.generate_latest(counting.own).decode()
    assert told.count('countersign_tool_calls_total{status="ok",tool="invented_') == counting.MOST_TOOLS
    assert 'tool="other"' in told


def test_a_look_takes_as_many_queries_however_much_there_is_and_counts_for_a_while(clerk, settings):
    settings.METRICS_TOKEN = TOKEN

    def queries():
        with CaptureQueriesContext(connection) as asked:
            metrics.text()
        return len(asked)

    caches["process"].clear()
    few = queries()
    assert queries() == 0
    for number in range(5):
        clerk.run(calls(call(f"p{number}", "pay", account="ana", amount=5)), says("done"))
    caches["process"].clear()
    assert queries() == few <= 10


def test_a_task_is_timed(clerk, read):

    run = clerk.start(says("hello"))
    tasks.drive_run.apply((str(run.pk),))
    found = read()
    key = ("countersign_task_seconds_count", ("outcome", "success"), ("task", "agentapp.tasks.drive_run"))
    assert found[key] >= 1


@pytest.mark.apart
def test_processes_that_count_into_one_folder_are_read_together(tmp_path):
    count = "from agentapp.telemetry import counting; counting.runs_ended.labels('succeeded').inc()"
    read = (
        "from agentapp.telemetry import counting, metrics; print(metrics.generate_latest(counting.registry()).decode())"
    )
    said = ""
    for code in (count, count, read):
        said = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup(); {code}"],
            cwd=django_settings.BASE_DIR,
            env={
                "PATH": "", "DJANGO_SETTINGS_MODULE": "agentapp.settings", "DEBUG": "true", "DATA_DIR": str(tmp_path),
                "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
            },
            capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip
    assert 'countersign_runs_ended_total{state="succeeded"} 2.0' in said
