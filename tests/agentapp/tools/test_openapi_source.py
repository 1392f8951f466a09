"""A call of an operation is one request to its server, and whatever comes back is a result that says what happened."""

import base64
import dataclasses
import ipaddress
import json
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from agentapp.messages import ToolResult
from agentapp.tools import credentials, openapi, sample
from agentapp.tools.base import OutcomeUnknown, ToolContext
from agentapp.tools.context import Cancelled
from agentapp.tools.openapi_contract import tool_of
from agentapp.tools.openapi_source import make
from agentapp.tools.results import InvalidArguments, ToolError
from agentapp.tools.schema import check_arguments
from tests.absent import refusing
from tests.service import Service, document

SHOP: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders/{id}": {
            "get": {
                "operationId": "get_order",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "seen", "in": "cookie", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"content": {"application/json": {}}}},
            },
            "delete": {
                "operationId": "cancel_order",
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"204": {}},
            },
        },
        "/orders": {
            "post": {
                "operationId": "place_order",
                "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {"201": {"content": {"application/json": {}}}},
            }
        },
    },
}


@pytest.fixture
def served(settings: Any) -> Iterator[Callable[..., Service]]:
    settings.OUTBOUND_NETWORKS = [ipaddress.ip_network("127.0.0.0/24")]
    made: list[Service] = []

    def start(said: dict[str, Any] = SHOP, address: str = "127.0.0.1", prefix: str = "/v1") -> Service:
        made.append(Service(said, address, prefix))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def shop(served: Callable[..., Service]) -> Service:
    return served()


def row_of(shop: Service, name: str, read: openapi.Document | None = None, **more: Any) -> Any:
    """A tool's row for one operation, as stored."""
    read = read or openapi.read(json.dumps(shop.document))
    [operation] = [one for one in read.operations if one.name == name]
    tool = tool_of(operation, name, operation.effect_class, shop.url, read.servers)
    source = SimpleNamespace(
        name="shop", kind="openapi", location=shop.url, schemes=read.schemes,
        credentials=more.pop("credentials", {}), hosts=more.pop("hosts", []),
        approval_receipts=more.pop("approval_receipts", False),
    )  # fmt: skip
    row = SimpleNamespace(
        name=name, description=tool.description, input_schema=tool.input_schema, output_schema=None, source=source,
        wire=json.loads(json.dumps(tool.wire)), idempotency="none", timeout_seconds=5,
        consequential=operation.effect_class != "read",
    )  # fmt: skip
    vars(row).update(more)
    return row


def context(**values: Any) -> ToolContext:
    given: dict[str, Any] = dict.fromkeys(
        ("run_id", "call_id", "agent", "conversation_id", "customer", "actor", "route", "idempotency_key"), ""
    )
    return ToolContext(**{**given, "step": 1, "deadline": datetime.now(UTC) + timedelta(seconds=5), **values})


def call(row: Any, /, arguments: dict[str, Any] | None = None, **values: Any) -> ToolResult:
    return make(row).run(arguments or {}, context(**values))


