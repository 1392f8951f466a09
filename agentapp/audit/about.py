"""Conditions on what an event is about, such as the cost of its run.

There are two ways to ask: by key if few things match, event by event if many do. Each is quick where the other would
read the whole ledger.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import BooleanField, Case, Exists, OuterRef, Q, QuerySet, Subquery, TextField, Value, When
from django.db.models.functions import Cast, Concat, Replace, StrIndex
from django.db.models.lookups import IsNull

from agentapp.models import Run
from approvals import judgements, ledger
from approvals.models import Approval, Decision, Event

# Up to this number, things are found by their keys.
FEW = 5000
FEW_RUNS = 500


def of_approvals(approvals: QuerySet[Approval]) -> Q:
    few = list(approvals.order_by().values_list("pk", flat=True)[: FEW + 1])
    if len(few) <= FEW:
        return events_of(few)
    return one_by_one(approvals.order_by().filter(pk=OuterRef("approval_id")))


def events_of(approvals: Sequence[uuid.UUID], **more: Any) -> Q:
    """The events about some requests: by their own keys if they are few, which no query plan gets wrong."""
    if not approvals:
        return Q(pk__in=[])
    about = Q(approval_id__in=approvals, **more)
    keys = list(Event.objects.filter(about).order_by().values_list("pk", flat=True)[: FEW + 1])
    return Q(pk__in=keys) if len(keys) <= FEW else about


def one_by_one(rows: QuerySet[Any], **first: Any) -> Q:
    """Events about requests that have one of these rows, looked up event by event.

    Written so that the database cannot do it any other way: it would collect all the rows first, to show fifty events.
    """
    is_there = IsNull(Subquery(rows.values("pk")[:1]), False)
    about = Q(approval_id__isnull=False, **first)
    return Q(Case(When(about, then=is_there), default=False, output_field=BooleanField()))


def of_runs(runs: QuerySet[Run]) -> Q:
    few = list(runs.order_by().values_list("pk", flat=True)[: FEW_RUNS + 1])
    if len(few) <= FEW_RUNS:
        return in_chains(few)
    return Q(Exists(runs.filter(pk=OuterRef("run_id"))), run_id__isnull=False)


def in_chains(runs: Sequence[uuid.UUID]) -> Q:
    """Events of these runs: by the name of the chain, which has an index."""
    return Q(chain__in=[ledger.run_chain(key) for key in runs])


def of_decisions(given: QuerySet[Decision]) -> Q:
    """The one event that names each of these decisions. The two databases write keys differently."""
    key = Replace(Cast("pk", TextField()), Value("-"), Value(""), output_field=TextField())
    member = Concat(Value('"decision":"', TextField()), key, Value('"', TextField()))
    named = StrIndex(Replace(OuterRef("body"), Value("-"), Value("")), member)
    rows = given.order_by().filter(approval=OuterRef("approval_id")).annotate(named=named).filter(named__gt=0)
    few = list(given.order_by().values_list("approval_id", flat=True)[: FEW + 1])
    if len(few) > FEW:
        return one_by_one(rows, type__in=judgements.DECIDED_BY)
    events = Event.objects.filter(Exists(rows), approval_id__in=few, type__in=judgements.DECIDED_BY)
    return Q(pk__in=list(events.order_by().values_list("pk", flat=True)))
