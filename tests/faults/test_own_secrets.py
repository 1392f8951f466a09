"""The secrets the processes are given turn up nowhere: in no row, log, message, page or answer of the API.

Peers answer with the headers they were sent, the mail server is away, and sign-ins fail: what goes wrong is told, and
what is told must not tell a secret.
"""

import base64
import ipaddress
import json
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from agentapp.importing import planning, writing
from agentapp.importing.planning import Given
from agentapp.models import Agent, Step, Tool, ToolSource
from approvals import configuration, ledger
from approvals.models import Channel
from benchmarks.servers import free_port
from tests.conftest import call, calls, says
from tests.faults.outside import of_every_kind
from tests.faults.peers import DOCUMENT, ECHO, Peer
from tests.faults.stage import DATABASE, Stack, Stage, eventually
from tests.faults.verdict import ended
from tests.wire import DIALECTS

pytestmark = pytest.mark.faults

OPENAI = DIALECTS["openai"]
SECURED = DOCUMENT | {
    "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    "security": [{"key": []}],
}
MARKER = f"please-{ECHO}"
PAGES = (
    "/inbox/",
    "/runs/",
    "/audit/",
    "/tools/",
    "/insights/",
    "/settings/",
    "/admin/",
    "/admin/agentapp/toolsource/",
)


@pytest.fixture(scope="module")
def planted() -> dict[str, str]:
    """The secrets, by what they are for."""
    word = secrets.token_hex
    key = base64.b64encode(secrets.token_bytes(32)).decode()
    plain = {name: word(16) for name in ("database", "METRICS_TOKEN", "EMAIL_PASSWORD", "CREDENTIAL_BANK")}
    return {"SECRET_KEY": word(32), OPENAI.key_variable: f"sk-{word(16)}", "LEDGER_SIGNING_KEY": key, **plain}


@pytest.fixture(scope="module")
def kept_stack(
    stage: Stage, peer: Peer, planted: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    given = {name: secret for name, secret in planted.items() if name != "database"}
    address = stage.postgres.url(DATABASE, f"product:{planted['database']}")  # this PostgreSQL trusts everybody
    variables = {
        "DATABASE_URL": address,
        "OUTBOUND_NETWORKS": "127.0.0.0/24",
        "MODEL_ATTEMPTS": "1",
        "BREAKER_THRESHOLD": "1000",
        "LOG_LEVEL": "INFO",
        "EMAIL_HOST": "127.0.0.1",
        "EMAIL_PORT": str(free_port()),
        "EMAIL_USER": "countersign",
        "EMAIL_SECURITY": "none",
        OPENAI.url_variable: peer.url + OPENAI.url_path,
    }
    before = settings.OUTBOUND_NETWORKS, settings.SECRET_KEY
    settings.OUTBOUND_NETWORKS, settings.SECRET_KEY = [ipaddress.ip_network("127.0.0.0/24")], planted["SECRET_KEY"]
    made = Stack(stage, tmp_path_factory.mktemp("secrets"), **(variables | given))
    try:
        furnish(peer)
        made.until_ready()
        yield made
    finally:
        settings.OUTBOUND_NETWORKS, settings.SECRET_KEY = before
        made.end_all()


def furnish(peer: Peer) -> None:
    configuration.save(Agent(name="asker", driver="tool_calling", model=OPENAI.model), ledger.SYSTEM)
    planned = planning.plan(Given(json.dumps(SECURED), name="vault", location=peer.url, prefix="vault_"))
    writing.write(planned, {one.key: one.choice for one in planned.proposed}, ledger.SYSTEM)
    ToolSource.objects.filter(name="vault").update(credentials={"key": "BANK"})
    tools = Tool.objects.filter(source__name="vault")
    tools.update(max_attempts=1, timeout_seconds=5)
    keeper = Agent(name="keeper", driver="scripted")
    configuration.save(keeper, ledger.SYSTEM)
    keeper.tools.set(tools)
    channel = Channel(name="mail", kind="email", config={"to": ["desk@example.test"]})
    configuration.save(channel, ledger.SYSTEM)


@pytest.fixture
def messages(stage: Stage) -> Iterator[list[str]]:
    """Every command that Redis is sent meanwhile."""
    heard: list[str] = []
    client = redis.Redis(port=stage.redis.port)
    with client.monitor() as monitor:

        def listen() -> None:
            with suppress(redis.ConnectionError, ValueError, OSError, AttributeError):
                heard.extend(f"{told['command']}" for told in monitor.listen())

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        yield heard
    client.close()


def test_none_is_anywhere(stack: Stack, stage: Stage, peer: Peer, planted: dict[str, str], messages: list[str]) -> None:
    names = Tool.objects.filter(source__name="vault").values_list("name", flat=True)
    started = [
        stack.people.start(*of_every_kind(MARKER), item=MARKER),
        *(stack.people.start(calls(call("a", name, item=MARKER)), says("done"), agent="keeper") for name in names),
        *(stack.people.insist("sam", "/runs", {"agent": "asker", "input": said})["id"] for said in (MARKER, "Hello.")),
    ]
    stack.people.decide_everything()
    eventually(lambda: ended(started), "every run to end or to be shown to a person")
    stack.people.stop()
    assert any(f"Bearer {planted['CREDENTIAL_BANK']}" in headers for headers in peer.headers)
    assert any(planted[OPENAI.key_variable] in headers for headers in peer.headers)

    seen = "\n".join(pages(stack, started))  # first: what it leads to is looked at as well
    places = {
        "rows": rows(stage),
        "logs": "\n".join(log.read_text(errors="replace") for log in stack.folder.glob("*.log")),
        "messages": "\n".join(messages),
        "pages": seen,
    }
    assert MARKER in places["rows"]
    assert "authorization: " in places["rows"].lower()  # what the peer was sent came back
    assert MARKER in places["pages"]
    assert str(started[0]) in places["messages"]
    assert "email" in places["logs"].lower() or "mail" in places["logs"].lower()
    found = [(name, where) for name, secret in planted.items() for where, text in places.items() if secret in text]
    tokens = [(who, where) for who, token in stage.tokens.items() for where, text in places.items() if token in text]
    assert (found, tokens) == ([], [])


def rows(stage: Stage) -> str:
    """All that the database holds."""
    tables = stage.statement("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
    return "\n".join(text for (table,) in tables for (text,) in stage.statement(f"SELECT t::text FROM {table} t"))


def pages(stack: Stack, run_ids: list[Any]) -> Iterator[str]:
    """What an administrator sees, and what the API says."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in client.cookies.items())
    runs = [f"/runs/{run_id}/" for run_id in run_ids]
    steps = [f"/runs/{step.run_id}/?step={step.number}" for step in Step.objects.filter(run__in=run_ids)]
    wrong = urllib.request.Request(f"{stack.url}/login/", b"login=root&password=wrong", {"Cookie": cookies})
    for path in (*PAGES, *runs, *steps):
        request = urllib.request.Request(f"{stack.url}{path}", headers={"Cookie": cookies})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
            yield answer.read().decode()
    with suppress(urllib.error.HTTPError):
        urllib.request.urlopen(wrong, timeout=30).close()
    for run_id in run_ids:
        yield json.dumps(stack.people.ask("sam", f"/runs/{run_id}"))