def says(
    status: int, body: Any = b"", media: str = "application/json", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, {"Content-Type": media, **named} if content else named, content


# --- Requests ----------------------------------------------------------------------------------


def test_every_argument_arrives_where_the_document_says(shop: Service) -> None:
    result = call(row_of(shop, "get_order"), {"id": "A 1/ü", "fields": ["a", "b,c"], "X-Trace": "t1", "seen": "y;n"})
    [asked] = shop.asked
    assert result.status == "ok"
    assert asked.problems == []
    assert asked.values == {"id": "A 1/ü", "fields": ["a", "b,c"], "X-Trace": "t1", "seen": "y%3Bn"}


@pytest.mark.parametrize("name", ["figma", "github", "blockfrost"])
def test_every_operation_of_a_real_service_is_asked_as_its_document_says(
    served: Callable[..., Service], name: str
) -> None:
    real = served(document(name), prefix="")
    read, without_example = openapi.read(json.dumps(real.document)), []
    for operation in read.operations:
        row = row_of(real, operation.name, read)
        row.wire |= {"security": [], "server": real.url}
        arguments = sample.arguments(row.input_schema)
        if check_arguments(row.input_schema, arguments):
            without_example.append(operation.name)
            continue
        result = call(row, arguments)
        asked = real.asked[-1]
        assert (asked.problems, result.status) == ([], "ok"), (operation.name, result)
        assert asked.template == operation.path
        sent = {operation.places[own].name for own in arguments} - {"body"}
        assert set(asked.values) == sent, operation.name
        if "body" in arguments and operation.places["body"].media == "application/json":
            assert asked.json == arguments["body"]
    assert len(without_example) <= 1


def test_an_argument_that_would_leave_its_place_is_not_sent(shop: Service) -> None:
    with pytest.raises(InvalidArguments, match="out of its place"):
        call(row_of(shop, "get_order"), {"id": "../admin"})
    assert shop.asked == []


def test_a_key_is_sent_where_the_row_says_that_it_is_honoured(shop: Service) -> None:
    for idempotency in ("none", "key"):
        call(row_of(shop, "place_order", idempotency=idempotency), {"body": {"a": 1}}, idempotency_key="k1")
    assert [one.headers.get("idempotency-key") for one in shop.asked] == [None, "k1"]
    assert shop.asked[1].json == {"a": 1}


def test_a_call_that_was_told_to_stop_is_not_sent(shop: Service) -> None:
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Cancelled):
        call(row_of(shop, "place_order"), {"body": {}}, cancelled=stopped)
    assert shop.asked == []


# --- Answers -----------------------------------------------------------------------------------

READ, WRITE = "get_order", "place_order"
GIVEN = {READ: {"id": "1"}, WRITE: {"body": {}}}


@pytest.mark.parametrize("name", [READ, WRITE])
@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (says(200, {"a": [1, None]}), {"a": [1, None]}),
        (says(201, {"a": "ü"}, "application/vnd.shop+json; charset=utf-8"), {"a": "ü"}),
        (says(200, "grüße".encode("latin-1"), "text/plain; charset=latin-1"), "grüße"),
        (says(200, b"<a/>", "application/xml"), "<a/>"),
        (says(204), None),
        (says(200, b"\x89PNG", "image/png"), {"content_type": "image/png", "bytes": 4}),
    ],
)
def test_a_success_is_what_the_server_gave(shop: Service, name: str, answer: Any, data: Any) -> None:
    shop.answers = [answer]
    result = call(row_of(shop, name), GIVEN[name])
    assert (result.status, result.data) == ("ok", data)
    assert result.metadata["status"] == answer[0]


@pytest.mark.parametrize(
    ("status", "read", "write"),
    [
        (400, ("refused", "invalid_arguments"), ("refused", "invalid_arguments")),
        (401, ("fatal_error", "tool_failure"), ("fatal_error", "tool_failure")),
        (403, ("fatal_error", "tool_failure"), ("fatal_error", "tool_failure")),
        (404, ("refused", "tool_failure"), ("refused", "tool_failure")),
        (408, ("retryable_error", "tool_failure"), ("retryable_error", "tool_failure")),
        (409, ("refused", "tool_failure"), ("refused", "tool_failure")),
        (422, ("refused", "invalid_arguments"), ("refused", "invalid_arguments")),
        (429, ("retryable_error", "tool_failure"), ("retryable_error", "tool_failure")),
        (500, ("retryable_error", "tool_failure"), ("fatal_error", "outcome_unknown")),
        (501, ("fatal_error", "tool_failure"), ("fatal_error", "tool_failure")),
        (502, ("retryable_error", "tool_failure"), ("fatal_error", "outcome_unknown")),
        (503, ("retryable_error", "tool_failure"), ("fatal_error", "outcome_unknown")),
        (504, ("retryable_error", "tool_failure"), ("fatal_error", "outcome_unknown")),
    ],
)
def test_an_error_says_what_is_known(shop: Service, status: int, read: Any, write: Any) -> None:
    for name, expected in ((READ, read), (WRITE, write)):
        shop.answers = [says(status, {"error": "the reason"})]
        result = call(row_of(shop, name), GIVEN[name])
        assert (result.status, str(result.reason)) == expected
        assert "the reason" in f"{result.data}{result.message}"
        assert len(shop.asked) == 1
        shop.asked.clear()


