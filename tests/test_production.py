"""The commands of the production page, run in order on a PostgreSQL and a Redis, from an empty folder."""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from django.conf import settings
from psycopg import sql

from benchmarks.servers import free_port

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/production.md"
# What follows is for root on a machine with systemd.
LAST = "## As services"
SHELL = re.compile(r"^## (.+?)\n|^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Commands that begin with this can be given in any shell, also months later.
PREPARES = ". /srv/countersign/shell\n"
# Settings under which the tests themselves run must not reach the commands.
KEPT = ("HOME", "LANG", "TMPDIR", "SSL_CERT_FILE", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_INDEX_URL")
# What the page expects of every shell.
OF_EVERY_SHELL = (*KEPT, "PGPASSWORD", "PGOPTIONS")

# The ledger gets one more checkpoint, which is noted outside the database.
AN_HOUR_LATER = """
python manage.py shell -v 0 -c '
from approvals import ledger
from approvals.proof import anchors, checkpoints
with ledger.transaction():
    ledger.record(ledger.CONFIGURATION, "tried")
checkpoints.make()
anchors.write_file()
'
"""


A_TOOL = '''
from agentapp.tools.base import tool


@tool(effect="read", trust="trusted_system", owner="Books")
def get_invoice(number: str) -> dict[str, float]:
    """Look up one invoice.

    Args:
        number: As in INV-1042.
    """
    return {"open": 120.0}
'''


def commands(changes: dict[str, str]) -> str:
    """All shell blocks of the page as one script that prints the title of each. Every change must apply."""
    page, _, _ = PAGE.read_text().partition(LAST)
    told = "echo '== {0}'; echo \"== {0}, after $SECONDS s\" >&2"
    script = "\n".join(told.format(title) if title else in_its_shell(block) for title, block in SHELL.findall(page))
    for text, other in changes.items():
        assert text in script
        script = script.replace(text, other)
    return f"set -euo pipefail\nexport FIRST_PATH=$PATH\n{script}"


def in_its_shell(block: str) -> str:
    """A block as the page means it: what prepares its shell runs in a new one, which knows nothing of the others."""
    if not block.startswith(PREPARES):
        return block
    kept = " ".join(f'${{{name}+{name}="${name}"}}' for name in OF_EVERY_SHELL)
    return f"env -i {kept} PATH=\"$FIRST_PATH\" bash -euo pipefail <<'OF ANOTHER SHELL'\n{block}OF ANOTHER SHELL\n"


def administration(database: str = "postgres") -> "psycopg.Connection[tuple[object, ...]]":
    server = settings.DATABASES["default"]
    return psycopg.connect(
        host=server["HOST"], port=server["PORT"], user=server["USER"], password=server["PASSWORD"], dbname=database,
        autocommit=True,
    )  # fmt: skip


@pytest.fixture
def name() -> Iterator[str]:
    """For two roles and databases that are dropped afterwards."""
    name = f"countersign_{uuid.uuid4().hex[:8]}"
    yield name
    with administration() as server:
        for [database] in server.execute("SELECT datname FROM pg_database WHERE datname ~ %s", [f"^{name}"]).fetchall():
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(str(database))))
        for role in (name, f"{name}_owner"):
            server.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(role)))


def environment() -> dict[str, str]:
    server = settings.DATABASES["default"]
    # If uv is next to this environment, as make setup leaves it, it is not downloaded again.
    uv = shutil.which("uv") or (ROOT / ".venv").resolve().parent / ".uv/bin/uv"
    return {
        **{name: value for name, value in os.environ.items() if name in KEPT},
        "PATH": os.pathsep.join([str(Path(uv).parent), os.environ["PATH"]]),
        "PGHOST": server["HOST"],
        "PGPORT": str(server["PORT"] or 5432),
        "PGUSER": server["USER"],
        "PGPASSWORD": server["PASSWORD"],
        "PGOPTIONS": "-c synchronous_commit=off",
        "REPOSITORY": str(ROOT),
    }


