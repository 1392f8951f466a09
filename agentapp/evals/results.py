"""The only writer of EvalRun and EvalResult: what is to be run, who is at it, what came of it.

An eval is carried out by whoever holds its lease, a slice at a time. A result that is there already stays.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from agentapp.evals.cases import Case
from agentapp.evals.observed import Observed
from agentapp.models import EvalResult, EvalRun, EvalSuite, Run
from approvals import ledger
from approvals.clock import Now
from approvals.ids import uuid7
from approvals.sealed import ERASED

# What happens to evals is a chain of its own: it is no change of what agents do.
CHAIN = "evals"

# Whoever holds it renews it whenever the run of a case has come a piece further, and with each result.
LEASE = timedelta(minutes=15)
# A nudge may be on its way for so long.
SETTLES = timedelta(minutes=1)

# Of earlier evals, so many are looked at for one to hold another against.
MOST_LOOKED_AT = 50

# Of a case, what may be of people.
_WORDS = frozenset({"input", "description", "customer", "metadata", "tools", "agents", "script", "people"})

State = EvalRun.State


def create(
    suite: EvalSuite,
    cases: Sequence[Case],
    *,
    key: uuid.UUID | None = None,
    starter: User | None = None,
    agent: str = "",
    model: str = "",
    baseline: EvalRun | None = None,
    rules: dict[str, Any] | None = None,
    actor: str = ledger.SYSTEM,
) -> EvalRun:
    """A queued eval of these cases, as they stand now. `rules`: what `approvals.supposing` supposes.

    Raises IntegrityError where there is one with this key.
    """
    with ledger.transaction():
        row: EvalRun = EvalRun.objects.create(
            pk=key or uuid7(),
            suite=suite,
            agent=agent,
            model=model,
            rules=rules or {},
            baseline=baseline,
            starter=starter,
            planned=[{"document": case.document, "digest": case.digest} for case in cases],
            total=sum(case.repeats.of for case in cases),
            created_at=Now(),
        )
        said = _said(row.pk, suite.name) | {"agent": agent, "model": model, "cases": len(cases)}
        if rules:
            said |= {"with_drafts": [draft["rule"] for draft in rules["drafts"]], "without_rules": rules["without"]}
        ledger.record(CHAIN, "eval.queued", said, actor)
    row.refresh_from_db()
    return row


def latest(suite: EvalSuite, cases: Sequence[Case]) -> EvalRun | None:
    """The last finished eval of these cases by the rules in force; where there is none, of most of them.

    One of a few cases says nothing of the others, and one by other rules is named by its reference alone.
    """
    wanted = {case.name for case in cases}
    finished = suite.runs.filter(state=State.FINISHED, rules={}).select_related("suite")[:MOST_LOOKED_AT]

    def covered(eval_run: EvalRun) -> int:
        return len(wanted & {each["document"]["name"] for each in eval_run.planned})

    return max(finished, key=covered, default=None)


def claim(eval_run_id: uuid.UUID) -> EvalRun | None:
    """Take hold of an eval that has not ended. None: somebody else has, or it has ended."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=Now())
    open_ = EvalRun.objects.filter(free, pk=eval_run_id).exclude(state__in=EvalRun.FINAL)
    if not open_.update(state=State.RUNNING, lease_until=Now() + LEASE):
        return None
    EvalRun.objects.filter(pk=eval_run_id, started_at__isnull=True).update(started_at=Now())
    return EvalRun.objects.select_related("suite", "starter", "baseline").get(pk=eval_run_id)


def renew(eval_run: EvalRun) -> None:
    """Keep hold of an eval while one of its cases takes long."""
    EvalRun.objects.filter(pk=eval_run.pk, state=State.RUNNING).update(lease_until=Now() + LEASE)


def release(eval_run: EvalRun) -> None:
    """Let go of an eval that goes on in another slice."""
    EvalRun.objects.filter(pk=eval_run.pk).update(lease_until=None)


