"""What a draft of a rule would have decided about last month's calls, compared with the rulings then. Decides nothing.

Each call is evaluated like a live one, once with the rules in force and once with the draft among them. What the
history does not contain is not guessed: if a rule needs it, both answers are tried, and a call whose verdict depends on
it counts as unknown.
"""

from collections import Counter
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet

from agentapp.models import Tool, ToolExecution
from agentapp.tools.arguments import effective
from approvals import conditions, ledger, policy, rule_terms, rule_versions, shadows
from approvals.digest import MalformedJSON, parse
from approvals.models import Rule, RuleVersion, Verdict
from approvals.policy import Call, Ruling
from approvals.standing import Refusal
from approvals.streaming import streamed

DAYS = 30
MAX_CALLS = 5000
# How many of the calls that would change are kept, the latest first.
MAX_SHOWN = 100
_AT_A_TIME = 500
# The columns of a call needed to judge it as the rules saw it then.
READ = (
    "pk", "run_id", "name", "tool_id", "index", "effect_class", "arguments_text", "ruling", "proposed_at", "by",
    "run__route", "run__title", "run__metadata", "run__customer", "step__number",
)  # fmt: skip
# The columns of a tool needed for that.
OF_TOOLS = ("name", "input_schema", "additional_arguments", "secret_fields", "approval_mode")
# The names in a condition whose values are known for a past call.
KNOWN = frozenset({"args", "tool", "agent", "run", "customer", "environment"})
ALWAYS_ASKS = "This tool always asks."
UNKNOWN = "unknown"
_FAILED = " could not be evaluated: "
# The fields by which two rulings that both ask differ.
_TERMS = (
    "risk", "groups", "approvals_needed", "terms", "escalation", "starter_excluded", "allowed_decisions", "assurance",
    "people", "customer", "grants_allowed", "on_expiry", "expires_seconds", "business_hours", "target_seconds",
    "hold_seconds",
)  # fmt: skip


@dataclass(frozen=True)
class Sets:
    """The rules in force, and those with the draft among them."""

    now: tuple[Rule, ...]
    drafted: tuple[Rule, ...]
    draft: Rule
    replaces: Rule | None
    """The rule as it is in force. None: it decides nothing now."""

    @property
    def changed(self) -> list[Rule]:
        """The two rules that differ: the outcome can change only for calls that one of them is about."""
        return [rule for rule in (self.draft, self.replaces) if rule is not None and rule.active]


@dataclass
class Counting:
    """What was found so far. Of the calls themselves, only the few to be shown are kept."""

    looked_at: int = 0
    unreadable: int = 0
    unknown: int = 0
    other_terms: int = 0
    since_then: int = 0
    about: int = 0
    failed: int = 0
    cut: bool = False
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def numbers(self) -> dict[str, Any]:
        def counted(before: str = "", after: str = "") -> int:
            fits = [n for (was, now), n in self.moves.items() if before in ("", was) and after in ("", now)]
            return sum(fits)

        return {
            "days": DAYS,
            "looked_at": self.looked_at,
            "cut": self.cut,
            "changed": sum(self.moves.values()),
            "more_ask": counted(after=Verdict.ASK),
            "fewer_ask": counted(before=Verdict.ASK),
            "more_refused": counted(after=Verdict.DENY),
            "fewer_refused": counted(before=Verdict.DENY),
            "more_run": counted(after=Verdict.ALLOW),
            "fewer_run": counted(before=Verdict.ALLOW),
            "other_terms": self.other_terms,
            "since_then": self.since_then,
            "unknown": self.unknown,
            "unreadable": self.unreadable,
            "about": self.about,
            "failed": self.failed,
        }


def simulate(draft: RuleVersion, user: User, now: datetime) -> RuleVersion | Refusal:
    """Judge the calls of recent days with a draft among the rules, and store the outcome on the draft."""
    height = ledger.height()
    sets = _sets(draft)
    if isinstance(sets, Refusal):
        return sets
    found = _count(sets, now - timedelta(days=DAYS))
    kept = rule_versions.Simulated(draft.terms_digest, height, found.numbers(), found.calls)
    return rule_versions.note_simulation(draft.pk, kept, ledger.actor_of(user, "admin"))


