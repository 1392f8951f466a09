"""Weeks of traffic: requests, decisions, calls and costs as rows, written in bulk, the same for the same seed.

The rows are as the product leaves them but are not made through it: weeks of traffic would take hours.
"""

import random
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User

from agentapp.models import Agent, ModelUse, Run, Step, ToolExecution
from agentapp.models.executions import MOCKED_KEY
from approvals.models import Approval, Decision

TOOLS = ("refund_payment", "send_email", "update_order", "issue_credit", "erase_customer")
READS = ("get_order", "carrier_lookup", "score_fraud")
MODELS = ("openai:gpt-large", "anthropic:small", "")
RISKS = ("low", "medium", "high", "critical")
# How requests end, as a share of a hundred.
ENDS = {"approve": 60, "edit": 9, "reject": 12, "respond": 3, "expired": 6, "withdrawn": 4, "superseded": 3, "open": 3}


@dataclass
class Traffic:
    """The rows made, to be written together."""

    chance: random.Random
    people: list[User]
    teams: list[Group]
    runs: list[Run]
    approvals: list[Approval]
    links: list[Any]
    decisions: list[Decision]
    steps: list[Step]
    executions: list[ToolExecution]
    uses: list[ModelUse]

    def write(self) -> None:
        Run.objects.bulk_create(self.runs, batch_size=500)
        Approval.objects.bulk_create(self.approvals, batch_size=500)
        Approval.groups.through.objects.bulk_create(self.links, batch_size=2000)
        Decision.objects.bulk_create(self.decisions, batch_size=1000)
        Step.objects.bulk_create(self.steps, batch_size=1000)
        ToolExecution.objects.bulk_create(self.executions, batch_size=500)
        ModelUse.objects.bulk_create(self.uses, batch_size=1000)


def generate(
    begin: datetime, end: datetime, requests: int, people: list[User], teams: list[Group], calls: int = 3,
    seed: int = 1, mocked_each: int = 0,
) -> Traffic:  # fmt: skip
    """Rows for a stretch of time. Requests begin at whole seconds; everything else happens between them.

    `mocked_each`: one run in this many is mocked, with all that belongs to it. 0: none is.
    """
    made = Traffic(random.Random(seed), people, teams, [], [], [], [], [], [], [])
    agents = [Agent.objects.get_or_create(name=name)[0] for name in ("support", "billing")]
    span = int((end - begin).total_seconds())
    for _ in range(requests):
        at = begin + timedelta(seconds=made.chance.randrange(span))
        run = Run(
            agent=made.chance.choice(agents), agent_snapshot={}, title="A ticket", input="Help", state="succeeded",
            stop_reason="done", created_at=at, updated_at=at, finished_at=at,
        )  # fmt: skip
        made.runs.append(run)
        _request(made, run, at, end)
        for number in range(calls):
            _step(made, run, number, at + timedelta(seconds=made.chance.randrange(600), microseconds=7), end)
        if made.chance.random() < 0.05:
            cost = Decimal(made.chance.randrange(1, 900)) / 100_000
            made.uses.append(ModelUse(run=run, at=at, input_tokens=10, output_tokens=3, cost=cost))
    if mocked_each:
        _mock(made, made.runs[::mocked_each])
    return made


def _mock(made: Traffic, runs: list[Run]) -> None:
    keys = {run.pk for run in runs}
    for run in runs:
        run.mocks = {}
    for approval in made.approvals:
        approval.mocked = approval.run_id in keys
    for decision in made.decisions:
        if decision.approval.mocked:
            decision.mocked, decision.user, decision.customer = True, None, ""
    for execution in made.executions:
        if execution.run_id in keys:
            execution.mocked, execution.idempotency_key = True, f"{MOCKED_KEY}{execution.pk}"


