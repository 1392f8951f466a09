"""If a server repeats a credential, in whatever spelling, no row, event or log has it, and no model is told it."""

import base64
import html
import ipaddress
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import mcp_types as types
import pytest
from django.apps import apps

from agentapp import observe
from agentapp.answers import answer
from agentapp.importing import planning, writing
from agentapp.importing.planning import Given
from agentapp.models import SourceHealth, Tool, ToolExecution, ToolSource
from agentapp.refreshing import refresh
from agentapp.tools import credentials
from tests.conftest import Clerk, call, calls, says
from tests.mcp_servers import Answer, Peer, Scripted, command, run
from tests.processes import until

SECRET = "s3cretOne/+Two&'Three"
TOKEN = "t0kenOne+/Two=="
JSON = {"Content-Type": "application/json"}
PAIR = base64.b64encode(f"ana:{SECRET}".encode()).decode()


def rows() -> str:
    """Everything the database holds."""
    return "\n".join(str(list(model._default_manager.values_list())) for model in apps.get_models())


def seen_of(secret: str, *texts: str) -> set[str]:
    """The parts of a secret found in these texts, however the characters between them are written."""
    parts = [part for found in re.findall(r"[A-Za-z0-9]{5,}", secret) for part in (found[:8], found[-8:])]
    return {part for part in parts for text in texts if part in text}


# --- Services ----------------------------------------------------------------------------------

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "php": lambda text: text.replace("/", "\\/"),
    "dotnet": lambda text: "".join(one if one.isalnum() else f"\\u{ord(one):04X}" for one in text),
    "nested": lambda text: text.replace("/", "\\\\\\/"),
    "address": lambda text: quote(text, safe=""),
    "lower": lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    "half": lambda text: quote(text, safe="/&"),
    "twice": lambda text: quote(quote(text, safe=""), safe=""),
    "html": html.escape,
    "late": lambda text: "x" * 3_975 + text,
}
# An error's text is kept as the server wrote it; a success is parsed first.
KINDS = [
    *(f"422-{spelling}" for spelling in SPELLINGS),
    *("200-plain", "200-php", "200-twice", "200-html", "200-late", "401-dotnet", "500-late"),
]
SCHEMES: dict[str, dict[str, Any]] = {
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "basic": {"type": "http", "scheme": "basic"},
    "oauth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
}


class _Parrot(BaseHTTPRequestHandler):
    """Repeats the credential it was shown, with the status and the spelling that the path asks for."""

    def do_POST(self) -> None:
        self._answer(200, {}, json.dumps({"access_token": TOKEN, "expires_in": 3600}), "application/json")

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        status, spelling = url.path.rpartition("/")[2].split("-")
        credential = dict(parse_qsl(url.query)).get("key") or self.headers["Authorization"].split()[-1]
        shown = SPELLINGS[spelling](credential)
        media = "text/plain" if status == "200" and spelling == "late" else "application/json"
        body = shown if media == "text/plain" else f'{{"you sent": "{shown}"}}'
        self._answer(int(status), {"ETag": "x" * 488 + shown}, body, media)

    def _answer(self, status: int, headers: dict[str, str], body: str, media: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": media, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def parrot(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a service that repeats what it is shown."""
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    settings.BREAKER_THRESHOLD = 1000
    monkeypatch.setenv("CREDENTIAL_SHOP", SECRET)
    monkeypatch.setenv("CREDENTIAL_PAIR", f"ana:{SECRET}")
    credentials._tokens.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Parrot)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    serving.join()
    server.server_close()


def offer(clerk: Clerk, address: str, scheme: str, credential: str) -> None:
    """Give the clerk the service's one operation, which takes this credential."""
    place = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    operation = {"operationId": "get_order", "parameters": [place], "responses": {"200": {"description": "It."}}}
    document = {
        "openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "security": [{scheme: []}],
        "paths": {"/orders/{id}": {"get": operation}}, "components": {"securitySchemes": {scheme: SCHEMES[scheme]}},
    }  # fmt: skip
    planned = planning.plan(Given(json.dumps(document), name="shop", location=address))
    picked = {one.key: one.choice for one in planned.proposed}
    writing.write(planned, picked, "test", {scheme: credential})
    offered = Tool.objects.filter(source__name="shop")
    offered.update(max_attempts=1)
    clerk.agent.tools.set(offered)


