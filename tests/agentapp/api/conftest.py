"""A client that checks every answer against the OpenAPI document, and runs with calls that wait for people."""

import functools
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs
import pytest
from django.contrib.auth.models import Group, User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from agentapp import auth, executions, runs
from agentapp.api import api
from agentapp.executions import Proposal
from agentapp.messages import Reply, ToolCall
from agentapp.models import Agent, Route, Run, Tool, ToolExecution, ToolSource
from agentapp.toolset import snapshot_of
from approvals import cards, decisions, ledger
from approvals.digest import canonical, parse
from approvals.models import Approval, Decision, Event, every_decision

PREFIX = "/api/v1"
REFUND_SCHEMA = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "amount": {"type": "number", "exclusiveMinimum": 0},
        "account": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["order", "amount", "account"],
    "additionalProperties": False,
}


@dataclass
class Answer:
    """A response, parsed."""

    status: int
    data: Any
    headers: Any

    @property
    def code(self) -> str:
        return str(self.data["code"])


@dataclass
class ApiClient:
    """Calls the API with one token. The OpenAPI document must declare each answer."""

    secret: str = ""
    http: Client = field(default_factory=Client)

    def get(self, path: str, **query: Any) -> Answer:
        return self.send("GET", path, query_params=query)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        content = b"" if body is None else json.dumps(body).encode()
        return self.send("POST", path, content, **headers)

    def send(
        self, method: str, path: str, content: bytes = b"", content_type: str = "application/json",
        query_params: dict[str, Any] | None = None, **headers: str,
    ) -> Answer:  # fmt: skip
        if self.secret:
            headers["Authorization"] = f"Bearer {self.secret}"
        response = self.http.generic(
            method, f"{PREFIX}{path}", content, content_type, headers=headers, query_params=query_params
        )
        data = json.loads(response.content)
        assert_declared(method, path, response.status_code, response.headers["Content-Type"], data)
        return Answer(response.status_code, data, response.headers)


@functools.cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema()))
    return found


def assert_declared(method: str, path: str, status: int, content_type: str, data: Any) -> None:
    """The document declares the status, media type and shape of an answer."""
    declared = document()
    operation = _operation(declared, method, f"{PREFIX}{path}")
    if operation is None:
        assert status in (404, 405), f"{method} {path} answered {status} and is not declared"
        schema: Any = {"$ref": "#/components/schemas/Problem"}
        media_type = "application/problem+json"
    else:
        assert str(status) in operation["responses"], f"{method} {path} answered {status}: {data}"
        [(media_type, content)] = operation["responses"][str(status)]["content"].items()
        schema = content["schema"]
    assert content_type.split(";")[0] == media_type
    whole = {"allOf": [schema], "components": declared["components"]}
    jsonschema_rs.Draft202012Validator(whole, validate_formats=True).validate(data)
    if status >= 400:
        assert data["status"] == status


def _operation(declared: dict[str, Any], method: str, path: str) -> Any:
    for template, methods in declared["paths"].items():
        if re.fullmatch(re.sub(r"{[^}]+}", "[^/]+", template), path):
            return methods.get(method.lower())
    return None


@pytest.fixture
def deciding(client_of: Callable[..., ApiClient], dana: User) -> ApiClient:
    """A client that reads and decides as Dana."""
    return client_of(dana, "approvals:read", "approvals:decide")


@pytest.fixture
def client_of(db: None) -> Callable[..., ApiClient]:
    """`client_of(user, *scopes)`: a client with a new token of this person."""

    def make(user: User, *scopes: str) -> ApiClient:
        _, secret = auth.issue_token(user, "test", list(scopes), actor="system")
        return ApiClient(secret)

    return make


@pytest.fixture
def anonymous(db: None) -> ApiClient:
    return ApiClient()


@pytest.fixture
def refund(db: None) -> Tool:
    source = ToolSource.objects.create(name="shop", location="shop.tools")
    return Tool.objects.create(
        source=source,
        name="refund",
        description="Pay money back.",
        input_schema=REFUND_SCHEMA,
        title_template="Refund {amount:money} for order {order}",
        version="v1",
        effect_class="irreversible",
        locked_fields=["order"],
        secret_fields=["account"],
    )


@pytest.fixture
def support(refund: Tool) -> Agent:
    agent = Agent.objects.create(name="support", description="Answers customers.", driver="scripted")
    agent.tools.set([refund])
    route = Route.objects.create(agent=agent, name="refunds", description="Money back.")
    route.tools.set([refund])
    return agent


@pytest.fixture
def make_run(support: Agent) -> Callable[..., Run]:
    """`make_run(starter)`: a queued run, as the product starts one."""

    def make(starter: User, text: str = "Please refund the kettle.") -> Run:
        with ledger.transaction():
            return runs.create(runs.Start(support, snapshot_of(support), text, text[:80], starter))

    return make