def _sets(draft: RuleVersion) -> Sets | Refusal:
    rules, _ = shadows.read()
    try:
        wanted = rule_terms.as_rule(draft.rule, draft.terms, rule_terms.groups_of(draft.terms))
    except LookupError as error:
        return Refusal("invalid", f"{error.args[0]} Change the draft.")
    replaces = next((rule for rule in rules if rule.pk == wanted.pk), None)
    return Sets(rules, shadows.with_draft(rules, wanted), wanted, replaces)


def _count(sets: Sets, since: datetime) -> Counting:
    counting = Counting()
    if not sets.changed:
        return counting
    tools = {tool.pk: tool for tool in _tools(sets.changed)}
    with streamed(_calls(sets.changed, since), _AT_A_TIME) as rows:
        for row in rows:
            if counting.looked_at == MAX_CALLS:
                counting.cut = True
                break
            counting.looked_at += 1
            call = call_of(row, tools.get(row["tool_id"]))
            if call is None:
                counting.unreadable += 1
            else:
                _look(counting, row, call, sets)
    return counting


def _look(counting: Counting, row: Mapping[str, Any], call: Call, sets: Sets) -> None:
    if policy.addresses(sets.draft, call):
        counting.about += 1
        counting.failed += _fails(sets.draft, call)
    before = Ruling.from_json(row["ruling"])
    ruling, verdicts = judged(sets.drafted, call)
    if len(verdicts) > 1:
        counting.unknown += 1
        _show(counting, row, UNKNOWN, "Depends on facts about the call that were not kept.")
        return
    ruling = _as_asked(ruling, before)
    if before.verdict == ruling.verdict:
        if before.verdict == Verdict.ASK and _terms(before) != _terms(ruling):
            now, by_rules = judged(sets.now, call)
            since_then = by_rules == verdicts and _terms(_as_asked(now, before)) == _terms(ruling)
            counting.other_terms += 1
            counting.since_then += since_then
            _show(counting, row, ruling.verdict, "Asks on other terms.", since_then)
        return
    counting.moves[(str(before.verdict), str(ruling.verdict))] += 1
    _, by_rules = judged(sets.now, call)
    since_then = by_rules == verdicts
    counting.since_then += since_then
    _show(counting, row, ruling.verdict, reason_of(ruling, call), since_then)


def _as_asked(ruling: Ruling, before: Ruling) -> Ruling:
    """The ruling for a call whose customer could not be asked then: other rules do not ask the customer either."""
    unasked = ruling.customer and before.reason.endswith(policy.NO_CUSTOMER)
    return ruling.without_customer() if unasked else ruling


def _show(counting: Counting, row: Mapping[str, Any], after: str, reason: str, since_then: bool = False) -> None:
    if len(counting.calls) < MAX_SHOWN:
        counting.calls.append(
            {
                "execution": str(row["pk"]), "run": str(row["run_id"]), "tool": row["name"],
                "step": row["step__number"], "index": row["index"], "at": row["proposed_at"].isoformat(),
                "before": str(row["ruling"]["verdict"]), "after": str(after), "reason": reason,
                "since_then": since_then,
            }
        )  # fmt: skip


def judged(rules: tuple[Rule, ...], call: Call) -> tuple[Ruling, set[str]]:
    """What the rules say about a call, and every verdict possible given what was not kept about it."""
    rulings = possible(rules, call)
    return rulings[0], {str(ruling.verdict) for ruling in rulings}


def possible(rules: tuple[Rule, ...], call: Call) -> list[Ruling]:
    """What the rules can say about a call, given what was not kept about it. The first: if none of that holds."""
    about = [rule for rule in rules if policy.addresses(rule, call)]
    open_ = [rule for rule in about if _asks_for_more(rule)]
    if not open_:
        return [policy.evaluate(about, call)]
    chosen = [[], open_, *([one] for one in open_)] if len(open_) > 1 else [[], open_]
    return [policy.evaluate(_as_if(about, open_, some), call) for some in chosen]


def _asks_for_more(rule: Rule) -> bool:
    """Whether a rule's condition looks at something that is not known for a past call."""
    try:
        return not conditions.names_in(rule.condition) <= KNOWN
    except ValueError:
        return False  # it cannot be evaluated, and evaluating it says so


def _fails(rule: Rule, call: Call) -> bool:
    """Whether a rule's condition cannot be evaluated for a call, given what is known about it."""
    if _asks_for_more(rule):
        return False
    try:
        policy.holds(rule.condition, call)
    except Exception:  # in any way its author did not foresee
        return True
    return False