def due() -> list[uuid.UUID]:
    """Evals that nobody is at, and should be."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=Now())
    open_ = EvalRun.objects.filter(free, created_at__lte=Now() - SETTLES).exclude(state__in=EvalRun.FINAL)
    return list(open_.order_by("created_at").values_list("pk", flat=True)[:100])


def note_versions(eval_run: EvalRun, versions: dict[str, Any]) -> None:
    """Keep what the eval is of, from when it began."""
    EvalRun.objects.filter(pk=eval_run.pk, versions={}).update(versions=versions)
    eval_run.refresh_from_db(fields=["versions"])


def keep(
    eval_run: EvalRun,
    case: Case,
    repeat: int,
    reasons: Sequence[str],
    observed: Observed | None = None,
    run: Run | None = None,
) -> bool:
    """Keep what came of a case once. Without anything observed it was skipped. False: it is known, or all is over."""
    verdict = EvalResult.Verdict.SKIPPED
    if observed is not None:
        verdict = EvalResult.Verdict.FAILED if reasons else EvalResult.Verdict.PASSED
    going = EvalRun.objects.filter(pk=eval_run.pk, state=State.RUNNING)
    try:
        with transaction.atomic():
            if not going.update(done=F("done") + 1, lease_until=Now() + LEASE):
                return False
            EvalResult.objects.create(
                eval_run=eval_run,
                case=case.name,
                case_digest=case.digest,
                repeat=repeat,
                run=run,
                verdict=verdict,
                reasons=list(reasons),
                observed=observed.as_json() if observed is not None else None,
                created_at=Now(),
            )
    except IntegrityError:
        return False  # somebody else was faster, and counted it
    return True


def finish(eval_run: EvalRun, verdict: str, metrics: dict[str, Any]) -> bool:
    """End an eval that is complete. False: it has ended already."""
    with ledger.transaction():
        ended = EvalRun.objects.filter(pk=eval_run.pk, state=State.RUNNING).update(
            state=State.FINISHED, verdict=verdict, metrics=metrics, lease_until=None, finished_at=Now()
        )
        if ended:
            ledger.record(CHAIN, "eval.finished", _said(eval_run.pk, eval_run.suite.name) | {"verdict": verdict})
    eval_run.refresh_from_db()
    return bool(ended)


def cancel(eval_run_id: uuid.UUID, actor: str) -> bool:
    """End an eval before it is complete. What came of it so far stays. False: it has ended already."""
    with ledger.transaction():
        open_ = EvalRun.objects.filter(pk=eval_run_id).exclude(state__in=EvalRun.FINAL)
        ended = open_.update(state=State.CANCELLED, lease_until=None, finished_at=Now())
        if ended:
            suite = EvalSuite.objects.get(runs=eval_run_id)
            ledger.record(CHAIN, "eval.cancelled", _said(eval_run_id, suite.name), actor)
    return bool(ended)


def is_over(eval_run: EvalRun) -> bool:
    """Whether somebody has ended it meanwhile."""
    return EvalRun.objects.filter(pk=eval_run.pk, state__in=EvalRun.FINAL).exists()


def old(before: datetime) -> QuerySet[EvalRun]:
    """Evals that ended too long ago and that nothing is held against: not the last of a suite, nor what it or a
    younger one is compared with.
    """
    ended = Q(state__in=EvalRun.FINAL, finished_at__lt=before)
    finished = EvalRun.objects.filter(suite=OuterRef("suite"), state=State.FINISHED).order_by("-created_at", "-pk")
    latest = EvalRun.objects.filter(pk=Subquery(finished.values("pk")[:1]))
    kept = EvalRun.objects.filter(~ended | Q(pk__in=latest.values("pk")))
    named = kept.filter(baseline__isnull=False).values("baseline")
    return EvalRun.objects.filter(ended).exclude(pk__in=latest.values("pk")).exclude(pk__in=named)


def forget(eval_run_id: uuid.UUID, before: datetime) -> bool:
    """Delete an eval that ended too long ago, with what came of its cases. False: it is kept after all."""
    with transaction.atomic():
        return bool(old(before).filter(pk=eval_run_id).delete()[0])


def forget_words(suite_id: uuid.UUID, case: str) -> None:
    """Take the words of a case out of what the evals of its suite have kept of it."""
    for eval_run in EvalRun.objects.filter(suite=suite_id):
        planned = [_forgotten(each, case) for each in eval_run.planned]
        if planned != eval_run.planned:
            EvalRun.objects.filter(pk=eval_run.pk).update(planned=planned)
            EvalResult.objects.filter(eval_run=eval_run, case=case).update(reasons=[])


def _forgotten(planned: dict[str, Any], name: str) -> dict[str, Any]:
    """A case that has been run, without any of its words."""
    document = planned["document"]
    if document["name"] != name:
        return planned
    kept = {key: value for key, value in document.items() if key not in _WORDS}
    return {**planned, "document": {**kept, "input": ERASED, "expect": {}}}


def _said(eval_run_id: uuid.UUID, suite: str) -> dict[str, Any]:
    return {"eval": str(eval_run_id), "suite": suite}


def of(eval_run: EvalRun) -> QuerySet[EvalResult]:
    return EvalResult.objects.filter(eval_run=eval_run).order_by("case", "repeat")
