"""Every address of the product, filled in with existing rows, and how it answers each role."""

import functools
import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from http.cookies import SimpleCookie
from typing import Any

from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.db import connection, transaction
from django.http import HttpResponseBase
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, get_resolver
from django.utils import timezone

from agentapp import auth, conversations, customer_links, evaluating
from agentapp.api import api
from agentapp.evals import results, suites
from agentapp.models import Agent, Breaker, KillSwitch, Run, SavedView
from approvals import delegations
from approvals.models import Approval, Delegation, Event, Grant
from tests.agentapp.console.conftest import make_waiting
from tests.agentapp.evals.conftest import a_case
from tests.conftest import make_user

ROLES = ("nobody", "outsider", "viewer", "operator", "approver", "manager", "admin", "starter")
API = "api/v1/"
WORDS = {
    "s": "asked to sign in",
    "x": "refused",
    "h": "told that there is nothing",
    "-": "no such method",
    "n": "not served here: streams are answered before Django",
    "o": "let in, also where what was sent then makes no sense",
}
# Each parameter is replaced by a whole value: the letters of a regular expression are not part of an address.
_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>(?:[^()]|\([^()]*\))*\)")
WRITES = re.compile(r'^\s*(?:INSERT (?:OR IGNORE )?INTO|UPDATE|DELETE FROM)\s+"?(\w+)', re.IGNORECASE)
# What a refusal may write: the session that carries the message, when the person was last seen, and that they were
# shown a request, if the page that refuses shows it to them.
ALLOWED = {"django_session", "usersessions_usersession", "auth_user", "agentapp_apitoken", "approvals_viewer"}


@dataclass(frozen=True)
class World:
    """One row of each kind, all belonging to `starter`, and a person of each role."""

    people: dict[str, User]
    values: dict[str, str]


def routes() -> Iterator[str]:
    """Every pattern of the resolver, as written, each once."""
    found = dict.fromkeys(_walk(get_resolver().url_patterns, ""))
    yield from found


def _walk(patterns: Any, before: str) -> Iterator[str]:
    for entry in patterns:
        here = before + str(entry.pattern).removeprefix("^").removesuffix("$").removesuffix("\\Z")
        if isinstance(entry, URLPattern):
            yield here
        else:
            yield from _walk(entry.url_patterns, here)


def operations() -> Iterator[tuple[str, str, str]]:
    """Every operation of the API: method, route, scope."""
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, operation in methods.items():
            [[scope]] = [next(iter(each.values())) for each in operation["security"]]
            yield method.upper(), path.removeprefix("/"), scope


@functools.cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


def body(method: str, route: str) -> bytes:
    """The least that an operation accepts, made from its schema, so that it is not refused for its body."""
    schema = document()["paths"][f"/{route}"][method.lower()].get("requestBody", {}).get("content", {})
    found = schema.get("application/json", {}).get("schema")
    return b"" if found is None else json.dumps(_least(found)).encode()


def _least(schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _least(document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for several in ("allOf", "anyOf", "oneOf"):
        if several in schema:
            return _least(schema[several][0])
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _least(schema["properties"][name]) for name in schema.get("required", ())}
    formats = {"uuid": str(uuid.uuid4()), "date-time": "2030-01-01T00:00:00Z"}
    text = formats.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 1)))
    if kind == "string" and "[0-9a-f]{64}" in schema.get("pattern", ""):
        text = "0" * 64
    return {"string": text, "integer": schema.get("minimum", 1), "number": 1, "boolean": True, "array": []}.get(kind)


def address(route: str, world: World) -> str:
    """The route filled in with rows of the world. For admin pages, the first row of their model."""
    values = dict(world.values)
    if found := re.match(r"admin/(approvals|agentapp|auth)/(\w+)/", route):
        first = apps.get_model(found[1], found[2])._default_manager.order_by("pk").first()
        values |= {"object_id": str(first.pk if first else 1), "id": str(first.pk if first else 1)}
    filled = _PARAMETER.sub(lambda one: values[one[1] or one[2]], route.replace("{", "<").replace("}", ">"))
    return "/" + filled.replace("(.*)", "nothing")


