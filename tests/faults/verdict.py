"""What became of runs, judged from outside: what the world saw, compared with the rows and the ledger.

Used after a fault. It says in sentences how a promise was broken, and knows nothing of the code that kept it.
"""

import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, Q

from agentapp.models import Run, ToolExecution
from approvals import ledger
from approvals.clock import Now
from approvals.models import Approval, Decision, Event

READS = ("read_order",)
AUTHORITIES = ("rule:", "grant:")
DECIDED = ("approval.approved", "approval.rejected", "approval.responded")
# The order in which the ledger records what became of a call.
RANKS = {"proposed": 0, "started": 1, "completed": 2}
SHOWN_BY = {"approval": ToolExecution.State.WAITING, "outcome": ToolExecution.State.OUTCOME_UNKNOWN}


@dataclass
class Verdict:
    """`states`: how many runs are in each; `unknown`: how many calls have an unknown outcome."""

    states: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    effects: int = 0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        said = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        return f"{said}; {self.effects} effects; {self.unknown} outcomes unknown; {len(self.problems)} problems"


def judge(
    run_ids: Collection[uuid.UUID],
    effects: Sequence[dict[str, Any]],
    cut_off: Collection[uuid.UUID] = (),
    acknowledged: Collection[uuid.UUID] = (),
) -> Verdict:
    """`cut_off`: the calls that were under way when something broke. `acknowledged`: decisions a client was told
    are taken.
    """
    verdict = Verdict()
    runs = list(Run.objects.filter(pk__in=run_ids))
    calls = list(ToolExecution.objects.filter(run__in=run_ids).select_related("approval", "run"))
    happened = [effect for effect in effects if effect["run"] in {str(key) for key in run_ids}]
    verdict.states = Counter(run.state for run in runs)
    verdict.unknown = sum(call.state == ToolExecution.State.OUTCOME_UNKNOWN for call in calls)
    verdict.effects = len(happened)
    if missing := len(set(run_ids)) - len(runs):
        verdict.problems.append(f"{missing} runs that were acknowledged are not on record")
    verdict.problems += [
        *_of_unknown(calls, cut_off),
        *_lost(runs, calls),
        *_of_effects(calls, happened),
        *_of_approvals(run_ids, acknowledged),
        *_of_ledger(runs, calls),
    ]
    return verdict


def at_rest(run_ids: Collection[uuid.UUID]) -> bool:
    """Whether every run has ended, waits for a person, or shows a call whose outcome is unknown."""
    resting = Q(state__in=Run.FINAL) | _shown("outcome", "approval")
    return Run.objects.filter(resting, pk__in=run_ids).count() == len(set(run_ids))


def ended(run_ids: Collection[uuid.UUID]) -> bool:
    """The same, but without runs that wait for a decision."""
    return unfinished(run_ids) == 0


def unfinished(run_ids: Collection[uuid.UUID]) -> int:
    """How many have neither ended nor show a call whose outcome is unknown."""
    resting = Q(state__in=Run.FINAL) | _shown("outcome")
    return len(set(run_ids)) - Run.objects.filter(resting, pk__in=run_ids).count()


def _shown(*waiting_for: str) -> Q:
    """Runs that wait for a person. A run that is due goes on by itself, such as after a late answer."""
    rests = Q(wake_at__isnull=True) | Q(wake_at__gt=Now())
    return Q(state=Run.State.WAITING, waiting_for__in=waiting_for) & rests


