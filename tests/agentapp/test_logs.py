import json
import logging
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime

import pytest
from django.db import OperationalError
from psycopg_pool import PoolTimeout

from agentapp import deadline
from agentapp.logs import Json, Line, WithoutLinks, WithoutRepetition, WithoutWords, bound, configuration, ids
from benchmarks.servers import free_port
from tests.processes import PATIENCE_SECONDS, ROOT, until


@pytest.mark.parametrize(
    ("message", "args", "kept"),
    [
        ("%s: %s", ("Forbidden", "/login/reset/1-d3x-0123abc/"), "Forbidden: /login/reset/…/"),
        ("E-1: POST /login/reset/1z-d3x-0123abc/ failed", (), "E-1: POST /login/reset/…/ failed"),
        ("Not Found: /login/reset/asked/", (), "Not Found: /login/reset/asked/"),
        ("%s: %s", ("Conflict", "/talk/ImU0:1xWasJ:9zp-Wn8/"), "Conflict: /talk/…/"),
        ("%d%%", (5,), "5%"),
    ],
)
def test_a_link_that_is_as_good_as_a_password_is_blotted_out(message: str, args: tuple[object, ...], kept: str) -> None:
    record = logging.LogRecord("django.request", logging.WARNING, "", 1, message, args, None)

    assert WithoutLinks().filter(record)
    assert record.getMessage() == kept


def a_record(message: str = "Something.", **more: object) -> logging.LogRecord:
    record = logging.LogRecord("agentapp.loop", logging.WARNING, "loop.py", 1, message, (), None)
    record.__dict__.update(more)
    return record


def failed(cause: Exception) -> logging.LogRecord:
    try:
        raise OperationalError("no connection after 1.00 sec") from cause
    except OperationalError:
        return a_record("GET /runs/ failed", exc_info=sys.exc_info())


def test_that_the_database_gives_nobody_a_connection_takes_a_line_each_time() -> None:
    record = failed(PoolTimeout())
    WithoutRepetition().filter(record)
    assert Line().format(record).endswith(" WARNING agentapp.loop GET /runs/ failed (no connection after 1.00 sec)")
    assert "exc_info" not in json.loads(Json().format(record))


def test_where_anything_else_failed_is_said() -> None:
    record = failed(ValueError())
    WithoutRepetition().filter(record)
    assert "Traceback" in Line().format(record)


def test_a_line_says_what_it_belongs_to() -> None:
    with bound(run="r-1", request="q-1"), bound(execution="e-1"):
        line = Line().format(a_record())
    assert line.endswith("WARNING agentapp.loop Something. [run=r-1 request=q-1 execution=e-1]")


def test_a_line_that_belongs_to_nothing_has_no_brackets() -> None:
    assert Line().format(a_record()).endswith(" WARNING agentapp.loop Something.")


def test_a_line_as_json_is_one_object_with_the_same_ids() -> None:
    with bound(run="r-1", user=lambda: "user:5", request=lambda: ""):
        text = Json().format(a_record('Quotes " and\nlines'))
    assert "\n" not in text
    said = json.loads(text)
    assert {name: said[name] for name in ("level", "logger", "message", "run", "user")} == {
        "level": "WARNING", "logger": "agentapp.loop", "message": 'Quotes " and\nlines', "run": "r-1", "user": "user:5",
    }  # fmt: skip
    assert "request" not in said
    assert datetime.fromisoformat(said["time"]).tzinfo is not None


def test_nobody_begins_a_line_of_their_own_in_the_log() -> None:
    record = a_record()
    record.msg = "E-1: GET /tools/x\n2026-11-26 INFO all is well\x1b[2J/ failed"
    text = Line().format(record)
    assert "\\n2026-11-26 INFO all is well\\x1b[2J/ failed" in text
    assert text.isprintable()


def test_nor_does_what_an_error_says() -> None:
    try:
        raise ValueError("no\n2026-11-26 12:00:00,000 INFO approvals.ledger all is well\r\x1b[2Jgone")
    except ValueError:
        record = a_record()
        record.exc_info = sys.exc_info()
    first, *rest = Line().format(record).split("\n")
    assert first.isprintable()
    assert [line[:2] for line in rest] == ["  "] * len(rest)
    assert "  2026-11-26 12:00:00,000 INFO approvals.ledger all is well\\r\\x1b[2Jgone" in rest
    assert all(line.isprintable() for line in rest)


def test_what_a_library_adds_to_a_record_is_not_written() -> None:
    text = Json().format(a_record(data={"args": ("ana@example.test",)}, request="GET /login/reset/1-abc/"))
    assert set(json.loads(text)) == {"time", "level", "logger", "message"}


def test_a_failure_stands_in_its_line() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        record = a_record()
        record.exc_info = sys.exc_info()
    text = Json().format(record)
    assert "\n" not in text
    assert "ValueError: no" in json.loads(text)["exc_info"]


def test_a_failure_as_json_is_blotted_out_too() -> None:
    try:
        raise ValueError("no such person: ana@mail.example")
    except ValueError:
        record = a_record()
        record.exc_info = sys.exc_info()
    WithoutWords().filter(record)
    assert json.loads(Json().format(record))["exc_info"].endswith("no such person: [redacted]")


def test_both_forms_blot_out_links_and_words() -> None:
    for form in ("line", "json"):
        made = configuration("INFO", form)
        assert made["handlers"]["console"]["filters"] == ["repetition", "links", "words"]
        assert made["handlers"]["console"]["formatter"] == form


def test_a_call_in_a_thread_of_its_own_belongs_to_the_same() -> None:
    with bound(run="r-1"):
        found = deadline.start(ids)
    assert found.result(10) == {"run": "r-1"}


@pytest.mark.apart
def test_a_request_that_is_refused_is_one_line_and_past_no_filter(tmp_path) -> None:
    path = "/api/v1/nothing/password=hunter2hunter2"
    asking = f"from django.test import Client; Client().get({path!r}, headers={{'host': 'localhost'}})"
    asked = subprocess.run(
        [sys.executable, "manage.py", "shell", "--verbosity", "0", "--command", asking],
        cwd=ROOT, env=os.environ | {"DEBUG": "true", "DATA_DIR": str(tmp_path)}, timeout=120,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = [line for line in asked.stderr.splitlines() if "Not Found" in line]
    assert len(told) == 1
    assert "WARNING django.request Not Found: /api/v1/nothing/" in told[0]
    assert "hunter2" not in asked.stderr


@pytest.mark.apart
def test_a_web_server_writes_its_own_lines_in_the_same_form(tmp_path) -> None:
    environment = {**os.environ, "DEBUG": "true", "DATA_DIR": str(tmp_path), "LOG_FORMAT": "json"}
    port = free_port()
    serving = [sys.executable, "-m", "uvicorn", "agentapp.asgi:application", "--no-access-log", "--port", str(port)]
    with subprocess.Popen(serving, env=environment, stderr=subprocess.PIPE, text=True) as server:
        until(lambda: takes_connections(port), "the server to listen")
        server.send_signal(signal.SIGTERM)
        _, written = server.communicate(timeout=PATIENCE_SECONDS)
    lines = [json.loads(line) for line in written.splitlines()]
    assert {"Application startup complete.", "Application shutdown complete."} <= {line["message"] for line in lines}
    assert {line["logger"] for line in lines} >= {"uvicorn.error"}


def takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
