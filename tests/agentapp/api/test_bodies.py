"""Bodies that are wrong in some way: a precise answer, and nothing changed."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agentapp.api.errors import CODES, TYPE_PREFIX
from agentapp.models import Agent, Run
from approvals import accepting, decisions, standing
from tests.agentapp.api.conftest import PREFIX, document

NEW = {"agent": "support", "input": "Please refund the kettle."}


@pytest.fixture
def starting(client_of: Any, sam: User, support: Agent) -> Any:
    return client_of(sam, "runs:create")


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        pytest.param(b"", 422, "invalid", id="empty"),
        pytest.param(b" ", 400, "malformed_json", id="blank"),
        pytest.param(b"null", 422, "invalid", id="null"),
        pytest.param(b"[]", 422, "invalid", id="a list"),
        pytest.param(b'"text"', 422, "invalid", id="a text"),
        pytest.param(b"5", 422, "invalid", id="a number"),
        pytest.param(b"{", 400, "malformed_json", id="half a body"),
        pytest.param(b"agent=support", 400, "malformed_json", id="a form"),
        pytest.param(b'{"agent": "support", "input": NaN}', 400, "malformed_json", id="NaN"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"a": Infinity}}', 400, "malformed_json",
                     id="infinity"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"a": 1e999}}', 400, "malformed_json",
                     id="a float beyond floats"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"a": ' + b"9" * 5000 + b"}}", 400,
                     "malformed_json", id="an endless number"),
        pytest.param(b'{"agent": "support", "input": "a", "input": "b"}', 400, "malformed_json", id="a key twice"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"k": {"a": 1, "a": 2}}}', 400,
                     "malformed_json", id="a key twice, deep inside"),
        pytest.param(b'{"agent": "support", "input": "\xff\xfe"}', 400, "malformed_json", id="not UTF-8"),
        pytest.param('{"agent": "support", "input": "a"}'.encode("utf-16"), 400, "malformed_json", id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf{}", 400, "malformed_json", id="a byte order mark"),
        pytest.param(b'{"agent": "support", "input": "a\\u0000b"}', 400, "malformed_json", id="NUL"),
        pytest.param(b'{"agent": "support", "input": "\\ud800"}', 400, "malformed_json", id="half a surrogate"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"\\u0000": 1}}', 400, "malformed_json",
                     id="NUL in a key"),
        pytest.param(b'{"agent": "support", "input": "a", "metadata": {"a": ' + b"[" * 65 + b"]" * 65 + b"}}", 400,
                     "malformed_json", id="65 levels"),
        pytest.param(b"[" * 100_000, 400, "malformed_json", id="100,000 levels"),
        pytest.param(b'{"agent": "' + b"a" * 300_000 + b'"}', 413, "body_too_large", id="300 kB"),
        pytest.param(b'{"agent": "' + b"a" * 10_000_000 + b'"}', 413, "body_too_large", id="10 MB"),
    ],
)  # fmt: skip
def test_a_body_that_means_nothing_certain_is_refused(starting: Any, content: bytes, status: int, code: str) -> None:
    refused = starting.send("POST", "/runs", content)
    assert (refused.status, refused.code) == (status, code)
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml",
     "application/json; charset=latin-1", "application/jsonp"],
)  # fmt: skip
def test_a_body_of_another_type_is_refused(starting: Any, content_type: str) -> None:
    refused = starting.send("POST", "/runs", json.dumps(NEW).encode(), content_type)
    assert (refused.status, refused.code) == (415, "unsupported_media_type")
    assert not Run.objects.exists()


@pytest.mark.parametrize("body", [[], [1], "text", 5])
def test_a_body_that_is_no_object_is_said_to_need_one(starting: Any, body: Any) -> None:
    refused = starting.post("/runs", body)
    assert (refused.code, refused.data["detail"]) == ("invalid", "The body must be a JSON object.")
    assert starting.post("/runs", {**NEW, "metadata": [1]}).data["detail"] == "metadata: It must be an object."


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/json;charset=UTF-8"])
def test_a_charset_that_says_what_json_is_anyway_is_fine(starting: Any, content_type: str) -> None:
    assert starting.send("POST", "/runs", json.dumps(NEW).encode(), content_type).status == 201


@pytest.fixture
def cancelled(starting: Any) -> Callable[..., Any]:
    """`cancelled(content)`: the answer to a cancellation with a body, though it takes none, and the run afterwards."""
    run = Run.objects.get(pk=starting.post("/runs", NEW).data["id"])

    def cancel(content: bytes, content_type: str = "application/json") -> Any:
        answer = starting.send("POST", f"/runs/{run.pk}/cancel", content, content_type)
        run.refresh_from_db()
        return answer, run

    return cancel


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        pytest.param(b'{"sandbox": false}', 422, "invalid", id="an object"),
        pytest.param(b"null", 422, "invalid", id="null"),
        pytest.param(b"[]", 422, "invalid", id="a list"),
        pytest.param(b"{nonsense", 400, "malformed_json", id="half a body"),
        pytest.param(b"\xff", 400, "malformed_json", id="not UTF-8"),
        pytest.param(b'{"a": "' + b"a" * 300_000 + b'"}', 413, "body_too_large", id="300 kB"),
        pytest.param(b'{"a": "' + b"a" * 10_000_000 + b'"}', 413, "body_too_large", id="10 MB"),
    ],
)
def test_a_body_that_an_operation_does_not_take_is_refused(
    cancelled: Any, content: bytes, status: int, code: str
) -> None:
    refused, run = cancelled(content)
    assert (refused.status, refused.code) == (status, code)
    assert run.state == Run.State.QUEUED


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("content", [b"", b"{}"])
def test_nothing_and_an_empty_object_are_no_body(cancelled: Any, content: bytes, content_type: str) -> None:
    answer, run = cancelled(content, content_type)
    assert (answer.status, run.state) == (200, Run.State.CANCELLED)


def test_whoever_has_no_token_learns_nothing_of_bodies(anonymous: Any) -> None:
    assert anonymous.send("POST", f"/runs/{Run().pk}/cancel", b"{nonsense").status == 401


def test_every_operation_that_declares_no_body_takes_none(client_of: Any, ada: User) -> None:
    without = 0
    for path, methods in document()["paths"].items():
        place = re.sub("{[^}]+}", str(Run().pk), path.removeprefix(PREFIX))
        for method, operation in methods.items():
            if "requestBody" in operation:
                continue
            [[scope]] = [scheme["Bearer"] for scheme in operation["security"]]
            refused = client_of(ada, scope).send(method.upper(), place, b'{"sandbox": false}')
            assert (refused.code, refused.data["detail"]) == ("invalid", "This operation takes no body."), place
            without += 1
    assert without > 20


def test_text_beyond_ascii_is_kept_as_it_came(starting: Any) -> None:
    text = "Кофеварка ☕ сломана \u202e\U0001f600 </script>"
    body = json.dumps({**NEW, "input": text}, ensure_ascii=False).encode()
    started = starting.send("POST", "/runs", body)
    assert started.data["input"] == text
    assert Run.objects.get().input == text


def test_a_failure_of_ours_tells_the_log_and_not_the_caller(
    client_of: Any, sam: User, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the password is hunter2")

    client = client_of(sam, "runs:read")
    monkeypatch.setattr("agentapp.auth.visible_runs", fail)
    with caplog.at_level(logging.ERROR):
        failed = client.get("/runs")
    assert (failed.status, failed.code) == (500, "internal_error")
    assert "hunter2" not in json.dumps(failed.data)
    assert "hunter2" in caplog.text


def test_every_code_that_an_action_can_refuse_with_has_a_title() -> None:
    names = "actions asking asking_again commenting controls conversing customer_links customers deciding forking"
    names += " granting replaying starting takeover undoing"
    of_actions = [Path(settings.BASE_DIR, f"agentapp/{name}.py") for name in names.split()]
    of_actions += [Path(str(module.__file__)) for module in (standing, accepting)]
    of_actions += Path(decisions.__file__).parent.glob("*.py")
    of_pages = {"already_answered", "limits", "not_grantable", "reauthenticate", "signature"}
    sources = [file.read_text() for file in of_actions]
    codes = {code for text in sources for code in re.findall(r'(?:Refused|Refusal)\(\s*"(\w+)"', text)}
    assert len(codes) > 30
    assert codes - of_pages <= set(CODES)


def test_a_problem_says_what_kind_it_is(anonymous: Any) -> None:
    problem = anonymous.get("/runs").data
    assert problem["type"] == f"{TYPE_PREFIX}unauthenticated"
    assert (problem["status"], problem["title"]) == CODES["unauthenticated"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["agent", "input", "route", "customer", "conversation", "metadata", "script", "decision_id", "type", "args",
          "message", "version", "action_digest", "stop_run", "outcome", "note"]  # fmt: skip
PLAUSIBLE = st.sampled_from(
    ["support", "refunds", "edit", "approve", "reject", "respond", "retry", "happened", "0" * 64, str(Run().pk), 1, "é"]
)
bodies = json_values | st.dictionaries(st.sampled_from(FIELDS), json_values | PLAUSIBLE)


@contextmanager
def undone() -> Iterator[None]:
    """What one example changes is gone for the next."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=bodies, key=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=260))
