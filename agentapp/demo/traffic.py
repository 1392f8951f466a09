"""An invented past for the shop, of any size: for benchmarks, and to see pages with years of history.

Each run is one piece of history: four look-ups, a write that people were asked about, what they decided, and all the
events, chained as the ledger chains them. The same seed makes the same past.
"""

import math
import random
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User

from agentapp.models import Agent, Run, Step, Tool, ToolExecution
from agentapp.toolset import snapshot_of
from approvals import cards, ledger
from approvals.digest import canonical, sha256
from approvals.ledger import GENESIS, MODEL, SYSTEM, Fact
from approvals.models import Approval, ChainHead, Decision, Event
from approvals.sealed import SALT_CHARS, digest_of

READS = 4
EVENTS_PER_RUN = 25
_NAMES = ("Ana Pereira", "Lena Fischer", "Ruth Adeyemi", "Halden Freight", "Ola Nordmann", "Mei Tanaka", "Jon Baker")
# How busy each hour of the day is, from midnight on.
_BUSY = (1, 1, 1, 1, 1, 2, 4, 7, 11, 13, 14, 13, 10, 12, 14, 13, 12, 9, 6, 4, 3, 2, 2, 1)
_RISKS = ("low", "medium", "high", "critical")
_ENDINGS = ("approve", "edit", "reject", "expire")


@dataclass(frozen=True)
class Cast:
    """Who and what the past is made of."""

    agents: Sequence[Agent]
    reads: Sequence[Tool]
    writes: Sequence[Tool]
    starter: User
    people: Sequence[User]
    snapshots: dict[uuid.UUID, dict[str, Any]]

    @classmethod
    def read(cls) -> "Cast":
        """Those in the database. Raises LookupError if there is no agent, tool or person to decide."""
        agents = list(Agent.objects.order_by("name"))
        tools = list(Tool.objects.filter(enabled=True).order_by("name"))
        people = list(User.objects.filter(is_active=True).order_by("pk"))
        reads, writes = [t for t in tools if not t.consequential], [t for t in tools if t.consequential]
        if not (agents and reads and writes and len(people) > 1):
            raise LookupError("There is no shop to invent a past for: run 'manage.py demo' first.")
        return cls(agents, reads, writes, people[0], people[1:], {each.pk: snapshot_of(each) for each in agents})


@dataclass
class Past:
    """The rows of some runs, in the order in which they can be stored."""

    runs: list[Run] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    approvals: list[Approval] = field(default_factory=list)
    executions: list[ToolExecution] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def heads(self) -> list[ChainHead]:
        last = {event.chain: event for event in self.events}
        return [ChainHead(chain=chain, seq=event.seq, hash=event.hash) for chain, event in last.items()]


def make(cast: Cast, runs: int, until: datetime, days: int, seed: int) -> Iterator[Past]:
    """The past of this many runs within this many days, a thousand runs at a time."""
    chance = random.Random(seed)  # noqa: S311
    past = Past()
    for number in range(runs):
        _Story(cast, chance, _moment(chance, until, days), number).tell(past)
        if len(past.runs) == 1000:
            yield past
            past = Past()
    if past.runs:
        yield past


def _moment(chance: random.Random, until: datetime, days: int) -> datetime:
    """A moment in the days before another, more likely during working hours; the story ends before that other."""
    [hour] = chance.choices(range(24), _BUSY)
    day = chance.randrange(1, days + 1)
    begin = datetime(until.year, until.month, until.day, tzinfo=UTC) - timedelta(days=day)
    return begin + timedelta(hours=hour, seconds=chance.uniform(0, 3600))


def _key(chance: random.Random, at: datetime) -> uuid.UUID:
    """A key such as `uuid7` would have made then."""
    value = int(at.timestamp() * 1000) << 80 | chance.getrandbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)


def _bound(approval: Approval, text: str) -> str:
    """The digest of a request's call with these arguments."""
    call = (approval.tool, approval.tool_version, text, approval.run_id, approval.execution_id)
    return cards.digest_of(*call, salt=approval.salt)