@pytest.mark.parametrize(
    ("scheme", "credential", "shown"),
    [("query", "SHOP", SECRET), ("basic", "PAIR", PAIR), ("oauth", "PAIR", TOKEN)],
    ids=["query", "basic", "oauth"],
)
def test_nothing_that_a_service_repeats_of_a_credential_is_kept_told_or_logged(
    clerk: Clerk, parrot: str, caplog: pytest.LogCaptureFixture, scheme: str, credential: str, shown: str
) -> None:
    offer(clerk, parrot, scheme, credential)
    events: list[observe.Observed] = []
    end = observe.wiretap(events.append)
    with caplog.at_level(logging.DEBUG):
        run = clerk.run(calls(*(call(kind, "get_order", id=kind) for kind in KINDS)), says("done"))
    end()
    executions = list(ToolExecution.objects.filter(run=run).select_related("tool"))
    assert len(executions) == len(KINDS)
    leaks = {each.call_id: seen_of(shown, answer(each).text, each.message) for each in executions}
    assert {kind: parts for kind, parts in leaks.items() if parts} == {}
    for secret in (shown, SECRET):
        assert seen_of(secret, rows(), str(events), caplog.text) == set()


def test_a_number_that_is_a_credential_is_taken_out_of_an_answer() -> None:
    said = {"you sent": {"pin": 88123499, "seen": True}, "others": [88123498]}
    assert credentials.redacted(said, {"88123499"}) == {
        "you sent": {"pin": "[redacted]", "seen": True},
        "others": [88123498],
    }


# --- MCP servers -------------------------------------------------------------------------------


def test_nothing_that_a_server_lists_or_prints_of_a_credential_is_kept_or_logged(
    db: None, started: Peer, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", SECRET)
    settings.MCP_COMMANDS["peer"] = command(started.folder, credentials={"SHOP_TOKEN": "SHOP"})
    text = {"type": "string", "default": SECRET, "description": f"As in ?key={quote(SECRET, safe='')}."}
    note = {"description": f"Writes as {SECRET}.", "inputSchema": {"type": "object", "properties": {"text": text}}}
    started.promise(note={**note, "title": SECRET, "annotations": {"title": SECRET}})
    source = ToolSource.objects.create(name=started.source.name, kind="mcp", location=started.location)
    with caplog.at_level(logging.DEBUG):
        assert refresh(source, "test").problem == ""
        until(lambda: "An MCP server says" in caplog.text, "what the server prints to be heard")
    assert "SHOP_TOKEN" in caplog.text
    assert seen_of(SECRET, rows(), caplog.text) == set()
    row = Tool.objects.select_related("source").get(name="note")
    assert row.description == "Writes as [redacted]."
    assert run(row, {"text": "a"}).status == "ok"


def failed(request: dict[str, Any]) -> Answer:
    error = {"code": types.INTERNAL_ERROR, "message": "x" * 488 + SECRET}
    return 200, JSON, json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()


def unreadable(request: dict[str, Any]) -> Answer:
    return 200, JSON, f'{{"jsonrpc": "2.0", "id": {request["id"]}, "you": {SECRET}}}'.encode()


@pytest.mark.parametrize(
    ("method", "server_says"), [("initialize", failed), ("tools/list", failed), ("tools/list", unreadable)]
)
def test_why_a_server_cannot_be_asked_is_kept_and_logged_without_the_credential(
    db: None, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    method: str, server_says: Callable[[dict[str, Any]], Answer],
) -> None:  # fmt: skip
    monkeypatch.setenv("CREDENTIAL_SHOP", SECRET)
    scripted.at[method] = server_says
    named = {"bearer": "SHOP"}
    source = ToolSource.objects.create(name="scripted", kind="mcp", location=scripted.url, credentials=named)
    with caplog.at_level(logging.DEBUG):
        refresh(source, "test")
    assert SourceHealth.objects.get(source=source).problem != ""
    assert seen_of(SECRET, rows(), caplog.text) == set()
