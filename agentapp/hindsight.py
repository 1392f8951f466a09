"""Puts past calls through today's rules. Reads only, a slice at a time, and guesses nothing.

Each call is judged as it ran, with its tool as it is set up now. What rules read but calls do not keep (other calls,
the time, where values came from) is tried both ways: a call whose verdict depends on it counts as unknown.
"""

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from django.db.models import Count, F, OuterRef, QuerySet, Subquery

from agentapp import auth, simulating
from agentapp.models import Tool, ToolExecution
from approvals import shadows
from approvals.entitlement import deciders
from approvals.models import Decision, DecisionType, Risk, Rule, Verdict
from approvals.policy import Call, Ruling
from approvals.streaming import streamed

# How many calls one page examines, and how many of them it shows.
SLICE = 500
MAX_SHOWN = 100
OF_A_TOOL = 200
_AT_A_TIME = 250
_STRICTER = (str(Verdict.ALLOW), str(Verdict.ASK), str(Verdict.DENY))


@dataclass(frozen=True)
class Judged:
    """One call: what was ruled then, and what today's rules say. `now` is empty if it cannot be known."""

    execution: uuid.UUID
    run: uuid.UUID
    step: int
    index: int
    tool: str
    at: datetime
    then: str
    then_rule: str
    allowed_by: str
    now: str = ""
    now_rule: str = ""
    reason: str = ""
    then_people: int = 0
    """How many people allowed it; for a call that nobody allowed itself, how many the rules asked for."""
    people: int = 0
    """How many people it would need, at least."""
    hangs: bool = False
    """Whether enough people allowed it cannot be known."""

    @property
    def is_stricter(self) -> bool:
        if not self.now or self.now == self.then:
            return self.now == Verdict.ASK and self.people > self.then_people
        return _STRICTER.index(self.now) > _STRICTER.index(self.then)


@dataclass(frozen=True)
class Group:
    """Calls of one tool that the same rule would now stop and the same one let run then, with the numbers of people."""

    tool: str
    then: str
    then_rule: str
    allowed_by: str
    now: str
    now_rule: str
    then_people: int
    people: int


@dataclass
class Slice:
    """What was found among some calls, newest first."""

    looked_at: int = 0
    unreadable: int = 0
    newest: datetime | None = None
    oldest: datetime | None = None
    further: uuid.UUID | None = None
    """Where the next slice begins, if there is one."""
    groups: Counter[Group] = field(default_factory=Counter)
    stopped: list[Judged] = field(default_factory=list)
    unknown: list[Judged] = field(default_factory=list)
    unknown_count: int = 0

    @property
    def stopped_count(self) -> int:
        return self.groups.total()


@dataclass
class Through:
    """How today's rules judge a tool's latest calls: by rule and verdict, and what changed since then."""

    looked_at: int = 0
    unreadable: int = 0
    unknown: int = 0
    by_rule: Counter[tuple[str, str]] = field(default_factory=Counter)
    changed: Counter[tuple[str, str]] = field(default_factory=Counter)
    oldest: datetime | None = None


def executed(user: Any) -> QuerySet[ToolExecution]:
    """The calls that began, in the runs a person may see."""
    found = ToolExecution.objects.filter(started_at__isnull=False, mocked=False, ruling__has_key="verdict")
    return found if user.has_perm("agentapp.view_run") else found.filter(run__in=auth.visible_runs(user))


def stopped_today(calls: QuerySet[ToolExecution], before: uuid.UUID | None = None, people: int = 0) -> Slice:
    """Which of these calls today's rules would have stopped: the newest, or those before a given one.

    `people`: only those that at least this many people would have to allow.
    """
    found, today = Slice(), Today()
    # Keys grow with time, so the index of the key finds the latest.
    older = calls.filter(pk__lt=before) if before else calls
    rows = list(older.order_by("-pk").annotate(by=_BY, got=_GOT).values(*_READ, "got")[: SLICE + 1])
    if len(rows) > SLICE:
        found.further = rows[SLICE - 1]["pk"]
    tools = _tools({row["tool_id"] for row in rows})
    for row in rows[:SLICE]:
        found.looked_at += 1
        found.newest, found.oldest = found.newest or row["proposed_at"], row["proposed_at"]
        judged = _judge(row, tools.get(row["tool_id"]), today)
        if judged is None:
            found.unreadable += 1
        elif not judged.now or judged.hangs:
            found.unknown_count += 1
            if len(found.unknown) < MAX_SHOWN:
                found.unknown.append(judged)
        elif judged.is_stricter and judged.people >= people:
            found.groups[_group(judged)] += 1
            if len(found.stopped) < MAX_SHOWN:
                found.stopped.append(judged)
    return found


