"""What is weighed before people are asked: the risk set by rules, and the facts that raise it. Reads only."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from django.db.models import QuerySet, UUIDField
from django.utils import timezone

from agentapp import provenance
from agentapp.models import Run, Tool, ToolExecution
from agentapp.provenance.paths import leaves
from agentapp.provenance.spelling import compact, folded, number_in
from agentapp.reasons import Reason
from agentapp.tools import sentences
from approvals import clock, risk, step_up
from approvals.disguises import deceiving, disguises
from approvals.models import HIGH_RISKS, Approval
from approvals.policy import Ruling
from approvals.prepared import Given, Prepared

MOST_CALLS = 200
AMOUNTS = frozenset(("amount", "total", "sum", "price", "value"))
RECIPIENTS = frozenset(
    ("account", "address", "beneficiary", "bic", "email", "iban", "payee", "phone", "recipient", "recipients", "to")
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class Weighed:
    """The terms on which people are asked, and what their card shows of it."""

    terms: Ruling
    factors: list[dict[str, Any]] = field(default_factory=list)
    provenance: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Before:
    """The latest calls of a tool, as far as a card compares a call with them."""

    ran: Sequence[Mapping[str, Any]] = ()
    decided: int = 0
    rejected: int = 0


@cache
def _latest(*, is_mocked: bool, has_row: bool) -> "Prepared[tuple[Any, ...]]":
    def build() -> "QuerySet[Any, tuple[Any, ...]]":
        found = ToolExecution.objects.filter(tool=Given("tool", UUIDField()), mocked=is_mocked)
        found = found.filter(run=Given("run", UUIDField())) if is_mocked else found
        found = found.exclude(pk=Given("pk", UUIDField())) if has_row else found
        about = ("executed_text", "result_status", "reason", "approval", "run__agent")
        return found.order_by("-proposed_at").values_list(*about)[:MOST_CALLS]

    return Prepared(build)


def before(run: Run, tool: Tool, execution: ToolExecution | None) -> Before:
    """What this tool's latest calls were about, and how people decided about this agent's. One query.

    `execution`: the call itself, if it already has a row. For a mocked run, only its own calls.
    """
    own = {"run": run.pk} if run.is_mocked else {}
    itself = {"pk": execution.pk} if execution is not None else {}
    rows = _latest(is_mocked=run.is_mocked, has_row=execution is not None).rows(tool=tool.pk, **own, **itself)
    ran, decided, rejected = [], 0, 0
    for text, status, reason, approval, agent in rows:
        if text and status == ToolExecution.ResultStatus.OK:
            ran.append(json.loads(text))
        if approval is not None and agent == run.agent_id:
            rejected += reason == Reason.APPROVAL_REJECTED
            decided += bool(text) or reason == Reason.APPROVAL_REJECTED
    return Before(ran, decided, rejected)


def weigh(
    execution: ToolExecution,
    tool: Tool,
    terms: Ruling,
    arguments: Mapping[str, Any],
    origins: list[dict[str, Any]],
    earlier: Before,
    now: datetime,
) -> Weighed:
    """The terms with the risk that the facts give, if it is higher than the rules' risk.

    A customer alone cannot allow a high-risk call, one whose approval requires proof of identity, or one that is
    `untold`. A call that asks again never has a lower risk than
    before.
    """
    assessment = risk.assess(facts_of(tool, arguments, origins, earlier, now))
    given = risk.higher(terms.risk, assessment.risk)
    if execution.times_asked:
        for was in Approval.objects.filter(execution_id=execution.pk).values_list("risk", flat=True):
            given = risk.higher(given, was)
    shows = step_up.needed(terms.assurance, given, tool.effect_class)
    people = terms.people or given in HIGH_RISKS or bool(shows) or untold(tool, arguments)
    factors = [factor.as_json() for factor in assessment.factors]
    return Weighed(replace(terms, risk=given, people=people), factors, origins)


def untold(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether the tool's sentences, which are all that a customer reads, do not tell a call whole, or not as it is."""
    return sentences.leaves_out(tool, dict(arguments)) or bool(disguises(arguments))


def risk_of(
    run: Run,
    tool: Tool,
    ruled: str,
    arguments: Mapping[str, Any],
    origins: list[dict[str, Any]],
    execution: ToolExecution | None,
) -> str:
    """The risk with which people would be asked about a call. One query."""
    facts = facts_of(tool, arguments, origins, before(run, tool, execution), clock.now())
    return risk.higher(ruled, risk.assess(facts).risk)


def facts_of(
    tool: Tool, arguments: Mapping[str, Any], origins: list[dict[str, Any]], earlier: Before, now: datetime
) -> risk.Facts:
    money = _money(tool)
    amount, recipients = _stakes(money, arguments)
    ran = [_stakes(money, call) for call in earlier.ran]
    local = timezone.localtime(now)
    properties = tool.input_schema.get("properties", {})
    outside = provenance.from_outside(origins) if tool.consequential else []
    return risk.Facts(
        effect_class=tool.effect_class,
        outside=[_label(name, properties.get(name)) for name in outside],
        disguised=[_label(name, properties.get(name)) for name in deceiving(arguments)],
        amount=amount,
        amounts=[was for was, _ in ran if was is not None],
        recipients=recipients,
        known={recipient for _, known in ran for recipient in known},
        calls=len(earlier.ran),
        decided=earlier.decided,
        rejected=earlier.rejected,
        hour=local.hour,
        weekday=local.weekday(),
    )


def _label(name: str, described: Any) -> str:
    title = described.get("title") if isinstance(described, dict) else None
    return str(title or name)


def _money(tool: Tool) -> frozenset[str]:
    """The arguments that the tool itself says are money."""
    properties = tool.input_schema.get("properties", {})
    return frozenset(n for n, d in properties.items() if isinstance(d, dict) and d.get("format") == "money")


def _stakes(money: frozenset[str], arguments: Mapping[str, Any]) -> tuple[float | None, list[str]]:
    """The largest amount of money in a call, and its recipients in normalised form."""
    amounts, recipients = [], []
    for top, name, value in _named(arguments):
        if isinstance(value, str) and _words(name) & RECIPIENTS:
            if value:
                recipients.append(compact(folded(value)))
        elif _words(name) & AMOUNTS or top in money:
            amount = number_in(value)
            if amount is not None:
                amounts.append(abs(float(amount)))
    return max(amounts, default=None), recipients


def _named(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Each value with the argument it is in and the last name on the path to it."""
    for top, value in arguments.items():
        if not isinstance(value, dict | list):
            yield top, top, value
            continue
        for parts, leaf in leaves(value):
            yield top, next((part for part in reversed(parts) if isinstance(part, str)), top), leaf


@lru_cache(maxsize=1024)
def _words(name: str) -> frozenset[str]:
    """The words of a name such as account_number, accountNumber or payeeIBAN."""
    return frozenset(_HUMP.sub("_", name).lower().replace("-", "_").split("_"))