def _request(made: Traffic, run: Run, at: datetime, end: datetime) -> None:
    chance, how = made.chance, made.chance.choices(list(ENDS), list(ENDS.values()))[0]
    wait = timedelta(
        seconds=min(int(chance.lognormvariate(4.4, 1.3)), 20_000), microseconds=chance.randrange(1, 999_999)
    )
    ended = at + wait
    if ended >= end:
        how = "open"
    approval = Approval(
        run_id=run.pk, execution_id=uuid.uuid4(), agent=run.agent.name, tool=chance.choice(TOOLS), tool_version="v1",
        effect_class="irreversible", arguments_text='{"amount":240}', action_digest="a" * 64, view_digest="b" * 64,
        title="Refund", risk=chance.choice(RISKS), assurance_needed="password", created_at=at,
        expires_at=at + timedelta(hours=1), paused_seconds=chance.choice((0, 0, 0, 30, 400)),
        kind="confirmation" if chance.random() < 0.05 else "authorization",
    )  # fmt: skip
    if approval.kind == "confirmation":
        approval.assurance_needed = ""
    made.approvals.append(approval)
    groups = chance.sample(made.teams, chance.randrange(len(made.teams) + 1))
    made.links += [Approval.groups.through(approval_id=approval.pk, group_id=group.pk) for group in groups]
    if how in ("expired", "withdrawn", "superseded"):
        approval.state = approval.ended_as = how
        approval.ended_at = approval.expires_at + timedelta(seconds=3, microseconds=5) if how == "expired" else ended
        if approval.ended_at >= end:
            approval.state, approval.ended_as, approval.ended_at = "pending", "", None
    elif how != "open":
        _decided(made, approval, how, ended)


def _decided(made: Traffic, approval: Approval, how: str, ended: datetime) -> None:
    chance = made.chance
    approval.decided_at = approval.ended_at = approval.runs_at = ended
    approval.ended_as = "decided"
    approval.final_arguments_text = '{"amount":200}' if how == "edit" else approval.arguments_text
    approval.final_digest, approval.use_by = "c" * 64, ended + timedelta(hours=1)
    approval.state = {"reject": "rejected", "respond": "responded"}.get(how, "used")
    if approval.state == "used":
        approval.used_at = ended
    elif chance.random() < 0.1:
        approval.state = "withdrawn"
    customer = approval.kind == "confirmation"
    looked = timedelta(milliseconds=chance.choice((900, 2_990, 3_010, 8_000, 90_000)))
    common: dict[str, Any] = {
        "approval": approval,
        "approval_version": 1,
        "action_digest": "a" * 64,
        "view_digest": "b" * 64,
    }
    decision = Decision(
        **common, type=how, via="console", decided_at=ended, customer="ana" if customer else "",
        user=None if customer else chance.choice(made.people),
        shown_at=None if customer or chance.random() < 0.2 else ended - looked,
        claimed_at=None if customer or chance.random() < 0.5 else ended - timedelta(seconds=chance.randrange(1, 60)),
    )  # fmt: skip
    made.decisions.append(decision)
    if not customer and chance.random() < 0.05:
        # Undone, and then decided as it stands by somebody else.
        other = next(user for user in made.people if user != decision.user)
        made.decisions.append(
            Decision(**common, user=other, type="approve", via="console", decided_at=ended - looked, undone_at=ended)
        )


def _step(made: Traffic, run: Run, number: int, at: datetime, end: datetime) -> None:
    chance = made.chance
    if at >= end:
        return
    cost = None if chance.random() < 0.02 else Decimal(chance.randrange(1, 90_000)) / 10_000_000
    step = Step(
        run=run, number=number + 1, model=chance.choice(MODELS), input_tokens=chance.randrange(2000),
        output_tokens=chance.randrange(300), cost=cost, started_at=at, finished_at=at,
    )  # fmt: skip
    made.steps.append(step)
    status = chance.choices(("ok", "retryable_error", "fatal_error", "refused"), (90, 4, 2, 4))[0]
    ran = status != "refused"
    made.executions.append(
        ToolExecution(
            run=run, step=step, index=0, call_id=str(number), name=chance.choice(READS), arguments_text="{}",
            effect_class="read", consequential=False, state="finished", result_status=status,
            attempts=chance.choice((1, 1, 1, 2, 3)) if ran else 0, cost=Decimal("0.002") if ran else Decimal(0),
            proposed_at=at, started_at=at if ran else None, finished_at=at,
        )
    )  # fmt: skip
