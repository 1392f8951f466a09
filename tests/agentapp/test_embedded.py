"""The launcher, as people start it: a process of its own, on a database of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings

from agentapp import embedded
from tests.embedded import with_tables

pytestmark = pytest.mark.apart
STARTS_WITHIN = 60
STOPS_WITHIN = 5


def manage(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def environment(folder: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")}
    return {**kept, "DEBUG": "true", "DATA_DIR": str(folder), "PYTHONUNBUFFERED": "1", **variables}


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A launcher that listens, and its URL."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", *arguments, "--port", "0"],
        cwd=settings.BASE_DIR,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, url = "", None
        while url is None:
            line = process.stdout.readline()
            assert line, f"It ended before it listened: {said}"
            said += line
            url = re.search(r"http://127\.0\.0\.1:\d+", line)
        yield process, url[0]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


def ask(url: str) -> int:
    """The status of one answer, with a wait: the socket listens before the server does."""
    deadline = time.monotonic() + STARTS_WITHIN
    while True:
        try:
            with urllib.request.urlopen(url, timeout=STARTS_WITHIN) as response:
                return response.status
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_tables(tmp_path_factory.mktemp("embedded"))


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_stops_web_worker_and_beat_within_five_seconds(folder, name):
    with started(folder, "serve") as (process, url):
        assert ask(f"{url}/api/v1/openapi.json") == 200
        began = time.monotonic()
        process.send_signal(getattr(signal, name))
        assert process.wait(STOPS_WITHIN + 10) == 0
        assert time.monotonic() - began <= STOPS_WITHIN


def test_a_call_that_hangs_does_not_keep_the_process(folder):
    program = """
import threading, time
import django
django.setup()
from agentapp import embedded
from agentapp.celery import app

@app.task(name="hangs")
def hangs():
    print("hanging", flush=True)
    time.sleep(120)

hangs.apply_async(retry=False)
raise SystemExit(embedded.run(embedded.listen("127.0.0.1", 0), embedded.Worker()))
"""
    variables = environment(folder, DJANGO_SETTINGS_MODULE="agentapp.settings")
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=settings.BASE_DIR, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "hanging\n"
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOPS_WITHIN + 10) == 0
            assert time.monotonic() - began <= STOPS_WITHIN
        finally:
            process.kill()


def test_a_port_that_is_taken_is_named(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = manage(folder, "serve", "--port", str(port))
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "--port" in refused.stderr


@pytest.mark.parametrize("debug", ["true", "false"])
def test_others_cannot_reach_a_development_or_embedded_server_unless_told(folder, debug):
    allowed = {"TOOL_MODULES": "tests.clerk_tools", "SECRET_KEY": "k" * 60, "BASE_URL": "https://console.example"}
    refused = manage(folder, "serve", "--host", "0.0.0.0", "--port", "0", DEBUG=debug, **allowed)
    assert refused.returncode == 1
    assert "--expose" in refused.stderr


def test_a_database_without_tables_is_named(tmp_path):
    refused = manage(tmp_path, "serve", "--port", "0")
    assert refused.returncode == 1
    assert "manage.py migrate" in refused.stderr


def test_the_demo_is_refused_where_debug_is_off(folder):
    refused = manage(folder, "demo", DEBUG="false")
    assert refused.returncode == 1
    assert "DEBUG" in refused.stderr


def test_the_demo_serves_and_goes_on_with_its_data(tmp_path):
    with started(with_tables(tmp_path), "demo") as (process, url):
        said = "".join(iter(process.stdout.readline, "  Ctrl-C stops everything.\n"))
        for name in ("sam", "dana", "marco", "mia", "ada", "4 runs were started"):
            assert name in said
        assert ask(f"{url}/api/v1/openapi.json") == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(STOPS_WITHIN + 10) == 0
    with started(tmp_path, "demo") as (process, url):
        said = "".join(iter(process.stdout.readline, "  Ctrl-C stops everything.\n"))
        assert "Going on with the data from last time" in said


def test_the_demo_plays_through_worker_and_api(tmp_path):
    played = manage(tmp_path, "demo", "--check")
    assert played.returncode == 0, played.stderr
    assert played.stdout.startswith("OK: damaged-kettle on sqlite and the embedded broker")


@pytest.mark.redis
def test_the_demo_plays_on_the_real_stack(tmp_path):
    variables = {name: os.environ.get(name, "") for name in ("DATABASE_URL", "REDIS_URL")}
    if not all(variables.values()):
        pytest.skip("DATABASE_URL and REDIS_URL are not set")
    played = manage(tmp_path, "demo", "--check", **variables)
    assert played.returncode == 0, played.stderr
    assert played.stdout.startswith("OK: damaged-kettle on postgresql and Redis")


def test_a_free_port_has_an_address_that_browsers_understand():
    for host, shown in (("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")):
        try:
            listener = embedded.listen(host, 0)
        except embedded.CannotListen:
            assert host == "::1"  # a machine without IPv6
            continue
        with listener:
            assert embedded.address(listener).startswith(shown)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_number_that_is_no_port_is_refused_with_a_word(port: int) -> None:
    with pytest.raises(embedded.CannotListen, match="a port is a number from 0 to 65535"):
        embedded.listen("127.0.0.1", port)