@contextmanager
def one_view() -> Iterator[None]:
    """Everything read inside is read as of one moment, while workers go on."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _lost(runs: Sequence[Run], calls: Sequence[ToolExecution]) -> Iterator[str]:
    """No run may depend on somebody remembering it: it ended well, or the console shows what to do about it."""
    shown = {(call.run_id, call.state) for call in calls}
    for run in runs:
        if run.state == Run.State.WAITING and run.waiting_for in SHOWN_BY:
            if (run.pk, SHOWN_BY[run.waiting_for]) not in shown:
                yield f"{run.pk} waits for an {run.waiting_for} that nobody is shown"
        elif run.state not in Run.FINAL:
            yield f"{run.pk} is lost: {run.state} {run.waiting_for}"
        elif run.state == Run.State.FAILED:
            yield f"{run.pk} failed: {run.stop_message}"


def _of_unknown(calls: Sequence[ToolExecution], cut_off: Collection[uuid.UUID]) -> Iterator[str]:
    """Nobody is asked to find out what became of a call, unless it was cut off in the middle."""
    for call in calls:
        if call.state == ToolExecution.State.OUTCOME_UNKNOWN and call.pk not in cut_off:
            yield f"the outcome of call {call.call_id} of {call.run_id} is unknown, and nothing cut it off"


def _of_effects(calls: Sequence[ToolExecution], effects: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Nothing happened twice, without permission or with other arguments; and what is recorded as done was done."""
    acts = [effect for effect in effects if effect["what"] not in READS]
    counted = Counter((effect["run"], effect["call"]) for effect in acts)
    by_place = {(str(call.run_id), call.call_id): call for call in calls}
    for place, times in counted.items():
        if times > 1:
            yield f"call {place[1]} of {place[0]} took effect {times} times"
    for effect in acts:
        call = by_place.get((effect["run"], effect["call"]))
        if call is None:
            yield f"{effect['what']} happened in {effect['run']}, and no row says so"
            continue
        if effect["item"] != (call.args or {}).get("item"):
            yield f"call {call.call_id} of {call.run_id} happened to {effect['item']}, and its row names {call.args}"
        used = call.approval is not None and call.approval.state == Approval.State.USED
        if not used and not call.allowed_by.startswith(AUTHORITIES):
            yield f"call {call.call_id} of {call.run_id} took effect under no approval, rule or grant"
        if call.state not in (ToolExecution.State.FINISHED, ToolExecution.State.OUTCOME_UNKNOWN):
            yield f"call {call.call_id} of {call.run_id} took effect and is {call.state}"
    for call in calls:
        times = counted[str(call.run_id), call.call_id]
        if call.consequential and call.result_status == ToolExecution.ResultStatus.OK and not times:
            yield f"call {call.call_id} of {call.run_id} is said to have happened, and the world knows nothing of it"


def _of_approvals(run_ids: Collection[uuid.UUID], acknowledged: Collection[uuid.UUID]) -> Iterator[str]:
    """A decision that a client was told of is taken, once, and lets one call run once."""
    kept = set(Decision.objects.filter(pk__in=acknowledged).values_list("pk", flat=True))
    for key in set(acknowledged) - kept:
        yield f"decision {key} was acknowledged and is lost"
    asked = Approval.objects.filter(run_id__in=run_ids)
    counting = Count("decisions", filter=Q(decisions__undone_at__isnull=True))
    for approval in asked.annotate(times=counting):
        if approval.times > approval.approvals_needed:
            yield f"{approval.pk} was decided {approval.times} times"
        if approval.state == Approval.State.USED and approval.times < approval.approvals_needed:
            yield f"{approval.pk} was used, and nobody decided it"
    facts = Event.objects.filter(chain__in=[ledger.run_chain(key) for key in run_ids])
    for kinds in (["approval.used"], DECIDED):
        named = Counter(facts.filter(type__in=kinds).values_list("approval_id", flat=True))
        yield from (f"{key} is {kinds[0]} {times} times in the ledger" for key, times in named.items() if times > 1)


def _of_ledger(runs: Sequence[Run], calls: Sequence[ToolExecution]) -> Iterator[str]:
    """Every chain holds, and says of a call that it was proposed before it began, and began before it ended."""
    for chain in (ledger.CONFIGURATION, *(ledger.run_chain(run.pk) for run in runs)):
        broken = ledger.verify(chain)[1]
        if broken is not None:
            yield f"the chain {chain} is broken: {broken}"
    said = Event.objects.filter(chain__in=[ledger.run_chain(run.pk) for run in runs]).order_by("chain", "seq")
    order: dict[uuid.UUID | None, list[str]] = {}
    for event in said.filter(type__startswith="tool_call."):
        order.setdefault(event.execution_id, []).append(event.type.removeprefix("tool_call."))
    for call in calls:
        facts = order.get(call.pk, [])
        ranks = [RANKS[fact] for fact in facts if fact in RANKS]
        if ranks != sorted(ranks) or "proposed" not in facts:
            yield f"the ledger tells call {call.call_id} of {call.run_id} as {facts}"
        if call.started_at is not None and "started" not in facts:
            yield f"call {call.call_id} of {call.run_id} began, and the ledger does not say so"