def through(tool: Tool) -> Through:
    """A tool's latest calls under today's rules, whatever became of them."""
    found, today = Through(), Today()
    calls = ToolExecution.objects.filter(tool=tool, mocked=False, ruling__has_key="verdict")
    latest = calls.order_by("-proposed_at").annotate(by=_BY).values(*_READ)[:OF_A_TOOL]
    with streamed(latest, _AT_A_TIME) as rows:
        for row in rows:
            found.looked_at += 1
            found.oldest = row["proposed_at"]
            judged = _judge(row, tool, today)
            if judged is None:
                found.unreadable += 1
            elif not judged.now:
                found.unknown += 1
            else:
                found.by_rule[(judged.now_rule, judged.now)] += 1
                if judged.now != judged.then:
                    found.changed[(judged.then, judged.now)] += 1
    return found


_BY = F("run__agent_snapshot__name")
_LET_RUN = Decision.objects.filter(
    undone_at__isnull=True, user__isnull=False, type__in=(DecisionType.APPROVE, DecisionType.EDIT)
)
# How many people allowed a call; null if nobody was asked about it.
_GOT = Subquery(
    _LET_RUN.filter(approval__execution=OuterRef("pk"))
    .order_by()
    .values("approval")
    .annotate(number=Count("user", distinct=True))
    .values("number")
)
_READ = (*simulating.READ, "executed_text", "allowed_by")


@dataclass
class Today:
    """What past calls are judged by."""

    rules: tuple[Rule, ...] = field(default_factory=lambda: shadows.read()[0])

    @cached_property
    def two_can(self) -> bool:
        """Whether more than one person may decide at all: then nobody alone can allow a call of critical risk."""
        return deciders().count() > 1

    def people(self, ruling: Ruling) -> int:
        """How many people a call needs at least. 0 if it does not ask, or asks only the customer."""
        if ruling.verdict != Verdict.ASK or not ruling.people:
            return 0
        is_critical = ruling.risk == Risk.CRITICAL
        return max(ruling.approvals_needed, 2) if is_critical and self.two_can else ruling.approvals_needed


def _tools(keys: set[Any]) -> Mapping[Any, Tool]:
    return Tool.objects.only(*simulating.OF_TOOLS, "effect_class").in_bulk(keys - {None})


def _judge(row: Mapping[str, Any], tool: Tool | None, today: Today) -> Judged | None:
    """One call under today's rules. None: its arguments cannot be read, or its tool is gone."""
    if tool is None:
        return None
    ran = {**row, "arguments_text": row["executed_text"] or row["arguments_text"], "effect_class": tool.effect_class}
    call = simulating.call_of(ran, tool)
    if call is None:
        return None
    then = Ruling.from_json(row["ruling"])
    rulings = simulating.possible(today.rules, call)
    got, needed = row.get("got") or today.people(then), [today.people(ruling) for ruling in rulings]
    now, by, reason = _said_of(rulings, call)
    hangs = now == then.verdict == Verdict.ASK and min(needed) <= got < max(needed)
    if hangs:
        reason = "How many people it would need depends on facts that were not kept of the call."
    return Judged(
        row["pk"], row["run_id"], row["step__number"], row["index"], row["name"], row["proposed_at"],
        str(then.verdict), then.rule, row["allowed_by"], now, by, reason, got, min(needed), hangs,
    )  # fmt: skip


def _said_of(rulings: Sequence[Ruling], call: Call) -> tuple[str, str, str]:
    """The verdict, by which rule, and why. If rules agree only on the verdict, each that may give it is named."""
    first = rulings[0]
    if any(ruling.verdict != first.verdict for ruling in rulings):
        return "", "", "Depends on facts that were not kept of the call."
    names = list(dict.fromkeys(ruling.rule or "no rule" for ruling in rulings))
    if len(names) == 1:
        return str(first.verdict), first.rule, simulating.reason_of(first, call)
    by = " or ".join(names)
    return str(first.verdict), by, f"By {by}: which of them depends on facts that were not kept of the call."


def _group(one: Judged) -> Group:
    # Every grant and plan has its own name. For a group it is enough that there was one.
    kind = one.allowed_by.partition(":")[0]
    return Group(one.tool, one.then, one.then_rule, kind, one.now, one.now_rule, one.then_people, one.people)