def test_no_json_body_is_our_failure(starting: Any, open_calls: Any, body: Any, key: str) -> None:
    approval, unknown, client = open_calls
    content = json.dumps(body).encode()
    with undone():
        assert starting.send("POST", "/runs", content, **{"Idempotency-Key": key}).status < 500
        assert client.send("POST", f"/approvals/{approval.pk}/decisions", content).status < 500
        assert client.send("POST", f"/tool-executions/{unknown.pk}/outcome", content).status < 500


@hypothesis_settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    args=st.dictionaries(st.sampled_from(["order", "amount", "account", "note", "x"]), json_values | st.just(214.5)),
    message=st.text(),
)
def test_no_edit_is_our_failure(open_calls: Any, answer: Any, args: Any, message: str) -> None:
    approval, _, client = open_calls
    body = answer(approval, "edit", args={"order": "1042", "amount": 1, "account": "a", **args}, message=message)
    with undone():
        assert client.post(f"/approvals/{approval.pk}/decisions", body).status < 500


@hypothesis_settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    query=st.dictionaries(st.sampled_from(["limit", "cursor", "state", "run", "after", "x"]), st.text() | st.integers())
)
def test_no_query_is_our_failure(reading: Any, query: dict[str, Any]) -> None:
    for path in ("/runs", "/approvals", "/events", "/tools", "/agents"):
        assert reading.get(path, **query).status < 500


@pytest.fixture
def open_calls(client_of: Any, ask: Any, lost: Any, sam: User, dana: User) -> Any:
    """An approval and a call of unknown outcome, and a client that may act on both."""
    return ask(sam), lost(sam), client_of(dana, "approvals:decide")


@pytest.fixture
def reading(client_of: Any, ada: User) -> Any:
    return client_of(ada, "runs:read", "approvals:read", "events:read", "configuration:read")


@pytest.mark.parametrize(
    "args",
    ['{"amount":1e400}', '{"amount":NaN}', '{"account":"\\ud800"}', '{"account":"a\\u0000"}', '{"\\ud800":1}',
     '{"amount":99999999999999999999999}', '{"amount":1e16}', '{"note":' + "[" * 3000 + "]" * 3000 + "}", "[]", '"x"'],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused(deciding: Any, ask: Any, answer: Any, sam: User, args: str) -> None:
    approval = ask(sam)
    for kind in ("edit", "approve", "reject"):
        body = json.dumps(answer(approval, kind, message="x", args="ARGS")).replace('"ARGS"', args)
        taken = deciding.send("POST", f"/approvals/{approval.pk}/decisions", body.encode())
        assert taken.status in (400, 413, 422), taken.data
