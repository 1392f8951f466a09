"""Sending spans to a collector that speaks OTLP over HTTP: on loopback, through the SDK's own exporter."""

import subprocess
import sys
import threading

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agentapp import environment, loop
from agentapp.models import TraceProgress
from agentapp.telemetry import exporting
from approvals import ledger
from tests.conftest import call, calls, says
from tests.processes import PATIENCE_SECONDS, ROOT, until
from tests.webhook_receiver import Receiver

LOOK = calls(call("l", "look_up", what="kettle"))


@pytest.fixture
def collector(settings):
    receiver = Receiver()
    settings.OTLP_TRACES_URL = receiver.url
    yield receiver
    receiver.close()


@pytest.fixture
def begun(collector, monkeypatch):
    monkeypatch.setattr(exporting, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(exporting, "FIRST_PAUSE_SECONDS", 0.05)
    process = exporting.begin()
    yield process
    process.stop(within=PATIENCE_SECONDS)  # it leaves nothing to do among the rows of the next test
    exporting.end(process)


def names(receiver) -> list[str]:
    """The spans that arrived and were accepted."""
    found = []
    for request in receiver.received:
        message = ExportTraceServiceRequest.FromString(request.body)
        found += [span.name for r in message.resource_spans for s in r.scope_spans for span in s.spans]
    return found


def is_told(run) -> bool:
    return TraceProgress.objects.filter(pk=run.pk, is_complete=True).exists()


def test_a_collector_receives_the_spans_of_a_run(clerk, collector, begun):
    run = clerk.run(LOOK, says("done"))
    until(lambda: is_told(run), "the run to be told")
    assert sorted(names(collector)) == sorted(
        ["invoke_agent clerk", "step 1", "step 2", "chat scripted", "chat scripted", "execute_tool look_up"]
    )
    message = ExportTraceServiceRequest.FromString(collector.received[0].body)
    [resource] = message.resource_spans
    told = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    assert told["service.name"] == "countersign"
    [span, *_] = resource.scope_spans[0].spans
    assert span.trace_id.hex() == run.trace_id


def test_a_collector_whose_key_is_a_file_is_sent_the_key(clerk, collector, settings, tmp_path, monkeypatch):
    (tmp_path / "key").write_text("authorization=Bearer%20k3y,x-team=refunds\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", str(tmp_path / "key"))
    monkeypatch.setattr(exporting, "GATHER_SECONDS", 0.01)
    settings.OTLP_SECRET_HEADERS = environment.otlp_headers()
    process = exporting.begin()
    run = clerk.run(says("done"))
    until(lambda: is_told(run), "the run to be told")
    exporting.end(process)
    headers = collector.received[0].headers
    assert (headers["authorization"], headers["x-team"]) == ("Bearer k3y", "refunds")


def test_a_collector_that_is_away_harms_no_run_and_is_told_when_it_is_back(clerk, collector, begun, caplog):
    collector.answers += [(500, {}, b"no")] * 2
    run = clerk.run(LOOK, says("done"))
    assert run.state == "succeeded"
    until(lambda: is_told(run), "the run to be told")
    assert names(collector).count("invoke_agent clerk") == 1
    said = [record.getMessage() for record in caplog.records if record.name == exporting.__name__]
    assert len([line for line in said if "not exported" in line]) == 1
    until(lambda: "Traces are exported again." in caplog.text, "the good news")


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_run_that_the_collector_refuses_keeps_no_other_from_being_told(clerk, collector, begun, caplog, status):
    collector.answers += [(status, {}, b"too large")]
    collector.gate = threading.Event()
    refused = clerk.run(LOOK, says("big"))
    until(lambda: collector.received, "the first batch")
    others = [clerk.run(LOOK, says("small")) for _ in range(3)]
    collector.gate.set()
    until(lambda: all(is_told(run) for run in (refused, *others)), "every run to be told")
    said = [record.getMessage() for record in caplog.records if record.name == exporting.__name__]
    assert said == [f"The collector refuses spans of {refused.pk} (it answered {status}). They are left out."]


def test_what_is_refused_with_content_is_sent_without(clerk, collector, begun, settings, caplog):
    settings.OTEL_CONTENT = True
    collector.answers += [(413, {}, b"too large")]
    run = clerk.run(says("a very long answer"))  # one step, so that it is part of the first message
    until(lambda: is_told(run), "the run to be told")
    assert b"a very long answer" in collector.received[0].body
    assert b"a very long answer" not in collector.received[1].body
    assert "left out" not in caplog.text


def test_what_is_too_large_to_be_sent_at_all_keeps_no_other_from_being_told(clerk, collector, monkeypatch, caplog):
    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter._DEFAULT_MAX_REQUEST_SIZE", 600)
    monkeypatch.setattr(exporting, "GATHER_SECONDS", 0.01)
    process = exporting.begin()
    run = clerk.run(LOOK, says("big"))
    until(lambda: is_told(run), "the run to be told")
    exporting.end(process)
    assert "too large to send" in caplog.text


def test_a_run_that_alone_does_not_arrive_is_tried_after_the_others(clerk, collector, begun):
    """The collector may be away, or this run may be the problem."""
    bad: list[str] = []
    taken = collector._take

    def take(handler, body):
        if any(bytes.fromhex(each) in body for each in bad):
            collector.answers.insert(0, (500, {}, b"no"))
        taken(handler, body)

    collector._take = take
    collector.gate = threading.Event()
    first = clerk.run(LOOK, says("one"))
    until(lambda: collector.received, "the first batch")
    failing, others = clerk.run(LOOK, says("two")), [clerk.run(LOOK, says("three")) for _ in range(3)]
    bad.append(failing.trace_id)
    collector.gate.set()
    until(lambda: all(is_told(run) for run in (first, *others)), "the others to be told")
    assert not is_told(failing)
    bad.clear()
    until(lambda: is_told(failing), "the last to be told")


def test_a_collector_that_does_not_answer_keeps_no_worker_waiting(clerk, collector, begun):
    collector.gate = threading.Event()
    first = clerk.run(LOOK, says("done"))
    until(lambda: collector.received, "the first batch")
    second = clerk.run(LOOK, says("done"))
    assert (first.state, second.state) == ("succeeded", "succeeded")
    collector.gate.set()
    until(lambda: is_told(first) and is_told(second), "both runs to be told")


def test_what_was_not_told_when_a_process_ended_the_next_one_tells(clerk, collector, monkeypatch):
    monkeypatch.setattr(exporting, "GATHER_SECONDS", 0.01)
    before = clerk.run(LOOK, says("done"))
    process = exporting.begin()
    clerk.run(says("hello"))
    until(lambda: is_told(before), "the run of before")
    exporting.end(process)


def test_without_a_collector_nobody_listens_and_nothing_is_written(clerk, settings):
    listeners = list(ledger.listeners)
    settings.OTLP_TRACES_URL = ""
    assert exporting.begin() is None
    assert ledger.listeners == listeners
    clerk.run(LOOK, says("done"))
    assert not TraceProgress.objects.exists()


def test_ending_waits_for_what_is_marked_and_not_for_ever(clerk, collector, monkeypatch):
    monkeypatch.setattr(exporting, "GATHER_SECONDS", 3600.0)
    process = exporting.begin()
    run = clerk.run(LOOK, says("done"))
    process.stop(within=PATIENCE_SECONDS)
    exporting.end(process)
    assert is_told(run), "gathering is cut short"
    collector.gate = threading.Event()
    process = exporting.begin()
    clerk.run(LOOK, says("done"))
    process.stop(within=0.2)
    assert process._thread.is_alive(), "the collector has not answered yet"
    collector.gate.set()
    process.stop(within=PATIENCE_SECONDS)
    exporting.end(process)


def test_exporting_adds_no_statement_to_what_a_worker_does(clerk, collector, monkeypatch):
    def statements():
        run = clerk.start(LOOK, LOOK, says("done"))
        with CaptureQueriesContext(connection) as asked:
            loop.drive(run.pk)
        return len(asked)

    without = statements()
    process = exporting.begin()
    try:
        assert statements() == without
    finally:
        exporting.end(process)


def test_only_spans_of_ours_leave(clerk, collector, begun):
    """Libraries that use OpenTelemetry on their own quote what they sent and received."""
    with trace.get_tracer("a library").start_as_current_span("a prompt"):
        run = clerk.run(says("done"))
    until(lambda: is_told(run), "the run to be told")
    assert "a prompt" not in names(collector)


@pytest.mark.apart
def test_a_process_that_exports_nothing_does_not_load_what_exports(tmp_path):
    code = "import django; django.setup(); import sys, agentapp.urls; print('opentelemetry.sdk.trace' in sys.modules)"
    variables = {"DJANGO_SETTINGS_MODULE": "agentapp.settings", "DEBUG": "true", "DATA_DIR": str(tmp_path)}
    asked = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120, check=True
    )
    assert asked.stdout.strip() == "False"