@pytest.fixture
def propose(make_run: Callable[..., Run], refund: Tool) -> Callable[..., ToolExecution]:
    """`propose(run, **args)`: a claimed run whose model has proposed one refund."""

    def make(run: Run, **changed: Any) -> ToolExecution:
        arguments = {"order": "1042", "amount": 214.5, "account": "DE89 3704 0044", **changed}
        text = canonical(arguments)
        claimed = runs.claim(run.pk)
        assert claimed is not None
        assert claimed.lease_token is not None
        call = ToolCall("call_1", "refund", text)
        with ledger.transaction():
            now = timezone.now()
            step = runs.record_step(
                claimed, claimed.lease_token, Reply("I will refund it.", (call,)), ["refund"], now, now
            )
            assert step is not None
            proposal = Proposal(call, refund, arguments, text, {"verdict": "ask", "reason": "money"}, asks=True)
            return executions.propose(claimed, step, [proposal])[0]

    return make


@pytest.fixture
def ask(make_run: Callable[..., Run], propose: Callable[..., ToolExecution]) -> Callable[..., Approval]:
    """`ask(starter, **terms)`: a run that waits for people to decide about one refund."""

    def make(
        starter: User, groups: tuple[Group, ...] = (), args: dict[str, Any] | None = None, **terms: Any
    ) -> Approval:
        run = make_run(starter)
        execution = propose(run, **(args or {}))
        run.refresh_from_db()
        fields: dict[str, Any] = {
            "run_id": run.pk,
            "execution_id": execution.pk,
            "agent": "support",
            "tool": "refund",
            "tool_version": "v1",
            "effect_class": "irreversible",
            "arguments_text": execution.arguments_text,
            "title": "Refund $214.50 for order 1042",
            "sentence": [{"text": "Pay back ", "value": False}, {"text": "$214.50", "value": True}],
            "effects": [{"icon": "zap", "title": "$214.50 leaves", "detail": "It cannot be taken back."}],
            "reason": "Money leaves.",
            "rule": "refunds",
            "risk": "medium",
            "evidence": [{"tool": "get_order", "ref": "get_order:1"}],
            "explanation": "The customer is right.",
            "allowed_decisions": tuple(every_decision()),
            "starter_id": starter.pk,
            "expires_seconds": 3600,
            "hold_seconds": 0,
            "locked_fields": ["order"],
            "secret_fields": ["account"],
            "groups": tuple(group.pk for group in groups),
        } | terms  # fmt: skip
        with ledger.transaction():
            locked = runs.lock(run.pk)
            assert locked is not None
            assert locked.lease_token is not None
            [approval] = decisions.request([cards.Card(**fields)], timezone.now())
            executions.hold([execution], [approval])
            runs.park(locked, locked.lease_token, Run.WaitingFor.APPROVAL)
        return approval

    return make


@pytest.fixture
def lost(make_run: Callable[..., Run], ask: Callable[..., Approval]) -> Callable[..., ToolExecution]:
    """`lost(starter)`: an approved call whose worker died, so that its outcome is unknown."""

    def make(starter: User) -> ToolExecution:
        approval = ask(starter)
        execution = ToolExecution.objects.get(pk=approval.execution_id)
        with ledger.transaction():
            assert executions.begin(execution, approval.arguments_text, "key-1")
            executions.lose(execution)
        Run.objects.filter(pk=execution.run_id).update(waiting_for=Run.WaitingFor.OUTCOME)
        execution.refresh_from_db()
        return execution

    return make


@pytest.fixture
def answer() -> Callable[..., dict[str, Any]]:
    """`answer(approval, "approve", …)`: the body of a decision about an approval as it stands now."""

    def make(approval: Approval, type: str = "approve", **changed: Any) -> dict[str, Any]:
        now = Approval.objects.get(pk=approval.pk)
        return {
            "decision_id": str(Decision._meta.pk.get_default()),
            "type": type,
            "version": now.version,
            "action_digest": now.final_digest or now.action_digest,
            **changed,
        }

    return make


@pytest.fixture
def edited() -> Callable[..., dict[str, Any]]:
    """`edited(approval, amount=…)`: an approval's arguments with changes."""

    def make(approval: Approval, **changed: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = parse(approval.arguments_text)
        return {**arguments, **changed}

    return make


@pytest.fixture
def everything(db: None) -> Callable[[], Any]:
    """What a refusal must leave alone: every row that a decision, a run or a note could have touched."""

    def look() -> Any:
        return [
            list(model.objects.order_by("pk").values_list())
            for model in (Run, ToolExecution, Approval, Decision, Event)
        ]

    return look


@pytest.fixture
def expire_now() -> Callable[[Approval], None]:
    """Let an approval's time run out, by the database's clock."""

    def expire(approval: Approval) -> None:
        Approval.objects.filter(pk=approval.pk).update(expires_at=Now())

    return expire
