"""A wrong environment value stops the start and names its variable; every variable is documented."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from agentapp.celery import app
from agentapp.environment import read_ledger

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = re.compile(r"\benv(?:_bool|_count(?:_from_one)?|_list|_folder)?\(\s*\"([A-Z_]+)\"")


def start(says: str = "settings.DEBUG; print('started')", **environment: str) -> subprocess.CompletedProcess[str]:
    """Start the project as a command would, with only these variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", f"from django.conf import settings; {says}"],
        env={**kept, "DJANGO_SETTINGS_MODULE": "agentapp.settings", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DEBUG", "maybe", "true or false"),
        ("LEASE_SECONDS", "soon", "whole number"),
        ("UNDO_HOLD_SECONDS", "-1", "cannot be negative"),
        ("DATABASE_POOL_SIZE", "0", "one or more"),
        ("LEASE_SECONDS", "0", "one or more"),
        ("SWEEP_SECONDS", "0", "one or more"),
        ("MODEL_TIMEOUT_SECONDS", "0", "one or more"),
        ("APPROVAL_EXPIRES_SECONDS", "0", "one or more"),
        ("APPROVAL_USE_WITHIN_SECONDS", "0", "one or more"),
        ("REDIS_URL", "localhost:6379", "start with redis://"),
        ("DATABASE_URL", "mysql://root@localhost/x", "a database URL"),
        ("TIME_ZONE", "Mars/Olympus", "no such time zone"),
        ("BASE_URL", "countersign.example", "start with http://"),
        ("LOG_LEVEL", "LOUD", "Use one of DEBUG"),
        ("AGENT_QUEUES", "importer", "agent=queue"),
        ("AGENT_QUEUES", "importer=Slow one", "lower-case letters"),
        ("AGENT_QUEUES", "importer=slow, importer=bank", "one queue"),
        ("REJECTION_REASONS", "One; Two; Three; Four", "one to three reasons"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_its_variable(
    tmp_path: Path, name: str, value: str, expected: str
) -> None:
    done = start(DATA_DIR=str(tmp_path), **{name: value})
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("django.core.exceptions.ImproperlyConfigured: " + name)
    assert expected in last


def test_a_folder_that_cannot_be_made_is_named_with_its_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    last = start(DATA_DIR=str(tmp_path / "file" / "data")).stderr.strip().splitlines()[-1]
    assert last.startswith("django.core.exceptions.ImproperlyConfigured: DATA_DIR=")
    assert last.endswith("cannot be created: Not a directory.")


def test_a_command_says_which_variable_is_wrong_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "manage.py", "check"]
    wrong = {**os.environ, "DATA_DIR": str(tmp_path), "SWEEP_SECONDS": "soon"}
    done = subprocess.run(command, env=wrong, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"SWEEP_SECONDS='soon' cannot be read: .*\n", done.stderr)
    traced = subprocess.run(
        [*command, "--traceback"], env=wrong, cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" in traced.stderr


@pytest.mark.parametrize(
    ("address", "looks"),
    [("broker.example", True), ("my_ssl_user:x@broker.example", True), ("broker.example/0?ssl_cert_reqs=none", False)],
)
def test_the_certificate_of_a_broker_is_looked_at_unless_its_address_says_otherwise(
    tmp_path: Path, address: str, looks: bool
) -> None:
    says = "from agentapp import celery_app; print(celery_app.connection_for_write().ssl)"
    done = start(says, DATA_DIR=str(tmp_path), REDIS_URL=f"rediss://{address}")
    assert done.returncode == 0, done.stderr
    assert ("CERT_REQUIRED" in done.stdout) is looks


def test_a_wrong_mail_setting_is_named_too(tmp_path: Path) -> None:
    done = start(DATA_DIR=str(tmp_path), EMAIL_HOST="mail.example", EMAIL_SECURITY="magic")
    assert "EMAIL_SECURITY='magic'" in done.stderr


@pytest.mark.parametrize("name", ["SWEEP_SECONDS", "OUTBOUND_NETWORKS", "OIDC_PROVIDERS", "DATA_DIR"])
@pytest.mark.parametrize(
    "secret", ["Hunter2!", "Hunter2!\nHunter2!", "/proc/Hunter2!" * 40], ids=["word", "lines", "long"]
)
def test_what_stands_in_a_file_that_was_named_by_mistake_is_not_quoted(tmp_path: Path, name: str, secret: str) -> None:
    (tmp_path / "key").write_text(f"/proc/{secret}" if name == "DATA_DIR" else secret)
    done = start(
        **{"DATA_DIR": str(tmp_path), f"{name}_FILE": str(tmp_path / "key")}
        | ({"DATA_DIR": ""} if name == "DATA_DIR" else {})
    )
    assert f"ImproperlyConfigured: {name} cannot be" in done.stderr
    assert "Hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://root:hunter2@localhost/x"),
        # No prefix, as if the scheme had been forgotten.
        ("DATABASE_URL", "root:hunter2@localhost/x"),
        ("DATABASE_URL", "postgres:/root:hunter2@localhost/x"),
        ("DATABASE_LISTEN_URL", "root:hunter2@localhost/x"),
        ("REDIS_URL", ":hunter2@localhost:6379/0"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "key:hunter2@collector.example"),
        ("MCP_COMMANDS", '["crm", "--token", "hunter2"]'),
    ],
)
def test_a_secret_in_a_value_that_cannot_be_read_is_not_printed(tmp_path: Path, name: str, value: str) -> None:
    done = start(DATA_DIR=str(tmp_path), **{name: value})
    assert f"{name} cannot be read" in done.stderr
    assert "hunter2" not in done.stderr


