"""The only writer of EvalRun and EvalResult: what to run, who is running it, and what came of it.

The holder of its lease carries an eval out, a slice at a time. A result that already exists stays.
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

# Evals have a chain of their own: they do not change what agents do.
CHAIN = "evals"

# Its holder renews it whenever the run of a case has made progress, and with each result.
LEASE = timedelta(minutes=15)
# How long a nudge may be on its way.
SETTLES = timedelta(minutes=1)

# At most this many earlier evals are searched for one to compare with.
MOST_LOOKED_AT = 50

# The fields of a case that may contain people's words.
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
    """A queued eval of these cases as they are now. `rules`: what `approvals.supposing` supposes.

    Raises IntegrityError if there is already one with this key.
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
    """The last finished eval of these cases under the rules in force, or else of most of them.

    An eval of a few cases says nothing about the others. One under other rules is found only by its reference.
    """
    wanted = {case.name for case in cases}
    finished = suite.runs.filter(state=State.FINISHED, rules={}).select_related("suite")[:MOST_LOOKED_AT]

    def covered(eval_run: EvalRun) -> int:
        return len(wanted & {each["document"]["name"] for each in eval_run.planned})

    return max(finished, key=covered, default=None)


def claim(eval_run_id: uuid.UUID) -> EvalRun | None:
    """Take the lease of an eval that has not ended. None: somebody else holds it, or it has ended."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=Now())
    open_ = EvalRun.objects.filter(free, pk=eval_run_id).exclude(state__in=EvalRun.FINAL)
    if not open_.update(state=State.RUNNING, lease_until=Now() + LEASE):
        return None
    EvalRun.objects.filter(pk=eval_run_id, started_at__isnull=True).update(started_at=Now())
    return EvalRun.objects.select_related("suite", "starter", "baseline").get(pk=eval_run_id)


def renew(eval_run: EvalRun) -> None:
    """Renew the lease of an eval, as while one of its cases takes long."""
    EvalRun.objects.filter(pk=eval_run.pk, state=State.RUNNING).update(lease_until=Now() + LEASE)


def release(eval_run: EvalRun) -> None:
    """Give back the lease of an eval that continues in another slice."""
    EvalRun.objects.filter(pk=eval_run.pk).update(lease_until=None)


def due() -> list[uuid.UUID]:
    """Evals that should be running but that nobody holds."""
    free = Q(lease_until__isnull=True) | Q(lease_until__lte=Now())
    open_ = EvalRun.objects.filter(free, created_at__lte=Now() - SETTLES).exclude(state__in=EvalRun.FINAL)
    return list(open_.order_by("created_at").values_list("pk", flat=True)[:100])


def note_versions(eval_run: EvalRun, versions: dict[str, Any]) -> None:
    """Record the versions that the eval began with."""
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
    """Keep one result of a case. Without an observation it was skipped. False: it is known, or the eval has ended."""
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
    """End an eval that is complete. False: it has already ended."""
    with ledger.transaction():
        ended = EvalRun.objects.filter(pk=eval_run.pk, state=State.RUNNING).update(
            state=State.FINISHED, verdict=verdict, metrics=metrics, lease_until=None, finished_at=Now()
        )
        if ended:
            ledger.record(CHAIN, "eval.finished", _said(eval_run.pk, eval_run.suite.name) | {"verdict": verdict})
    eval_run.refresh_from_db()
    return bool(ended)


def cancel(eval_run_id: uuid.UUID, actor: str) -> bool:
    """End an eval before it is complete. Its results so far stay. False: it has already ended."""
    with ledger.transaction():
        open_ = EvalRun.objects.filter(pk=eval_run_id).exclude(state__in=EvalRun.FINAL)
        ended = open_.update(state=State.CANCELLED, lease_until=None, finished_at=Now())
        if ended:
            suite = EvalSuite.objects.get(runs=eval_run_id)
            ledger.record(CHAIN, "eval.cancelled", _said(eval_run_id, suite.name), actor)
    return bool(ended)


def is_over(eval_run: EvalRun) -> bool:
    """Whether somebody has ended it in the meantime."""
    return EvalRun.objects.filter(pk=eval_run.pk, state__in=EvalRun.FINAL).exists()


def old(before: datetime) -> QuerySet[EvalRun]:
    """Evals that ended too long ago and that nothing is compared with: not the last of a suite, nor the baseline of
    that or a younger one.
    """
    ended = Q(state__in=EvalRun.FINAL, finished_at__lt=before)
    finished = EvalRun.objects.filter(suite=OuterRef("suite"), state=State.FINISHED).order_by("-created_at", "-pk")
    latest = EvalRun.objects.filter(pk=Subquery(finished.values("pk")[:1]))
    kept = EvalRun.objects.filter(~ended | Q(pk__in=latest.values("pk")))
    named = kept.filter(baseline__isnull=False).values("baseline")
    return EvalRun.objects.filter(ended).exclude(pk__in=latest.values("pk")).exclude(pk__in=named)


def forget(eval_run_id: uuid.UUID, before: datetime) -> bool:
    """Delete an eval that ended too long ago, with its results. False: it must be kept after all."""
    with transaction.atomic():
        return bool(old(before).filter(pk=eval_run_id).delete()[0])


def forget_words(suite_id: uuid.UUID, case: str) -> None:
    """Erase the words of a case from what the evals of its suite have kept of it."""
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
