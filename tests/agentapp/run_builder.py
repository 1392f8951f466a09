"""Runs for tests, made by the product's own writers, one transition at a time."""

import json
import uuid
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from django.utils import timezone

from agentapp import executions, runs
from agentapp.executions import Outcome, Proposal
from agentapp.messages import Reply, StopSignal, ToolCall, ToolResult, Usage
from agentapp.models import Agent, Route, Run, Tool, ToolExecution, ToolSource
from agentapp.toolset import snapshot_of
from approvals import decisions, ledger
from approvals.cards import Card
from approvals.decisions import Taken
from approvals.digest import canonical, sha256
from approvals.models import Approval


def make_tool(name: str, effect: str = "read", **values: Any) -> Tool:
    source, _ = ToolSource.objects.get_or_create(name="shop", defaults={"location": "tests.shop"})
    defaults = {"source": source, "version": "v1", "description": name, "effect_class": effect, **values}
    tool, _ = Tool.objects.get_or_create(name=name, defaults=defaults)
    return tool


def make_agent(name: str = "support", tools: Sequence[Tool] = (), **values: Any) -> Agent:
    agent, created = Agent.objects.get_or_create(name=name, defaults={"description": "Answers customers.", **values})
    if created:
        agent.tools.set(tools)
        Route.objects.create(agent=agent, name="refunds")
    return agent


class RunBuilder:
    """One run on its way. `run` is always as the database has it."""

    def __init__(self, starter: User | None, input: str = "My kettle arrived broken.", **start: Any) -> None:
        agent = start.pop("agent", None) or make_agent()
        with ledger.transaction():
            created = runs.create(
                runs.Start(
                    agent=agent,
                    agent_snapshot=snapshot_of(agent),
                    input=input,
                    title=start.pop("title", input.splitlines()[0][:120]),
                    starter=starter,
                    **start,
                )
            )
        self.id, self.token = created.pk, uuid.uuid4()

    @property
    def run(self) -> Run:
        return Run.objects.select_related("agent").get(pk=self.id)

    def claim(self) -> "RunBuilder":
        claimed = runs.claim(self.id)
        assert claimed is not None
        assert claimed.lease_token is not None
        self.token = claimed.lease_token
        return self

    def step(
        self,
        text: str = "",
        *proposals: Proposal,
        seconds: float = 1.0,
        cost: str | None = "0.02",
        model: str = "large",
    ) -> list[ToolExecution]:
        """The model decides: says something, makes calls. It has just finished thinking."""
        if self.run.state != Run.State.RUNNING:
            self.claim()
        now = timezone.now()
        reply = Reply(
            text=text,
            tool_calls=tuple(proposal.call for proposal in proposals),
            usage=Usage(1000, 200, 700, None if cost is None else Decimal(cost)),
            model=model,
        )
        with ledger.transaction():
            run = runs.held(self.id, self.token)
            step = runs.record_step(run, self.token, reply, ["get_order"], now - timedelta(seconds=seconds), now)
            assert step is not None
            return executions.propose(run, step, proposals)

    def answer(self, execution: ToolExecution, result: ToolResult, attempts: int = 1) -> None:
        with ledger.transaction():
            runs.lock(self.id)
            executions.finish([Outcome(execution, result, attempts)])

    def ask(self, *held: ToolExecution, groups: Sequence[Group] = (), **card: Any) -> list[Approval]:
        """Ask people about calls, and let the run wait."""
        run = self.run
        cards = [
            Card(
                run_id=run.pk,
                execution_id=execution.pk,
                agent=run.agent.name,
                tool=execution.name,
                tool_version="v1",
                effect_class=execution.effect_class,
                arguments_text=canonical(json.loads(execution.arguments_text)),
                run_title=run.title,
                starter_id=run.starter_id,
                groups=tuple(group.pk for group in groups),
                **{
                    "title": f"Call {execution.name}",
                    "sentence": [],
                    "effects": [],
                    "reason": "Refunds are decided by a person.",
                    "expires_seconds": 600,
                    "hold_seconds": 0,
                    "allowed_decisions": ("approve", "edit", "reject", "respond"),
                    "secret_fields": list(execution.tool.secret_fields) if execution.tool else [],
                    **card,
                },
            )
            for execution in held
        ]
        with ledger.transaction():
            locked = runs.lock(self.id)
            assert locked is not None
            asked = decisions.request(cards, timezone.now())
            executions.hold(held, asked)
            runs.park(runs.held(self.id, self.token), self.token, "approval")
        return asked

    def decide(self, approval: Approval, user: User, type: str = "approve", **values: Any) -> Approval:
        approval.refresh_from_db()
        incoming = decisions.Incoming(
            id=uuid.uuid4(),
            type=type,
            user=user,
            version=approval.version,
            action_digest=approval.final_digest or approval.action_digest,
            **values,
        )
        with ledger.transaction():
            locked = runs.lock(self.id)
            assert locked is not None
            taken = decisions.decide(approval.pk, incoming, timedelta(hours=1))
            assert isinstance(taken, Taken), taken
            runs.wake(locked, taken.approval.runs_at)
        return taken.approval

    def use(self, execution: ToolExecution, approval: Approval) -> None:
        """The worker comes back, uses the approval and begins the call."""
        self.claim()
        with ledger.transaction():
            runs.lock(self.id)
            assert decisions.consume(approval)
            text = approval.final_arguments_text or approval.arguments_text
            assert executions.begin(execution, text, sha256(str(execution.pk)))

    def lose(self, execution: ToolExecution) -> None:
        """The worker dies in the middle of a call, and the run waits for somebody to find out."""
        with ledger.transaction():
            run = runs.held(self.id, self.token)
            executions.lose(execution)
            runs.park(run, self.token, "outcome")

    def finish(self, state: str = "succeeded", reason: str = "completed", message: str = "", answer: str = "") -> Run:
        with ledger.transaction():
            run = runs.lock(self.id)
            assert run is not None
            assert runs.finish(run, state, StopSignal(reason, message), answer)
        return self.run


def proposal(tool: Tool, arguments: Any = None, **values: Any) -> Proposal:
    """A call of this tool. Reads run at once and everything else asks, unless told otherwise."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    call = ToolCall(f"call-{uuid.uuid4().hex[:6]}", tool.name, text)
    defaults: dict[str, Any] = (
        {"asks": True, "ruling": {"verdict": "ask", "reason": "A person decides.", "rule": "refunds", "risk": "high"}}
        if tool.consequential
        else {"allowed_by": "read", "starts_now": True, "ruling": {"verdict": "allow", "reason": "Reads run freely."}}
    )
    return Proposal(call, tool, arguments, text, **{**defaults, **values})


def told_run(starter: User, decider: User, steps: int = 1) -> RunBuilder:
    """A run that looks things up in each step, and ends with a refund that a person approved."""
    look, refund = make_tool("get_order"), make_tool("refund_payment", "irreversible")
    builder = RunBuilder(starter)
    for _ in range(steps):
        (read,) = builder.step("I look the order up.", proposal(look, {"order_id": 1001}))
        builder.answer(read, ToolResult(data={"order_id": 1001, "total": "49.00"}))
    (call,) = builder.step("I propose a refund.", proposal(refund, {"amount": "49.00", "order_id": 1001}))
    (approval,) = builder.ask(call)
    builder.use(call, builder.decide(approval, decider))
    builder.answer(call, ToolResult(data={"refund": "R-1"}, trust="trusted_system"))
    builder.step("It is refunded.")
    builder.finish(answer="It is refunded.")
    return builder