@pytest.mark.parametrize("status", [429, 503])
def test_how_long_to_wait_is_taken_in_seconds_and_as_a_date(shop: Service, status: int) -> None:
    shop.answers = [says(status, b"x", "text/plain", Retry_After="7")]
    assert call(row_of(shop, READ), GIVEN[READ]).retry_after == 7
    moment = datetime.now(UTC) + timedelta(seconds=90)
    shop.answers = [says(status, b"x", "text/plain", Retry_After=moment.strftime("%a, %d %b %Y %H:%M:%S GMT"))]
    assert 60 < (call(row_of(shop, READ), GIVEN[READ]).retry_after or 0) <= 91
    shop.answers = [says(status, b"x", "text/plain", Retry_After="7")]
    refused = call(row_of(shop, WRITE), GIVEN[WRITE])
    assert (refused.status, refused.retry_after) == ("retryable_error", 7), "who says when it can do it has not done it"


@pytest.mark.parametrize(
    "said", ["soon", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "1 Jan 1 00:00:00 +9999999999"]
)
def test_a_server_that_wants_to_be_left_alone_has_done_nothing_however_it_says_how_long(
    shop: Service, said: str
) -> None:
    for name in (READ, WRITE):
        shop.answers = [says(429, b"x", "text/plain", Retry_After=said)]
        result = call(row_of(shop, name), GIVEN[name])
        assert (result.status, result.retry_after) == ("retryable_error", None)


@pytest.mark.parametrize("body", [b"{", b"<html>", b'{"a": NaN}', b"[" * 100_000])
def test_what_is_called_json_and_is_not_is_said_to_be_so(shop: Service, body: bytes) -> None:
    shop.answers = [says(200, body)]
    result = call(row_of(shop, READ), GIVEN[READ])
    assert (result.status, result.reason) == ("fatal_error", "tool_result_invalid")
    assert "not JSON" in result.message


def test_an_answer_that_is_too_long_names_the_limit(shop: Service) -> None:
    for name, status in ((READ, "fatal_error"), (WRITE, "ok")):
        shop.answers = [says(200, b"x" * 2_000_000, "text/plain")]
        result = call(row_of(shop, name), GIVEN[name])
        assert (result.status, result.reason) == (status, "result_too_large")
        assert "1048576 bytes" in result.message


def test_a_packed_answer_is_not_unpacked(shop: Service) -> None:
    shop.answers = [says(200, b"\x1f\x8b", Content_Encoding="gzip")]
    assert "compressed" in call(row_of(shop, READ), GIVEN[READ]).message
    assert shop.asked[0].headers["accept-encoding"] == "identity"


# --- The line ----------------------------------------------------------------------------------


def test_an_answer_that_does_not_come_in_time(shop: Service) -> None:
    shop.gate = threading.Event()
    soon = {"deadline": datetime.now(UTC) + timedelta(seconds=0.2)}
    result = call(row_of(shop, READ), GIVEN[READ], **soon)
    assert (result.status, result.reason) == ("retryable_error", "tool_timeout")
    with pytest.raises(OutcomeUnknown, match="may have done it"):
        call(row_of(shop, WRITE), GIVEN[WRITE], deadline=datetime.now(UTC) + timedelta(seconds=0.2))
    shop.gate.set()


def test_a_line_that_breaks_in_the_answer(shop: Service) -> None:
    for name in (READ, WRITE):
        shop.answers = [says(200, b"{}", Content_Length="100")]
        if name == WRITE:
            with pytest.raises(OutcomeUnknown, match="broke off"):
                call(row_of(shop, name), GIVEN[name])
        else:
            assert call(row_of(shop, name), GIVEN[name]).status == "retryable_error"