def _as_if(about: list[Rule], open_: list[Rule], holding: list[Rule]) -> list[Rule]:
    """The rules in order, as if of those that cannot be known some held and the others did not."""
    return [_holding(rule) if rule in holding else rule for rule in about if rule in holding or rule not in open_]


def _holding(rule: Rule) -> Rule:
    """The rule as if its condition were true."""
    made = copy(rule)  # keeps the groups that were prefetched
    made.condition = ""
    return made


def _tools(rules: list[Rule]) -> QuerySet[Tool]:
    named = {rule.tool for rule in rules}
    tools = Tool.objects.only(*OF_TOOLS)
    return tools if "" in named else tools.filter(name__in=named)


def _calls(rules: list[Rule], since: datetime) -> QuerySet[ToolExecution, dict[str, Any]]:
    """The latest calls that were ruled on and that one of these rules is about: one more than the limit."""
    about = Q(pk__in=[])
    for rule in rules:
        named = {
            "name": rule.tool,
            "effect_class": rule.effect_class,
            "run__route": rule.route,
            "run__agent_snapshot__name": rule.agent,
        }
        wanted = {name: value for name, value in named.items() if value}
        about |= Q(**wanted) if wanted else Q(pk__isnull=False)
    found = ToolExecution.objects.annotate(by=F("run__agent_snapshot__name")).filter(
        about, mocked=False, proposed_at__gte=since, ruling__has_key="verdict"
    )
    # Keys grow with time, so the primary key's index yields the latest.
    latest: QuerySet[ToolExecution, dict[str, Any]] = found.order_by("-pk").values(*READ)[: MAX_CALLS + 1]
    return latest


def call_of(row: Mapping[str, Any], tool: Tool | None) -> Call | None:
    """The call as the rules saw it then. None: its arguments cannot be read."""
    try:
        arguments = parse(row["arguments_text"] or "{}")
    except MalformedJSON:
        return None
    if tool is None or not isinstance(arguments, dict):
        return None
    frozen = row["ruling"]
    asked_anyway = not frozen.get("rule") and frozen.get("reason") == ALWAYS_ASKS
    return Call(
        tool=row["name"],
        effect_class=row["effect_class"],
        arguments=effective(tool, arguments),
        agent=row["by"] or "",
        route=row["run__route"],
        # A step is counted when it is stored, after its calls have been judged.
        run={"id": str(row["run_id"]), "title": row["run__title"], "step": row["step__number"] - 1,
             "metadata": row["run__metadata"]},
        customer=row["run__customer"],
        always_ask=asked_anyway or tool.approval_mode == Tool.ApprovalMode.ALWAYS,
        secret=tuple(tool.secret_fields),
        environment=settings.ENVIRONMENT,
    )  # fmt: skip


def _terms(ruling: Ruling) -> tuple[Any, ...]:
    return tuple(getattr(ruling, name) for name in _TERMS)


def reason_of(ruling: Ruling, call: Call) -> str:
    """The reason, in words that reveal nothing of the arguments."""
    about, failed, _ = ruling.reason.partition(_FAILED)
    return f"{about}{_FAILED.rstrip(': ')}." if failed else shadows.plain(ruling.reason, call)


# --- Drafts that watch -----------------------------------------------------------------------------


def watched(draft: RuleVersion) -> dict[str, Any]:
    """How a watching draft has compared with the actual rulings since it began to watch, for the latest calls."""
    counted: Counter[str] = Counter()
    looked_at = 0
    found = ToolExecution.objects.filter(proposed_at__gte=draft.shadowed_at, ruling__has_key="shadow")
    rows = found.order_by("-pk").values_list("ruling__verdict", "ruling__shadow")
    with streamed(rows[:MAX_CALLS], _AT_A_TIME) as calls:
        for verdict, said in calls:
            looked_at += 1
            for one in said:
                if one.get("rule") == draft.rule.name and one.get("terms") == draft.terms_digest:
                    counted[_compared(verdict, one)] += 1
    return {
        **{name: counted[name] for name in ("agreed", *Verdict.values, "failed")},
        "total": counted.total(),
        "cut": looked_at == MAX_CALLS,
    }


def _compared(verdict: str, said: dict[str, Any]) -> str:
    if "error" in said:
        return "failed"
    return "agreed" if said["verdict"] == verdict else str(said["verdict"])
