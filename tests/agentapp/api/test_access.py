"""Who gets through: every operation without a token, with a bad one, with another scope, with the right one."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agentapp import auth
from agentapp.api import api
from agentapp.models import ApiToken, Run

SOME_ID = uuid.UUID(int=7)
# Every operation of the API with the scope it needs. `test_no_operation_is_missing_here` keeps it complete.
OPERATIONS = [
    ("POST", "/runs", "runs:create"),
    ("GET", "/runs", "runs:read"),
    ("GET", f"/runs/{SOME_ID}", "runs:read"),
    ("GET", f"/runs/{SOME_ID}/trace", "runs:read"),
    ("GET", f"/runs/{SOME_ID}/otel", "runs:read"),
    ("POST", f"/runs/{SOME_ID}/cancel", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/retry", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/fork", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/replay", "runs:create"),
    ("GET", f"/runs/{SOME_ID}/branches", "runs:read"),
    ("GET", f"/runs/{SOME_ID}/comparison/{SOME_ID}", "runs:read"),
    ("POST", f"/approvals/{SOME_ID}/ask_again", "runs:create"),
    ("POST", f"/tool-executions/{SOME_ID}/undo", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/pause", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/resume", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/take_over", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/hand_back", "runs:create"),
    ("POST", f"/runs/{SOME_ID}/messages", "runs:create"),
    ("GET", f"/conversations/{SOME_ID}", "runs:read"),
    ("POST", f"/conversations/{SOME_ID}/fork", "runs:create"),
    ("POST", f"/conversations/{SOME_ID}/summary", "runs:create"),
    ("POST", "/conversations", "conversations:write"),
    ("GET", f"/conversations/{SOME_ID}/customer", "conversations:write"),
    ("POST", f"/conversations/{SOME_ID}/messages", "conversations:write"),
    ("POST", f"/conversations/{SOME_ID}/confirmations/{SOME_ID}", "conversations:write"),
    ("POST", f"/conversations/{SOME_ID}/hand_over", "conversations:write"),
    ("POST", f"/conversations/{SOME_ID}/links", "conversations:write"),
    ("DELETE", f"/conversations/{SOME_ID}/links/{SOME_ID}", "conversations:write"),
    ("GET", "/approvals", "approvals:read"),
    ("GET", f"/approvals/{SOME_ID}", "approvals:read"),
    ("POST", f"/approvals/{SOME_ID}/decisions", "approvals:decide"),
    ("GET", f"/approvals/{SOME_ID}/comments", "approvals:read"),
    ("POST", f"/approvals/{SOME_ID}/comments", "approvals:comment"),
    ("POST", f"/tool-executions/{SOME_ID}/outcome", "approvals:decide"),
    ("GET", f"/tool-executions/{SOME_ID}/result", "runs:read"),
    ("GET", "/events", "events:read"),
    ("GET", "/events/search", "events:read"),
    ("GET", f"/approvals/{SOME_ID}/receipt", "approvals:read"),
    ("GET", f"/events/{SOME_ID}/proof", "events:read"),
    ("GET", "/tools", "configuration:read"),
    ("GET", "/agents", "configuration:read"),
    ("GET", "/breakers", "configuration:read"),
    ("POST", f"/breakers/{SOME_ID}/reset", "controls:operate"),
    ("GET", "/switches", "configuration:read"),
    ("POST", "/switches", "controls:operate"),
    ("DELETE", f"/switches/{SOME_ID}", "controls:operate"),
    ("GET", "/grants", "configuration:read"),
    ("GET", f"/grants/{SOME_ID}", "configuration:read"),
    ("POST", f"/grants/{SOME_ID}/revoke", "controls:operate"),
]
each_operation = pytest.mark.parametrize(("method", "path", "scope"), OPERATIONS)


def test_no_operation_is_missing_here() -> None:
    declared = {
        (method.upper(), path.removeprefix("/api/v1"), next(iter(operation["security"][0].values()))[0])
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method, operation in methods.items()
    }
    listed = {(method, path.replace(str(SOME_ID), "{}"), scope) for method, path, scope in OPERATIONS}
    named = {"{run_id}", "{conversation_id}", "{approval_id}", "{execution_id}", "{breaker_id}", "{switch_id}"}
    named |= {"{other_id}", "{confirmation_id}", "{link_id}", "{grant_id}", "{event_id}"}
    assert {(method, _unnamed(path, named), scope) for method, path, scope in declared} == listed


def _unnamed(path: str, names: set[str]) -> str:
    for name in names:
        path = path.replace(name, "{}")
    return path


@each_operation
def test_without_a_token_there_is_401(anonymous: Any, method: str, path: str, scope: str) -> None:
    refused = anonymous.send(method, path, b"{}")
    assert (refused.status, refused.code) == (401, "unauthenticated")
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="api"'


@each_operation
def test_a_signed_in_browser_counts_for_nothing(ada: User, anonymous: Any, method: str, path: str, scope: str) -> None:
    anonymous.http.force_login(ada)
    assert anonymous.send(method, path, b"{}").status == 401


@each_operation
def test_with_another_scope_there_is_403_before_anything_is_looked_up(
    client_of: Any, mia: User, method: str, path: str, scope: str
) -> None:
    apart = {"approvals:decide"} if scope in auth.STARTS_RUNS else auth.STARTS_RUNS
    others = sorted(set(auth.SCOPES) - {scope} - apart)
    refused = client_of(mia, *others).send(method, path, b"not even JSON")
    assert (refused.status, refused.code) == (403, "insufficient_scope")
    assert f'scope="{scope}"' in refused.headers["WWW-Authenticate"]


@each_operation
def test_with_the_scope_the_token_gets_through(client_of: Any, ada: User, method: str, path: str, scope: str) -> None:
    """Through to the next checks: whether the row exists, and whether the body makes sense."""
    passed = client_of(ada, scope).send(method, path, b"{}")
    without_body = ("/cancel", "/retry", "/pause", "/resume", "/reset", "/take_over", "/hand_back", "/ask_again")
    without_body += ("/hand_over", "/links", f"/runs/{SOME_ID}/fork", "/replay")
    asked_for = path.endswith(without_body) or method in ("GET", "DELETE")
    assert passed.status == (200 if str(SOME_ID) not in path and method == "GET" else 404 if asked_for else 422)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic cs_x",
        "Bearer cs_unknown",
        "cs_unknown",
        "Bearer cs_\u00e9",
        "Bearer " + "x" * 4000,
    ],
)
def test_a_header_without_a_live_token_is_401(db: None, header: str) -> None:
    response = Client().get("/api/v1/runs", headers={"Authorization": header})
    assert response.status_code == 401
    assert response.headers["Content-Type"] == "application/problem+json"


def _revoke(token: ApiToken) -> None:
    auth.revoke_token(token, actor="system")


def _outdate(token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def _deactivate(token: ApiToken) -> None:
    User.objects.filter(pk=token.user.pk).update(is_active=False)


@pytest.mark.parametrize("end", [_revoke, _outdate, _deactivate])
def test_a_token_that_has_ended_is_401_at_once(client_of: Any, sam: User, end: Callable[[ApiToken], None]) -> None:
    client = client_of(sam, "runs:read")
    assert client.get("/runs").status == 200
    end(ApiToken.objects.get())
    refused = client.get("/runs")
    assert (refused.status, refused.code) == (401, "unauthenticated")
    assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


def test_the_word_bearer_may_be_written_in_any_case(client_of: Any, sam: User) -> None:
    client = client_of(sam, "runs:read")
    response = Client().get("/api/v1/runs", headers={"Authorization": f"bearer {client.secret}"})
    assert response.status_code == 200


def test_no_cross_site_cookie_is_asked_for(client_of: Any, sam: User, make_run: Callable[..., Run]) -> None:
    run, client = make_run(sam), client_of(sam, "runs:create")
    client.http = Client(enforce_csrf_checks=True)
    assert client.post(f"/runs/{run.pk}/cancel").status == 200


@pytest.mark.parametrize("path", ["/", "/nothing", "/runs/", "/runs/1/2/3", "/users"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_does_not_exist_is_a_problem_too(anonymous: Any, method: str, path: str) -> None:
    anonymous.http = Client(enforce_csrf_checks=True)
    refused = anonymous.send(method, path)
    assert (refused.status, refused.code) == (404, "not_found")


@each_operation
def test_a_method_that_does_not_exist_names_those_that_do(anonymous: Any, method: str, path: str, scope: str) -> None:
    refused = anonymous.send("PUT", path)
    assert (refused.status, refused.code) == (405, "method_not_allowed")
    assert method in refused.headers["Allow"]