def test_a_refusal_is_known_also_where_the_line_breaks_in_its_words(shop: Service) -> None:
    shop.answers = [says(404, b"gone", "text/plain", Content_Length="100")]
    result = call(row_of(shop, WRITE), GIVEN[WRITE])
    assert (result.status, result.data) == ("refused", "gone")


@pytest.mark.parametrize("name", [READ, WRITE])
def test_a_server_that_is_not_there_has_done_nothing(shop: Service, name: str) -> None:
    row = row_of(shop, name)
    with refusing() as port:
        row.wire["server"] = f"http://127.0.0.1:{port}"
        with pytest.raises(ToolError, match="nothing was sent") as failed:
            call(row, GIVEN[name])
    assert failed.value.retryable


# --- Redirects ---------------------------------------------------------------------------------


def test_a_question_is_asked_where_it_is_sent_on(shop: Service) -> None:
    shop.answers = [says(302, b"", Location="/v1/orders/2"), says(200, {"id": 2})]
    assert call(row_of(shop, READ), GIVEN[READ]).data == {"id": 2}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (301, ("fatal_error", "outcome_unknown")), (302, ("fatal_error", "outcome_unknown")), (303, ("ok", "")),
        (307, ("fatal_error", "tool_failure")), (308, ("fatal_error", "tool_failure")),
    ],
)  # fmt: skip
def test_a_write_is_never_sent_again(shop: Service, status: int, expected: Any) -> None:
    shop.answers = [says(status, b"", Location="/v1/orders")]
    result = call(row_of(shop, WRITE), GIVEN[WRITE])
    assert (result.status, str(result.reason)) == expected
    assert len(shop.asked) == 1


@pytest.mark.parametrize("where", ["/v1/orders/gone", "https://elsewhere.example/", "nowhere"])
@pytest.mark.parametrize(
    ("status", "expected"),
    [(302, ("fatal_error", "outcome_unknown")), (303, ("ok", "")), (307, ("fatal_error", "tool_failure"))],
)
def test_nor_is_a_get_that_counts_as_a_write(shop: Service, status: int, expected: Any, where: str) -> None:
    with refusing() as port:
        where = f"http://127.0.0.1:{port}/" if where == "nowhere" else where
        shop.answers = [says(status, b"", Location=where), says(404)]
        result = call(row_of(shop, READ, consequential=True, hosts=["127.0.0.1"]), GIVEN[READ])
    assert (result.status, str(result.reason)) == expected
    assert len(shop.asked) == 1


def test_redirects_end(shop: Service) -> None:
    shop.answers = [says(302, b"", Location="/v1/orders/1")] * 9
    assert "redirects us" in call(row_of(shop, READ), GIVEN[READ]).message
    assert len(shop.asked) == 3


# --- Credentials -------------------------------------------------------------------------------

SECRET = "s3cret/+value"
SCHEMES = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "Basic"},
    "open": {"type": "openIdConnect", "openIdConnectUrl": "https://id.example"},
    "digest": {"type": "http", "scheme": "digest"},
    "mutual": {"type": "mutualTLS"},
}


def secured(*alternatives: list[str], schemes: dict[str, Any] | None = None) -> dict[str, Any]:
    security = [{name: [] for name in one} for one in alternatives]
    return {**SHOP, "security": security, "components": {"securitySchemes": schemes or SCHEMES}}


@pytest.fixture(autouse=True)
def _credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIAL_SHOP", SECRET)
    monkeypatch.setenv("CREDENTIAL_PAIR", f"ana:{SECRET}")
    credentials._tokens.clear()


