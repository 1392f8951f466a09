"""Requests as the loop makes them: a run, a step, a call, and the card people see."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from agentapp import executions, runs
from agentapp.messages import Reply, ToolCall
from agentapp.models import Agent, Run, Tool, ToolExecution, ToolSource
from agentapp.tools import sentences
from agentapp.toolset import snapshot_of
from approvals import cards, decisions, ledger
from approvals.digest import canonical
from approvals.models import Approval, every_decision

REFUND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "title": "Order"},
        "amount": {
            "type": "number", "title": "Amount", "format": "money", "x-currency": "USD",
            "exclusiveMinimum": 0, "maximum": 500,
        },
        "reason": {
            "type": "string", "title": "Reason", "enum": ["damaged_in_transit", "changed_mind"],
            "x-enum-titles": ["Damaged in transit", "Changed mind"],
        },
        "note": {"type": "string", "title": "Message to customer", "maxLength": 2000},
        "notify": {"type": "boolean", "title": "Tell the customer", "default": True},
    },
    "required": ["order_id", "amount", "reason"],
    "additionalProperties": False,
}  # fmt: skip
REFUND: dict[str, Any] = {
    "order_id": "58213",
    "amount": 214.5,
    "reason": "damaged_in_transit",
    "note": "Hi Ana,\nsorry about the kettle.",
    "notify": True,
}
EVIDENCE: list[dict[str, Any]] = [
    {"n": 1, "kind": "message", "title": "What the run was given", "trust": "untrusted_content",
     "body": "The kettle arrived with the glass cracked. I’d like my money back, please."},
    {"n": 2, "kind": "result", "title": "get_order", "trust": "trusted_system", "step": 1,
     "body": '{\n  "paid": 214.5,\n  "delivered": "2026-11-17"\n}'},
]  # fmt: skip


def make_tool() -> Tool:
    source, _ = ToolSource.objects.get_or_create(name="shop", defaults={"location": "shop.tools"})
    tool, _ = Tool.objects.get_or_create(
        name="refund_payment",
        defaults={
            "source": source,
            "description": "Refund a payment.",
            "input_schema": REFUND_SCHEMA,
            "title_template": "Refund {amount:money} for order {order_id}",
            "sentence_template": "The agent will return {amount:money} for order {order_id} and tell the customer why.",
            "effects_template": [
                {"icon": "money", "title": "{amount:money} leaves the shop", "detail": "Stripe live account"},
                {"icon": "lock", "title": "Hard to take back", "detail": "Final after settlement, about 1 hour"},
                {"icon": "mail", "title": "1 person is told", "detail": "ana@mail.example"},
            ],
            "button_template": "{amount:money}",
            "version": "1" * 64,
            "effect_class": "irreversible",
            "locked_fields": ["order_id"],
        },
    )
    return tool


def make_agent(tool: Tool) -> Agent:
    agent, _ = Agent.objects.get_or_create(name="support", defaults={"driver": "scripted"})
    agent.tools.add(tool)
    return agent


def make_waiting(starter: User, **card: Any) -> Approval:
    """One pending request, with its run, step and call. `card` replaces parts of its card."""
    tool = make_tool()
    agent = make_agent(tool)
    arguments = card.pop("arguments", REFUND)
    text = canonical(arguments)
    with ledger.transaction():
        start = runs.Start(agent, snapshot_of(agent), "The kettle is broken.", "Refund for order 58213", starter)
        run = runs.create(start)
    claimed = runs.claim(run.pk)
    assert claimed is not None
    assert claimed.lease_token is not None
    call = ToolCall("call_1", tool.name, text)
    now = timezone.now()
    with ledger.transaction():
        runs.lock(run.pk)
        step = runs.record_step(claimed, claimed.lease_token, Reply("", (call,)), [tool.name], now, now)
        assert step is not None
        proposal = executions.Proposal(call, tool, arguments, text, asks=True)
        held = executions.propose(claimed, step, [proposal])
        [approval] = decisions.request([_card(claimed, held[0], tool, arguments, text, card)], now)
        executions.hold(held, [approval])
        runs.park(claimed, claimed.lease_token, Run.WaitingFor.APPROVAL)
    return Approval.objects.get(pk=approval.pk)


def _card(
    run: Run, execution: ToolExecution, tool: Tool, arguments: dict[str, Any], text: str, parts: dict[str, Any]
) -> cards.Card:
    standard: dict[str, Any] = {
        "run_id": run.pk,
        "execution_id": execution.pk,
        "agent": run.agent.name,
        "run_title": run.title,
        "tool": tool.name,
        "tool_version": tool.version,
        "effect_class": tool.effect_class,
        "arguments_text": text,
        "title": sentences.title(tool, arguments, {}),
        "sentence": sentences.sentence(tool, arguments, {}),
        "effects": sentences.effects(tool, arguments, {}),
        "button": sentences.button(tool, arguments, {}),
        "reason": "Refunds over $100.00 need one person.",
        "rule": "refunds-over-limit",
        "locked_fields": list(tool.locked_fields),
        "evidence": EVIDENCE,
        "explanation": "Ana received a cracked kettle, delivered three days ago and paid in full.",
        "risk": "medium",
        "allowed_decisions": tuple(every_decision()),
        "expires_seconds": 3600,
        "hold_seconds": 60,
        "starter_id": run.starter_id,
    }
    return cards.Card(**{**standard, **parts})


def make_unknown(starter: User) -> ToolExecution:
    """A call that a worker began and whose outcome is unknown."""
    approval = make_waiting(starter, hold_seconds=0)
    execution = ToolExecution.objects.get(pk=approval.execution_id)
    decider, _ = User.objects.get_or_create(username="earlier")
    decider.groups.set(Group.objects.filter(name="approver"))
    incoming = decisions.Incoming(
        uuid.uuid4(), "approve", User.objects.get(pk=decider.pk), approval.version, approval.action_digest
    )
    with ledger.transaction():
        runs.lock(execution.run_id)
        taken = decisions.decide(approval.pk, incoming, timedelta(hours=1))
        assert isinstance(taken, decisions.Taken)
        assert decisions.consume(taken.approval)
        executions.begin(execution, execution.arguments_text, f"key-{execution.pk}")
        executions.lose(execution)
    execution.refresh_from_db()
    return execution


def posted(approval: Approval, **fields: Any) -> dict[str, Any]:
    """What the page of a request posts when a person has approved, with `fields` replaced or added.

    That is one press, and at high risk a second one, which confirms.
    """
    return {
        "decision_id": str(uuid.uuid4()),
        "version": approval.version,
        "action_digest": approval.final_digest or approval.action_digest,
        "type": "confirm" if approval.risk == "high" else "approve",
        **fields,
    }


@pytest.fixture
def waiting(sam: User) -> Callable[..., Approval]:
    return lambda **card: make_waiting(sam, **card)


@pytest.fixture
def page(client: Client, dana: User) -> Client:
    """A browser without JavaScript in which Dana, who decides, is signed in."""
    client.force_login(dana)
    return client


@pytest.fixture(autouse=True)
def _cheap_passwords(settings: Any) -> None:
    """Hashing a password properly takes longer than the rest of a test."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
