"""Rows a test begins with, each made by the writer that makes it in the product."""

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp import executions, runs
from agentapp.executions import Proposal
from agentapp.messages import Reply, ToolCall
from agentapp.models import Agent, Run, Step, Tool, ToolExecution, ToolSource
from approvals import cards, decisions, ledger, standing
from approvals.digest import canonical, parse
from approvals.models import Approval, DecisionType

ARGUMENTS = {"order": "1001", "amount": 240}
USE_WITHIN = timedelta(hours=1)


def a_card(**changes: Any) -> cards.Card:
    """A request to refund an order. `arguments` may be a Python value."""
    fields: dict[str, Any] = {
        "run_id": uuid.uuid4(),
        "execution_id": uuid.uuid4(),
        "agent": "support",
        "tool": "refund_order",
        "tool_version": "v1",
        "effect_class": "irreversible",
        "arguments_text": canonical(changes.pop("arguments", ARGUMENTS)),
        "title": "Refund order 1001",
        "sentence": [{"text": "Pays back 240", "value": False}],
        "effects": [{"title": "Money leaves"}],
        "reason": "Refunds ask",
        "expires_seconds": 3600,
        "hold_seconds": 0,
        "allowed_decisions": tuple(str(value) for value in DecisionType.values),
    }
    return cards.Card(**fields | changes)


def a_request(**changes: Any) -> Approval:
    """A pending approval, read back from the database."""
    with ledger.transaction():
        [approval] = decisions.request([a_card(**changes)], timezone.now())
    return read(approval)


def read(approval: Approval) -> Approval:
    return Approval.objects.get(pk=approval.pk)


def a_decision(approval: Approval, user: User, type: str = "approve", **changes: Any) -> decisions.Incoming:
    """What this person decides after looking at the request as it is given. `arguments` is for an edit."""
    fields: dict[str, Any] = {
        "id": uuid.uuid4(),
        "type": type,
        "user": User.objects.get(pk=user.pk),
        "version": approval.version,
        "action_digest": approval.final_digest or approval.action_digest,
        "message": "Because." if type in ("reject", "respond") else "",
        "assurance": "password",
    }
    if "arguments" in changes:
        fields |= {"edited_text": canonical(changes.pop("arguments")), "edited_title": "Refund less"}
    return decisions.Incoming(**fields | changes)


def decide(approval: Approval, incoming: decisions.Incoming) -> decisions.Taken | standing.Refusal:
    with ledger.transaction():
        return decisions.decide(approval.pk, incoming, USE_WITHIN)


def take(approval: Approval, user: User, type: str = "approve", **changes: Any) -> Approval:
    """Let a person decide about the request as it stands now, and read it again."""
    taken = decide(approval, a_decision(read(approval), user, type, **changes))
    assert isinstance(taken, decisions.Taken), taken
    return read(approval)


def undo(approval: Approval, user: User) -> Approval | standing.Refusal:
    with ledger.transaction():
        return decisions.undo(approval.pk, user)


def within_transaction[R](function: Callable[..., R], *arguments: Any, **named: Any) -> R:
    with ledger.transaction():
        return function(*arguments, **named)


def consume(approval: Approval) -> bool:
    return within_transaction(decisions.consume, read(approval))


def a_moment_ago(approval: Approval, *fields: str) -> Approval:
    """Set a planned moment to the past."""
    past = timezone.now() - timedelta(seconds=5)
    Approval.objects.filter(pk=approval.pk).update(**dict.fromkeys(fields, past))
    return read(approval)


def in_state(state: str, decider: User) -> Approval:
    """A request brought to this state the way the product brings it there."""
    approval = a_request(hold_seconds=0)
    if state in (Approval.State.APPROVED, Approval.State.REJECTED, Approval.State.RESPONDED):
        return take(approval, decider, {"approved": "approve", "rejected": "reject", "responded": "respond"}[state])
    if state == Approval.State.USED:
        assert consume(a_moment_ago(take(approval, decider), "runs_at"))
    elif state == Approval.State.EXPIRED:
        assert within_transaction(decisions.expire, a_moment_ago(approval, "expires_at").pk)
    elif state == Approval.State.WITHDRAWN:
        assert within_transaction(decisions.withdraw, approval.run_id, "The run was cancelled.") == 1
    elif state == Approval.State.SUPERSEDED:
        assert within_transaction(decisions.supersede, approval, "The order has changed.")
    return read(approval)


def events(chain: str) -> list[str]:
    """The types of a chain's events, in order."""
    found = ledger.Event.objects.filter(chain=chain).order_by("seq")
    return [event.type for event in found]


def an_agent(name: str = "support", **changes: Any) -> Agent:
    return Agent.objects.create(name=name, **changes)


def a_tool(name: str = "refund_order", effect_class: str = "irreversible", **changes: Any) -> Tool:
    source, _ = ToolSource.objects.get_or_create(name="shop", location="shop.tools")
    return Tool.objects.create(source=source, name=name, effect_class=effect_class, version="v1", **changes)


def a_run(starter: User | None = None, **changes: Any) -> Run:
    """A queued run of the agent `support`, which is created if missing."""
    agent = Agent.objects.filter(name="support").first() or an_agent()
    start = runs.Start(
        agent=agent,
        agent_snapshot={},
        input="My kettle is broken",
        title="My kettle is broken",
        starter=starter,
        **changes,
    )
    return within_transaction(runs.create, start)


def a_claimed_run(starter: User | None = None) -> tuple[Run, uuid.UUID]:
    """A run and the token of the lease that holds it."""
    run = runs.claim(a_run(starter).pk)
    assert run is not None
    assert run.lease_token is not None
    return run, run.lease_token


def a_call(name: str = "refund_order", arguments: Any = ARGUMENTS) -> ToolCall:
    return ToolCall(uuid.uuid4().hex[:8], name, canonical(arguments))


def a_proposal(tool: Tool, arguments: Any = ARGUMENTS, **changes: Any) -> Proposal:
    call = a_call(tool.name, arguments)
    text = call.arguments_text
    return Proposal(call=call, tool=tool, arguments=parse(text), canonical_text=text, **changes)


def a_step(run: Run, token: uuid.UUID, proposals: Sequence[Proposal]) -> tuple[Step, list[ToolExecution]]:
    """One decision of the model, stored with its calls as the loop stores them."""
    now = timezone.now()
    reply = Reply(text="I look into it.", tool_calls=tuple(proposal.call for proposal in proposals), model="scripted")
    with ledger.transaction():
        step = runs.record_step(run, token, reply, [], now, now)
        assert step is not None
        made = executions.propose(run, step, proposals)
    run.refresh_from_db()
    return step, made