@pytest.mark.parametrize(
    ("scheme", "name", "where", "value"),
    [
        ("header", "SHOP", "x-key", SECRET),
        ("cookie", "SHOP", "cookie", "sid=s3cret%2F%2Bvalue"),
        ("bearer", "SHOP", "authorization", f"Bearer {SECRET}"),
        ("basic", "PAIR", "authorization", f"Basic {base64.b64encode(f'ana:{SECRET}'.encode()).decode()}"),
        ("open", "SHOP", "authorization", f"Bearer {SECRET}"),
    ],
)
def test_a_credential_goes_where_its_scheme_says(
    served: Callable[..., Service], scheme: str, name: str, where: str, value: str
) -> None:
    shop = served(secured([scheme]))
    call(row_of(shop, READ, credentials={scheme: name}), GIVEN[READ])
    assert shop.asked[0].headers[where] == value


def test_no_argument_stands_in_for_a_credential_in_a_cookie(served: Callable[..., Service]) -> None:
    schemes = {"cookie": {"type": "apiKey", "in": "cookie", "name": "seen"}}
    shop = served(secured(["cookie"], schemes=schemes))
    call(row_of(shop, READ, credentials={"cookie": "SHOP"}), {**GIVEN[READ], "seen": "another"})
    assert shop.asked[0].headers["cookie"] == "seen=s3cret%2F%2Bvalue"


def test_a_credential_in_the_query_takes_the_place_of_what_the_model_says(served: Callable[..., Service]) -> None:
    said = secured(["query"])
    said["paths"] = json.loads(json.dumps(said["paths"]))
    parameters = said["paths"]["/orders/{id}"]["get"]["parameters"]
    parameters.append({"name": "key", "in": "query", "schema": {"type": "string"}})
    shop = served(said)
    call(row_of(shop, READ, credentials={"query": "SHOP"}), {"id": "1", "key": "mine"})
    assert shop.asked[0].values["key"] == SECRET


def test_of_several_ways_the_one_with_a_credential_is_taken(served: Callable[..., Service]) -> None:
    shop = served(secured(["mutual"], ["header", "query"], ["bearer"]))
    call(row_of(shop, READ, credentials={"bearer": "SHOP", "query": "SHOP"}), GIVEN[READ])
    assert set(shop.asked[0].headers) & {"authorization", "x-key"} == {"authorization"}
    call(row_of(shop, READ, credentials={"header": "SHOP", "query": "SHOP"}), GIVEN[READ])
    assert shop.asked[1].headers["x-key"] == SECRET


def test_where_none_is_needed_none_is_sent(served: Callable[..., Service]) -> None:
    shop = served(secured(["bearer"], []))
    call(row_of(shop, READ), GIVEN[READ])
    assert "authorization" not in shop.asked[0].headers


def test_a_document_that_names_no_scheme_takes_what_a_person_names(shop: Service) -> None:
    call(row_of(shop, READ, credentials={"bearer": "SHOP"}), GIVEN[READ])
    assert shop.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("scheme", "name", "message"),
    [
        ("bearer", "GONE", "CREDENTIAL_GONE is not set"),
        ("bearer", "", "not set"),
        ("bearer", "BROKEN", "cannot be sent"),
        ("digest", "SHOP", "not supported here"),
        ("mutual", "SHOP", "not supported here"),
    ],
)
def test_a_credential_that_cannot_be_used_is_for_a_person_to_set(
    served: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, scheme: str, name: str, message: str
) -> None:
    monkeypatch.setenv("CREDENTIAL_BROKEN", "two\nlines")
    shop = served(secured([scheme]))
    with pytest.raises(ToolError, match=message) as refused:
        call(row_of(shop, READ, credentials={scheme: name}), GIVEN[READ])
    assert "lines" not in str(refused.value)
    assert shop.asked == []


def test_without_a_credential_nothing_is_asked(served: Callable[..., Service]) -> None:
    shop = served(secured(["header"], ["bearer"]))
    with pytest.raises(ToolError, match="No credential is named for header or bearer"):
        call(row_of(shop, READ), GIVEN[READ])
    assert shop.asked == []