class _Story:
    """One run's past, told from its beginning to its end."""

    def __init__(self, cast: Cast, chance: random.Random, at: datetime, number: int) -> None:
        self.cast, self.chance, self.at, self.number = cast, chance, at, number
        self.agent = chance.choice(cast.agents)
        self.tool = cast.writes[min(int(chance.expovariate(0.6)), len(cast.writes) - 1)]
        self.who, self.amount = chance.choice(_NAMES), Decimal(chance.randrange(500, 90_000)) / 100
        [self.risk] = chance.choices(_RISKS, (40, 35, 20, 5))
        [self.ending] = chance.choices(_ENDINGS, (82, 8, 7, 3))
        self.facts: list[tuple[Fact, datetime]] = []
        self.run = Run(pk=_key(chance, at), agent=self.agent, agent_snapshot=cast.snapshots[self.agent.pk])
        self.chain = ledger.run_chain(self.run.pk)

    def tell(self, past: Past) -> None:
        self._begin()
        looks, decides = self._step(past, 1), None
        for index in range(READS):
            past.executions.append(self._read(looks, index))
        decides = self._step(past, 2)
        write = self._proposed(decides, 0, self.tool)
        approval = self._request(write)
        decision = self._decide(approval)
        self._end(write, approval)
        past.runs.append(self.run)
        past.approvals.append(approval)
        past.executions.append(write)
        past.decisions += [decision] if decision is not None else []
        past.events += self._chained()

    def _begin(self) -> None:
        self.run.title = f"Order {58_000 + self.number}: {self.who}"
        self.run.input, self.run.starter, self.run.created_at = "Please see to this order.", self.cast.starter, self.at
        actor = ledger.actor_of(self.cast.starter, "token shop")
        self._note("run.queued", {"agent": self.agent.name, "title": self.run.title}, actor)
        self._pass(0.2)
        self.run.started_at = self.at
        self._note("run.claimed", {"lease": str(_key(self.chance, self.at))})

    def _step(self, past: Past, number: int) -> Step:
        begun = self.at
        self._pass(self.chance.uniform(0.8, 6))
        cost = Decimal(self.chance.randrange(100, 4000)) / 100_000
        step = Step(
            pk=_key(self.chance, self.at), run=self.run, number=number, model=self.agent.model, cost=cost,
            input_tokens=2000 * number, output_tokens=120, finish_reason="tool_call",
            started_at=begun, finished_at=self.at,
        )  # fmt: skip
        self.run.step_count, self.run.cost = number, self.run.cost + cost
        self.run.input_tokens += step.input_tokens
        self.run.output_tokens += step.output_tokens
        self._note("step.recorded", {"step": number, "cost": str(cost)}, MODEL)
        past.steps.append(step)
        return step

    def _proposed(self, step: Step, index: int, tool: Tool) -> ToolExecution:
        text = canonical({"amount": float(self.amount), "order_id": str(58_000 + self.number)})
        execution = ToolExecution(
            pk=_key(self.chance, self.at), run=self.run, step=step, index=index, call_id=f"c{step.number}{index}",
            name=tool.name, tool=tool, tool_version=tool.version, effect_class=tool.effect_class,
            consequential=tool.consequential, arguments_text=text, arguments_digest=sha256(text),
            salt=f"{self.chance.getrandbits(4 * SALT_CHARS):0{SALT_CHARS}x}", proposed_at=self.at,
        )  # fmt: skip
        self._of(execution, "tool_call.proposed", {"arguments_digest": execution.arguments_digest})
        return execution

    def _read(self, step: Step, index: int) -> ToolExecution:
        execution = self._proposed(step, index, self.chance.choice(self.cast.reads))
        execution.allowed_by = "read"
        self._run_call(execution, failing=self.chance.random() < 0.02)
        return execution

    def _run_call(self, execution: ToolExecution, failing: bool, changed: str = "") -> None:
        text = changed or execution.arguments_text
        execution.started_at, execution.executed_text, execution.attempts = self.at, text, 1
        facts = {"approval": str(execution.approval_id or ""), "attempt": 1}
        self._of(execution, "tool_call.started", {**facts, "executed_digest": digest_of(text, execution.salt)})
        self._pass(self.chance.lognormvariate(-1, 0.8))
        status = "fatal_error" if failing else "ok"
        self._answer(execution, status)
        took = round((self.at - execution.started_at).total_seconds() * 1000)
        self._of(execution, "tool_call.completed", {"status": status, "took_ms": took})

    def _answer(self, execution: ToolExecution, status: str, reason: str = "") -> None:
        execution.state, execution.result_status, execution.finished_at = "finished", status, self.at
        execution.reason, execution.result_text = reason, '{"ok":true}' if status == "ok" else ""

    def _request(self, write: ToolExecution) -> Approval:
        title = f"{self.tool.name.replace('_', ' ').capitalize()} ${self.amount} to {self.who}"
        approval = Approval(
            pk=_key(self.chance, self.at), run_id=self.run.pk, execution_id=write.pk, agent=self.agent.name,
            run_title=self.run.title, tool=self.tool.name, tool_version=self.tool.version,
            effect_class=self.tool.effect_class, arguments_text=write.arguments_text,
            arguments={"amount": float(self.amount)}, title=title, sentence=[{"text": title, "value": False}],
            salt=write.salt, view_digest=sha256(title), rule="", reason="Writes ask", risk=self.risk,
            starter=self.cast.starter,
            assurance_needed="passkey" if self.risk == "critical" else "",
            created_at=self.at, expires_at=self.at + timedelta(hours=8),
        )  # fmt: skip
        approval.action_digest = _bound(approval, approval.arguments_text)
        write.approval, write.times_asked = approval, 1
        self._about(
            approval, "requested", {"action_digest": approval.action_digest, "rule": "", "reason": "Writes ask"}
        )
        self._note("run.waiting", {"for": "approval"})
        return approval

    def _decide(self, approval: Approval) -> Decision | None:
        asked = self.at
        if self.ending == "expire":
            self.at = approval.expires_at
            approval.state = approval.ended_as = "expired"
            approval.ended_at = self.at
            self._about(approval, "expired", {"reason": "no one decided", "took_ms": 8 * 3_600_000})
            return None
        self._pass(min(math.exp(self.chance.gauss(4.4, 1.3)), 7 * 3600))
        person = self.chance.choice(self.cast.people)
        changed = canonical({"amount": float(self.amount) - 1, "order_id": str(58_000 + self.number)})
        text = changed if self.ending == "edit" else approval.arguments_text
        shown = math.exp(self.chance.gauss(3, 1))
        took = {"took_ms": round((self.at - asked).total_seconds() * 1000)}
        decision = Decision(
            pk=_key(self.chance, self.at), approval=approval, user=person, type=self.ending, arguments_text=text,
            message="Not what was agreed." if self.ending == "reject" else "", approval_version=1,
            action_digest=_bound(approval, text), view_digest=approval.view_digest, via="console", decided_at=self.at,
            assurance=approval.assurance_needed, shown_at=max(asked, self.at - timedelta(seconds=shown)),
        )  # fmt: skip
        approval.decided_at, approval.runs_at, approval.version = self.at, self.at, 2
        approval.state = "rejected" if self.ending == "reject" else "used"
        approval.used_at = self.at
        approval.ended_at, approval.ended_as = self.at, "decided"
        edited, bound = {"edited": self.ending == "edit"}, {"action_digest": decision.action_digest}
        facts = {"decision": str(decision.pk), "type": self.ending, **bound, **edited, **took}
        if self.ending != "reject":
            approval.use_by, approval.final_arguments_text = self.at + timedelta(hours=1), text
            approval.final_digest = decision.action_digest
        what = "rejected" if self.ending == "reject" else "approved"
        self._about(approval, what, facts, ledger.actor_of(person))
        return decision

    def _end(self, write: ToolExecution, approval: Approval) -> None:
        self._pass(5)
        self._note("run.claimed", {"lease": str(_key(self.chance, self.at))})
        if approval.state == "used":
            self._about(approval, "used", {"action_digest": approval.final_digest})
            write.idempotency_key = write.pk.hex
            self._run_call(write, failing=self.chance.random() < 0.03, changed=approval.final_arguments_text)
        else:
            self._answer(write, "refused", approval.state)
            self._of(write, "tool_call.completed", {"status": "refused", "reason": approval.state})
        self._pass(1)
        self.run.state, self.run.stop_reason, self.run.answer = "succeeded", "completed", "Done."
        self.run.finished_at = self.run.updated_at = self.at
        self._note("run.succeeded", {"reason": "completed", "cost": str(self.run.cost)})

    def _pass(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def _note(self, type_: str, data: dict[str, Any], actor: str = SYSTEM) -> None:
        self.facts.append((Fact(self.chain, type_, actor, data), self.at))

    def _of(self, execution: ToolExecution, type_: str, data: dict[str, Any]) -> None:
        self._note(type_, {"execution": str(execution.pk), "tool": execution.name, **data})

    def _about(self, approval: Approval, what: str, data: dict[str, Any], actor: str = SYSTEM) -> None:
        about = {"approval": str(approval.pk), "execution": str(approval.execution_id)}
        about |= {"tool": approval.tool, "risk": approval.risk}
        self._note(f"approval.{what}", about | data, actor)

    def _chained(self) -> Iterator[Event]:
        previous = GENESIS
        for seq, (fact, at) in enumerate(self.facts, start=1):
            event = ledger.sealed(seq, previous, fact, at, _key(self.chance, at))
            previous = event.hash
            yield event
