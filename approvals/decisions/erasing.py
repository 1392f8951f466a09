"""Erases the words of requests and decisions, and leaves what they were bound to: digests, times, who decided."""

import uuid
from collections.abc import Sequence

from django.db.models import Q

from approvals import claims, comments, grants, judgements, plans, questions
from approvals.clock import Now
from approvals.models import Approval, Decision
from approvals.sealed import ERASED, GONE

_NOTHING = "{}"


def erase(run_ids: Sequence[uuid.UUID], by: str) -> int:
    """Erase the words of the requests of some ended runs. Returns how many requests there were.

    The caller holds the runs' locks. Afterwards neither digest can be found by trying: the salt is gone too.
    """
    found = Approval.objects.filter(run_id__in=run_ids, erased_at__isnull=True)
    erased = list(found.values_list("pk", flat=True))
    about = Q(approval__in=erased)
    Decision.objects.filter(about).exclude(message="").update(message=ERASED)
    Decision.objects.filter(about).exclude(customer="").update(customer=ERASED)
    Decision.objects.filter(about).update(arguments_text="", salt=GONE)
    questions.erase(erased)
    comments.erase(erased)
    judgements.erase(erased)
    claims.erase(erased)
    plans.erase(erased)
    grants.erase(erased)
    Approval.objects.filter(pk__in=erased).exclude(final_arguments_text="").update(final_arguments_text=_NOTHING)
    Approval.objects.filter(pk__in=erased).exclude(final_title="").update(final_title=ERASED)
    Approval.objects.filter(pk__in=erased).update(
        run_title=ERASED,
        arguments_text=_NOTHING,
        arguments={},
        title=ERASED,
        sentence=[{"text": ERASED, "value": False}],
        effects=[],
        button="",
        evidence=[],
        explanation="",
        snapshot_text="",
        preview_text="",
        plan_text="",
        final_preview_text="",
        difference=[],
        rule_values=[],
        risk_factors=[],
        provenance=[],
        second_look={},
        about={},
        salt="",
        erased_at=Now(),
        erased_by=by[:200],
    )
    return len(erased)