def test_what_a_server_repeats_of_a_secret_is_taken_out(
    served: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
    shop = served(secured(["basic"]))
    row = row_of(shop, READ, credentials={"basic": "PAIR"})
    sent = base64.b64encode(f"ana:{SECRET}".encode()).decode()
    with caplog.at_level(logging.DEBUG):
        for status in (200, 401, 422, 500):
            told = {"you sent": [f"Basic {sent}", SECRET, "s3cret%2F%2Bvalue"], SECRET: 1}
            shop.answers = [says(status, told, ETag=SECRET)]
            result = call(row, GIVEN[READ])
            assert SECRET not in str(dataclasses.asdict(result))
            assert sent not in str(dataclasses.asdict(result))
            assert "[redacted]" in str(result.data)
    assert SECRET not in caplog.text
    assert sent not in caplog.text


@pytest.mark.parametrize("scheme", ["header", "bearer", "cookie"])
def test_a_credential_does_not_follow_to_another_host(served: Callable[..., Service], scheme: str) -> None:
    shop, other = served(secured([scheme])), served(address="127.0.0.2")
    row = row_of(shop, READ, credentials={scheme: "SHOP"}, hosts=["127.0.0.1", "127.0.0.2"])
    shop.answers = [says(307, b"", Location=f"{other.url}/orders/1")]
    assert call(row, {"id": "1", "X-Trace": "t"}).status == "ok"
    assert not set(other.asked[0].headers) & {"x-key", "authorization", "cookie", "x-trace"}
    assert SECRET not in str(other.asked[0].headers)


@pytest.mark.parametrize("written", ["s3cret%2F%2Bvalue", "s3cret/%2bvalue", "s3cret%252F%252Bvalue"])
def test_a_redirect_that_carries_a_credential_in_its_address_is_not_followed(
    served: Callable[..., Service], written: str
) -> None:
    shop, other = served(secured(["query"])), served(address="127.0.0.2")
    row = row_of(shop, READ, credentials={"query": "SHOP"}, hosts=["127.0.0.1", "127.0.0.2"])
    shop.answers = [says(302, b"", Location=f"{other.url}/orders/1?key={written}")]
    result = call(row, GIVEN[READ])
    assert (result.status, [note.type for note in result.notes]) == ("fatal_error", ["outbound.refused"])
    assert other.asked == []


# --- Tokens ------------------------------------------------------------------------------------


@pytest.fixture
def issuing(served: Callable[..., Service]) -> tuple[Service, Any]:
    """A shop that takes tokens issued by its own token server."""
    flow = {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}
    said = secured(["oauth"], schemes={"oauth": {"type": "oauth2", "flows": flow}})
    shop = served(said)
    return shop, row_of(shop, READ, credentials={"oauth": "PAIR"})


def token(name: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    return says(200, {"access_token": name, "token_type": "bearer", **more})


def test_a_token_is_got_once_and_kept_while_it_counts(issuing: tuple[Service, Any], monkeypatch: Any) -> None:
    shop, row = issuing
    monkeypatch.setenv("CREDENTIAL_PAIR_SCOPE", "orders")
    shop.answers = [token("token-1", expires_in=3600), says(200, {}), says(200, {})]
    assert [call(row, GIVEN[READ]).status for _ in range(2)] == ["ok", "ok"]
    asked = [(one.method, one.path) for one in shop.asked]
    assert asked == [("post", "/token"), ("get", "/orders/1"), ("get", "/orders/1")]
    assert shop.asked[0].body == b"grant_type=client_credentials&scope=orders"
    assert {one.headers["authorization"] for one in shop.asked[1:]} == {"Bearer token-1"}


def test_a_token_is_got_anew_when_it_is_over(issuing: tuple[Service, Any]) -> None:
    shop, row = issuing
    shop.answers = [token("token-1", expires_in=10), says(200, {}), token("token-2"), says(200, {})]
    for _ in range(2):
        call(row, GIVEN[READ])
    assert [one.headers["authorization"] for one in shop.asked[1::2]] == ["Bearer token-1", "Bearer token-2"]


def test_a_token_may_say_that_it_counts_for_longer_than_anything_does(issuing: tuple[Service, Any]) -> None:
    shop, row = issuing
    shop.answers = [token("token-1", expires_in=10**400), says(200, {}), says(200, {})]
    assert [call(row, GIVEN[READ]).status for _ in range(2)] == ["ok", "ok"]
    assert [one.path for one in shop.asked] == ["/token", "/orders/1", "/orders/1"]


def test_a_kept_token_that_is_not_taken_any_more_is_got_anew_once(issuing: tuple[Service, Any]) -> None:
    shop, row = issuing
    shop.answers = [token("token-1"), says(200, {}), says(401, {}), token("token-2"), says(200, {"a": 1})]
    call(row, GIVEN[READ])
    assert call(row, GIVEN[READ]).data == {"a": 1}
    shop.answers = [says(401, {}), token("token-3"), says(401, {})]
    assert "did not let us in" in call(row, GIVEN[READ]).message


@pytest.mark.parametrize(
    ("answer", "retryable"),
    [
        (says(401, {"error": f"bad {SECRET}"}), False),
        (says(200, {"no": "token"}), False),
        (says(200, b"x", "text/html"), False),
        (says(302, b"", Location="http://127.0.0.2/token"), False),
        (says(503, b""), True),
        (says(429, b""), True),
    ],
)
def test_without_a_token_nothing_is_sent(issuing: tuple[Service, Any], answer: Any, retryable: bool) -> None:
    shop, row = issuing
    shop.answers = [answer]
    with pytest.raises(ToolError, match="nothing was sent") as failed:
        call(row, GIVEN[READ])
    assert failed.value.retryable is retryable
    assert SECRET not in str(failed.value)
    assert len(shop.asked) == 1


def test_a_server_of_tokens_is_asked_only_where_calls_may_go(served: Callable[..., Service]) -> None:
    thief = served(address="127.0.0.2")
    flow = {"clientCredentials": {"tokenUrl": f"{thief.url}/token", "scopes": {}}}
    shop = served(secured(["oauth"], schemes={"oauth": {"type": "oauth2", "flows": flow}}))
    result = call(row_of(shop, READ, credentials={"oauth": "PAIR"}), GIVEN[READ])
    assert [note.type for note in result.notes] == ["outbound.refused"]
    assert (thief.asked, shop.asked) == ([], [])


# --- Where it may not go -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "server",
    [
        "http://127.1.0.1:{port}", "http://2130771969:{port}", "http://0x7f010001:{port}", "http://[::1]:{port}",
        "http://[::ffff:127.1.0.1]:{port}", "http://[::ffff:7f01:1]:{port}", "http://169.254.169.254",
        "https://10.0.0.1", "file:///etc", "ftp://127.0.0.1", "http://user:pass@127.0.0.1:{port}",
    ],
)  # fmt: skip
def test_no_form_of_an_inner_address_is_asked(served: Callable[..., Service], server: str) -> None:
    shop, canary = served(), served(address="127.1.0.1")
    row = row_of(shop, READ)
    row.wire["server"] = row.source.location = server.format(port=canary.port)
    result = call(row, GIVEN[READ])
    assert (result.status, [note.type for note in result.notes]) == ("fatal_error", ["outbound.refused"])
    assert "was not allowed out" in result.message
    assert (shop.asked, canary.asked) == ([], [])


def test_an_operation_with_a_server_of_its_own_needs_that_to_be_listed(served: Callable[..., Service]) -> None:
    shop, uploads = served(), served(address="127.0.0.2")
    row = row_of(shop, READ)
    row.wire["server"] = uploads.url
    assert call(row, GIVEN[READ]).notes[0].type == "outbound.refused"
    row.source.hosts = ["127.0.0.2"]
    assert call(row, GIVEN[READ]).status == "ok"
    assert (len(shop.asked), len(uploads.asked)) == (0, 1)