def test_two_keys_of_the_ledger_stop_the_start(tmp_path: Path) -> None:
    says = "print(settings.LEDGER.signing_key_file.name)"
    key = {"LEDGER_SIGNING_KEY": "aHVudGVyMg==", "LEDGER_SIGNING_KEY_FILE": str(tmp_path / "next.key")}
    done = start(says, DATA_DIR=str(tmp_path), **key)
    assert "LEDGER_SIGNING_KEY and LEDGER_SIGNING_KEY_FILE are both set. Keep one of them." in done.stderr
    assert (done.stdout, key["LEDGER_SIGNING_KEY"] in done.stderr) == ("", False)
    key["LEDGER_SIGNING_KEY"] = ""
    assert start(says, DATA_DIR=str(tmp_path), **key).stdout == "next.key\n"


def test_it_starts_with_nothing_set(tmp_path: Path) -> None:
    assert start(DATA_DIR=str(tmp_path)).stdout == "started\n"


def test_it_starts_with_everything_set(tmp_path: Path) -> None:
    environment = {
        "DEBUG": "false",
        "SECRET_KEY": "x7" * 25,
        "DATABASE_URL": "postgres://countersign:secret@db.example/countersign",
        "REDIS_URL": "redis://redis.example:6379/0",
        "BASE_URL": "https://countersign.example/",
        "EMAIL_HOST": "mail.example",
        "EMAIL_SECURITY": "tls",
        "TIME_ZONE": "Europe/Berlin",
        "ALLOWED_HOSTS": "countersign.example, localhost",
    }
    assert start(DATA_DIR=str(tmp_path), **environment).stdout == "started\n"


def test_every_variable_is_documented_and_nothing_else() -> None:
    texts = (ROOT / "agentapp/settings.py").read_text(), inspect.getsource(read_ledger)
    read = {name for text in texts for name in VARIABLE.findall(text)}
    # What libraries and models read has a section of its own.
    ours, _, _ = (ROOT / "docs/settings.md").read_text().partition("## Variables of models, providers and libraries")
    documented = set(re.findall(r"^\| `([A-Z_]+)` \|", ours, re.MULTILINE))
    assert len(read) > 30
    assert read - documented == set()
    assert documented - read == set()


@pytest.mark.django_db
def test_what_is_done_every_so_often_is_there_to_be_done() -> None:
    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
