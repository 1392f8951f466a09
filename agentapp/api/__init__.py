"""The REST API under /api/v1/: bearer tokens only, strict JSON in, problem details for every failure.

Routes parse, call an action and render. `urls` goes into the project's URLs with `path()`.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI

from agentapp import discretion
from agentapp.api import (
    agents,
    approvals,
    branches,
    comments,
    controls,
    conversations,
    customers,
    errors,
    events,
    grants,
    proofs,
    run_control,
    runs,
    takeover,
    tool_executions,
    tools,
)  # fmt: skip
from agentapp.api.document import Document
from agentapp.api.parsing import StrictParser, refuse_undeclared
from agentapp.api.wire import Renderer
from approvals import ledger

DESCRIPTION = """
Start runs, follow them, and decide about the calls they propose.

**Tokens.** Send `Authorization: Bearer cs_…`. A token acts as one person, within its scopes; one that starts
runs can never decide. Create tokens with `manage.py create_token`.

**Failures** are problem details (RFC 9457, `application/problem+json`); match on `code`. A failed request
changes nothing.

**Repeats.** With `Idempotency-Key` on `POST /runs` and `decision_id` in a decision, a request can safely be sent
again: you get the first answer, with `Idempotent-Replay: true`.

**Lists** come in pages: pass `next` as `cursor` until it is null.
""".strip()


class Api(NinjaAPI):
    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> Document:
        return _document(self, self.get_root_path(path_params or {}) if path_prefix is None else path_prefix)


@lru_cache(maxsize=4)
def _document(described: Api, path_prefix: str) -> Document:
    """Built once: it takes a large part of a second, and anyone may request it without a token."""
    return Document(described, path_prefix)


def _build() -> Api:
    made = Api(
        title="Countersign",
        version="1",
        description=DESCRIPTION,
        urls_namespace="api",
        parser=StrictParser(),
        renderer=Renderer(),
    )
    errors.register(made)
    for module in (
        runs,
        run_control,
        branches,
        takeover,
        conversations,
        customers,
        approvals,
        comments,
        tool_executions,
        events,
        tools,
        agents,
        controls,
        grants,
        proofs,
    ):
        for path in module.router.path_operations.values():
            for operation in path.operations:
                refuse_undeclared(operation)
        made.add_router("", module.router)
    return made


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    """The names of all fields in answers and bodies."""
    schemas = api.get_openapi_schema()["components"]["schemas"].values()
    return frozenset(name for schema in schemas for name in schema.get("properties", ()))


def unknown_path(request: HttpRequest, **path: str) -> HttpResponse:
    return errors.respond(errors.ApiProblem("not_found", f"There is nothing at {request.path[:200]}."))


def _exempt(view: Callable[..., Any]) -> Callable[..., Any]:
    """A view for programs: it needs no sign-in page or CSRF cookie, answers 405 with problem details too, and
    forbids caches to keep its answers. What a token does is recorded as done by that token.
    """

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **path: Any) -> Any:
        with ledger.coming():
            response = view(request, *args, **path)
        if response.status_code == 405:
            allowed = response.headers["Allow"]
            detail = f"{request.method} is not allowed here; {allowed} is."
            response = errors.respond(errors.ApiProblem("method_not_allowed", detail, headers={"Allow": allowed}))
        response.headers["Cache-Control"] = "no-store"
        return response

    return csrf_exempt(login_not_required(answered))


def _url_patterns(found: list[URLPattern | URLResolver]) -> list[URLPattern | URLResolver]:
    """The framework's patterns, opened to programs. The reference page is for people, who must sign in."""
    for pattern in found:
        assert isinstance(pattern, URLPattern)
        if pattern.name == "api-root":
            pattern.callback = _exempt(unknown_path)
        elif pattern.name != "openapi-view":
            pattern.callback = _exempt(pattern.callback)
    return [*found, re_path("", _exempt(unknown_path))]


api = _build()
_patterns, _app_name, _namespace = api.urls
urls = (_url_patterns(_patterns), _app_name, _namespace)
discretion.our_names.append(_names)