def make_world() -> World:
    people = {name: make_user(f"{name.title()} Person", name) for name in ROLES[2:7]}
    people |= {"outsider": make_user("Outsider Person"), "starter": make_user("Starter Person", "operator")}
    approval = make_waiting(people["starter"])
    run, agent = Run.objects.get(pk=approval.run_id), Agent.objects.get()
    conversation = conversations.find_or_open(agent, "ticket-1", "Ana")
    Run.objects.filter(pk=run.pk).update(conversation=conversation)
    suite = suites.create("desk", "What the agent does.", "test")
    suites.save_case(suite, a_case("greets", agent=agent.name), "test")
    eval_run = results.create(suite, evaluating.chosen(suite))
    now = timezone.now()
    link = customer_links.make(conversation, people["starter"], now + timedelta(days=1), "test")
    token, _ = auth.issue_token(people["starter"], "theirs", ["runs:read"], "test")
    view = SavedView.objects.create(user=people["starter"], page="inbox", name="Mine", query="risk=high")
    breaker = Breaker.objects.create(scope="tool", key="refund_payment")
    switch = KillSwitch.objects.create(scope="tool", key="another", engaged_by=people["manager"], engaged_at=now)
    values = {
        "run_id": run.pk, "other_id": run.pk, "eval_run_id": eval_run.pk, "approval_id": approval.pk,
        "execution_id": approval.execution_id, "event_id": Event.objects.order_by("pk").first().pk,
        "conversation_id": conversation.pk, "confirmation_id": approval.pk, "link_id": link.pk, "token_id": token.pk,
        "view_id": view.pk, "breaker_id": breaker.pk, "switch_id": switch.pk, "grant_id": _grant(approval, people).pk,
        "delegation_id": _delegation(people).pk, "session_id": 1, "pk": 1, "provider_id": "corp", "uidb36": "1",
        "key": approval.pk, "signed": signing.dumps(str(link.pk), salt="of somebody else"), "word": "agent",
        "kind": "json", "slug": "approvals", "suite": "desk", "name": "refund_payment", "step": 1, "call": 0,
        "part": "arguments", "app_label": "agentapp", "url": "nothing", "content_type_id":
        ContentType.objects.get_for_model(Run).pk, "object_id": run.pk, "reference": "apr-000000", "id": 1,
        "decision_id": uuid.uuid4(),
    }  # fmt: skip
    return World(people, {name: str(value) for name, value in values.items()})


def _grant(approval: Approval, people: dict[str, User]) -> Grant:
    now = timezone.now()
    return Grant.objects.create(
        approval=approval, made_by=people["approver"], tool="another", tool_version="1", effect_class="reversible",
        agent="support", risk="low", reason="Harmless.", made_at=now, expires_at=now + timedelta(days=1),
    )  # fmt: skip


def _delegation(people: dict[str, User]) -> Delegation:
    now, bea = timezone.now(), make_user("Bea Lender", "approver")
    scope = delegations.Scope([bea.groups.get().pk])
    lent = delegations.begin(bea, make_user("Cleo", "approver"), now, now + timedelta(days=1), scope)
    assert isinstance(lent, Delegation), lent
    return lent


# --- Asking ------------------------------------------------------------------------------------


def asked(client: Client, method: str, url: str, **more: Any) -> tuple[str, set[str]]:
    """The outcome as one of WORDS, and the tables that were written. Everything is rolled back."""
    cookies = SimpleCookie({name: one.value for name, one in client.cookies.items()})
    with transaction.atomic():
        with CaptureQueriesContext(connection) as queries:
            response = client.generic(method, url, **more)
        transaction.set_rollback(True)
    client.cookies = cookies  # one of the pages signs out
    written = {found[1] for query in queries if (found := WRITES.match(query["sql"]))}
    return _word(response), written - ALLOWED


def _word(response: HttpResponseBase) -> str:
    """One of WORDS."""
    status = response.status_code
    if status in (301, 302, 303) and "/login/" in response.headers["Location"]:
        return "s"
    assert status in (200, 503) or status < 500, status
    return {401: "s", 403: "x", 404: "h", 405: "-", 503: "n"}.get(status, "o")


def signed_in(world: World, role: str) -> Client:
    client = Client()
    if role in world.people:
        client.force_login(world.people[role])
    return client


def token_of(user: User, scope: str) -> dict[str, str]:
    _, secret = auth.issue_token(user, scope, [scope], "test")
    return {"Authorization": f"Bearer {secret}"}