def run(script: str, folder: Path) -> dict[str, str]:
    """What the commands under each title printed. Everything they leave running is ended."""
    log = folder / "output"
    with log.open("wb") as output, (folder / "errors").open("wb") as errors:
        shell = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=output, stderr=errors, env=environment(), start_new_session=True
        )
        try:
            shell.communicate(script.encode(), timeout=900)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
    said = log.read_text()
    assert shell.returncode == 0, f"{said[-2000:]}\n--- errors\n{(folder / 'errors').read_text()[-4000:]}"
    parts = re.split(r"^== (.+)\n", said, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def owners_of_tables(database: str) -> set[object]:
    with administration(database) as server:
        return {role for [role] in server.execute("SELECT tableowner FROM pg_tables WHERE schemaname = 'public'")}


@pytest.mark.redis
def test_the_production_page_leads_from_an_empty_folder_to_an_installation_that_serves(tmp_path, name):
    place, server = tmp_path / "srv", settings.DATABASES["default"]
    address = f"{server['HOST']}:{server['PORT'] or 5432}"
    changes = {
        "NAME=countersign\n": f"NAME={name}\n",
        "grant_tables countersign\n": f"grant_tables {name}\n",
        # What a shell would split, as in ?sslmode=verify-full&sslrootcert=…
        "/$NAME'\n": "/$NAME?application_name=countersign&connect_timeout=10'\n",
        "/srv/countersign": str(place),
        "127.0.0.1:5432": address,
        "TOOL_MODULES='agentapp.tools.planning'": "TOOL_MODULES='agentapp.tools.planning,acme.tools'",
        "redis://127.0.0.1:6379/0": settings.REDIS_URL,
        "127.0.0.1:8000": f"127.0.0.1:{(port := free_port())}",
        "--port 8000": f"--port {port}",
        "127.0.0.1:8001": f"127.0.0.1:{(port_of_next := free_port())}",
        "--port 8001": f"--port {port_of_next}",
        **{
            command: AN_HOUR_LATER + command
            for command in ("python manage.py back_up ", 'createdb --owner "${NAME}_owner" "${NAME}_copy"')
        },
    }
    (place / "tools/acme").mkdir(parents=True)
    (place / "tools/acme/tools.py").write_text(A_TOOL)
    said = run(commands(changes), tmp_path)

    assert "get_invoice" in said["The tables"]
    assert "no issues" in said["The tables"]
    served = said["The processes"]
    assert served.startswith("ok{")
    assert '"problems": []' in served
    page, turned_away = served.lower().split("http/1.1 ")[1:3]
    assert page.startswith("200")
    for header in (
        "strict-transport-security: max-age=31536000; includesubdomains", "content-security-policy: default-src 'none'",
        "x-frame-options: deny", "x-content-type-options: nosniff", "referrer-policy: same-origin",
    ):  # fmt: skip
        assert header in page
    assert re.search(r"^set-cookie: csrftoken=.*; secure", page, re.MULTILINE) or "set-cookie" not in page
    assert turned_away.startswith("301")
    assert "1 node online" in served
    assert "location: https://countersign.example.com/login/" in turned_away
    assert re.search(r"^https://countersign\.example\.com/setup/\?token=\S+$", served, re.MULTILINE)

    copied = said["Backups, and testing a restore"]
    assert "The ledger holds" in copied
    assert "The checkpoints hold" in copied
    assert len((place / "data/checkpoints.jsonl").read_text().splitlines()) > 1  # one of them from after the backup

    following = said["The next release"]
    assert "no issues" in following
    assert '"problems": []' in following
    assert "1 node online" in following
    assert following.endswith("releases/1\n")

    for release in ("", "-2"):
        assert "Application shutdown complete" in (place / f"web{release}.log").read_text()
        assert "warm shutdown" in (place / f"worker{release}.log").read_text().lower()
    assert owners_of_tables(name) == {f"{name}_owner"}
    assert f"//{name}:" in (place / "environment").read_text()
    assert f"{name}_owner" not in (place / "environment").read_text()
    for kept in ("environment", "owner", "shell", "ledger.key", "backups"):
        assert (place / kept).stat().st_mode & 0o077 == 0


@pytest.mark.redis
def test_what_compose_and_kubernetes_run_first_makes_tables_that_the_other_services_do_not_own(tmp_path, name):
    told = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["migrate"]["command"]
    manifest = yaml.safe_load((ROOT / "docs/kubernetes/migrate.yaml").read_text())
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    assert shlex.split(told.replace(" --password-from DATABASE_PASSWORD", "")) == container["command"]

    owner, server = environment()["PGUSER"], settings.DATABASES["default"]
    address = f"{server['HOST']}:{server['PORT'] or 5432}/{name}"
    with administration() as postgres:
        postgres.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    variables = {
        **environment(), "DATABASE_PASSWORD": "one", "DATABASE_URL": f"postgres://{owner}:{server['PASSWORD']}@{address}",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]), "DATA_DIR": str(tmp_path),
        "TOOL_MODULES": "agentapp.tools.planning", "SECRET_KEY": "of-a-test" * 8, "BASE_URL": "https://x.example",
    }  # fmt: skip
    made = shlex.split(told.replace("grant_tables countersign", f"grant_tables {name}"))
    subprocess.run(made, env=variables, cwd=ROOT, check=True, timeout=300)

    with psycopg.connect(f"postgres://{name}:one@{address}", autocommit=True) as product:
        [count] = product.execute("SELECT count(*) FROM agentapp_tool").fetchone()
        assert count
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            product.execute("UPDATE approvals_event SET id = id")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            product.execute("ALTER TABLE approvals_event DISABLE TRIGGER ALL")
    assert owners_of_tables(name) == {owner}
