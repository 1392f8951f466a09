"""The launcher with a collector: one request, from the API to the worker's log, /metrics and a trace."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from tests.embedded import with_tables
from tests.processes import until
from tests.webhook_receiver import Receiver

pytestmark = pytest.mark.apart

ID = "from-the-front-desk-42"
METRICS = "a long random text"
PREPARE = """
from django.contrib.auth.models import User
from agentapp import auth
from agentapp.models import Agent, Tool
sam = User.objects.create_superuser("sam", "sam@example.test", "correct horse battery")
Agent.objects.create(name="clerk", driver="scripted").tools.set(Tool.objects.all())
print("secret:", auth.issue_token(sam, "test", ["runs:create", "runs:read"], actor="system")[1])
"""
SCRIPT = [
    {"text": "", "tool_calls": [{"id": "t", "name": "talk", "arguments": {"secret": "hunter2"}}]},
    {"text": "Done."},
]


def environment(folder: Path, **variables: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "REDIS_URL") and not name.startswith("OTEL_")
    }
    own = {
        "DEBUG": "true", "DATA_DIR": str(folder), "PYTHONUNBUFFERED": "1", "LOG_FORMAT": "json",
        "METRICS_TOKEN": METRICS, "TOOL_MODULES": "tests.agentapp.telemetry.talking_tools",
    }  # fmt: skip
    return {**kept, **own, **variables}


def manage(folder: Path, *arguments: str) -> str:
    made = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR, env=environment(folder), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> tuple[Path, str]:
    """A folder with a database, and a token's secret."""
    folder = with_tables(tmp_path_factory.mktemp("telemetry"))
    manage(folder, "sync_tools")
    return folder, manage(folder, "shell", "-c", PREPARE).partition("secret:")[2].split()[0]


class Served:
    """The launcher, what it has written, and a way to ask it."""

    def __init__(self, process: subprocess.Popen[str], secret: str) -> None:
        self.process, self.secret, self.written = process, secret, []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        until(self._answers, "the launcher to answer")

    def _read(self) -> None:
        for line in self.process.stdout:
            self.written.append(line)

    def _answers(self) -> bool:
        try:
            return bool(self.url and self.ask("/healthz/"))
        except OSError:
            return False  # it prints its address before it listens

    @property
    def url(self) -> str:
        found = re.search(r"http://127\.0\.0\.1:\d+", "".join(self.written))
        return found[0] if found else ""

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in [*self.written] if line.startswith("{")]

    def ask(self, path: str, body: object = None, token: str = "", **headers: str) -> tuple[bytes, dict[str, str]]:
        data = json.dumps(body).encode() if body is not None else None
        sent = {"Authorization": f"Bearer {token or self.secret}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.url}{path}", data, sent)
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.read(), dict(response.headers)

    def run(self) -> dict[str, object]:
        """A run that has ended."""
        body = {"agent": "clerk", "input": "Talk.", "script": SCRIPT}
        started, headers = self.ask("/api/v1/runs", body, **{"X-Request-ID": ID})
        assert headers["X-Request-ID"] == ID
        path = f"/api/v1/runs/{json.loads(started)['id']}"
        until(lambda: json.loads(self.ask(path)[0])["state"] == "succeeded", "the run to end")
        return json.loads(self.ask(path)[0])


@contextmanager
def served(prepared: tuple[Path, str], collector: str) -> Iterator[Served]:
    folder, secret = prepared
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", "0"],
        cwd=settings.BASE_DIR,
        env=environment(folder, OTEL_EXPORTER_OTLP_ENDPOINT=collector),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield Served(process, secret)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.fixture
def collector() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def spans(receiver: Receiver) -> list[tuple[str, str]]:
    """Trace id and name of everything that arrived."""
    messages = [ExportTraceServiceRequest.FromString(request.body) for request in receiver.received]
    return [
        (span.trace_id.hex(), span.name)
        for message in messages
        for of_resource in message.resource_spans
        for of_scope in of_resource.scope_spans
        for span in of_scope.spans
    ]


def test_one_request_is_found_in_the_log_the_figures_and_the_traces(prepared, collector):
    with served(prepared, collector.url.removesuffix("/hook")) as stack:
        run = stack.run()
        [line] = [line for line in stack.lines() if line["message"] == "Talking."]
        assert (line["request"], line["run"], line["level"]) == (ID, run["id"], "WARNING")
        assert line["trace"] == run["trace_id"]
        assert {"task", "execution", "time", "logger"} <= set(line)
        assert "hunter2" not in "".join(stack.written)
        text = stack.ask("/metrics", token=METRICS)[0].decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        ended = {
            sample.labels["state"]: sample.value
            for sample in samples
            if sample.name.startswith("countersign_runs_ended_t")
        }
        assert ended["succeeded"] >= 1
        until(lambda: (run["trace_id"], "invoke_agent clerk") in spans(collector), "the trace")
        assert {request.path for request in collector.received} == {"/v1/traces"}
        assert (run["trace_id"], "execute_tool talk") in spans(collector)
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(15) == 0


def test_what_a_killed_process_had_not_told_the_next_one_tells(prepared, collector):
    with served(prepared, "http://127.0.0.1:9") as stack:
        run = stack.run()
        until(
            lambda: [line for line in stack.lines() if "Traces are not exported" in line["message"]],
            "the collector to be missed",
        )
        stack.process.kill()
    with served(prepared, collector.url.removesuffix("/hook")) as stack:
        stack.run()
        until(lambda: (run["trace_id"], "invoke_agent clerk") in spans(collector), "the trace of before")
