"""The statements that each step runs on its run's row, built once. Only `runs`, which writes these rows, uses them."""

from functools import cache
from typing import Any

from django.db.models import (
    BooleanField,
    Case,
    CharField,
    DateTimeField,
    DecimalField,
    DurationField,
    Exists,
    F,
    IntegerField,
    QuerySet,
    TextField,
    UUIDField,
    When,
)
from django.db.models.functions import Coalesce

from agentapp import continuity
from agentapp.due import LASTING, claimable, with_configuration, with_end
from agentapp.models import Run, Step
from agentapp.pauses import worked_seconds
from approvals import ledger
from approvals.clock import Now
from approvals.inserting import RowInsert
from approvals.models import ChainHead
from approvals.prepared import Given, Prepared, PreparedUpdate

RUN, TOKEN, CHAIN = Given("run", UUIDField()), Given("token", UUIDField()), Given("chain", CharField())
COST = DecimalField(max_digits=20, decimal_places=8)
LEASE_ENDS = Now() + Given("lease", DurationField())


# --- Reading -------------------------------------------------------------------------------------


def _held() -> QuerySet[Run]:
    held = with_configuration().filter(pk=RUN, lease_token=TOKEN).order_by()
    return held.select_for_update(of=("self",), no_key=True)


HELD = Prepared(_held)
HELD_AGAIN = Prepared(lambda: _held().defer(*LASTING))
"""Without the columns that never change, for a caller that has already read those."""

LOCKED = Prepared(lambda: with_end(CHAIN).filter(pk=RUN).select_for_update(of=("self",), no_key=True).order_by())

CLAIMED = Prepared(lambda: with_end(CHAIN).filter(pk=RUN).select_related("agent", "conversation", "starter").order_by())


# --- Changing ------------------------------------------------------------------------------------


def _claim() -> tuple[QuerySet[Run], dict[str, Any]]:
    seen = Given("mark", UUIDField()), Given("sweeps", IntegerField()), Given("here", CharField())
    return claimable().filter(continuity.intact_by(*seen), pk=RUN), {
        "state": Run.State.RUNNING,
        "waiting_for": "",
        "wake_at": None,
        "lease_token": TOKEN,
        "lease_until": LEASE_ENDS,
        "claimed_at": Now(),
        "started_at": Coalesce("started_at", Now()),
        # Its last worker neither released it nor ended it.
        "workers_lost": Case(When(state=Run.State.RUNNING, then=F("workers_lost") + 1), default=0),
        "updated_at": Now(),
    }


CLAIM = PreparedUpdate(_claim)


@cache
def record_step(*, asks_height: bool, has_cost: bool) -> PreparedUpdate:
    """Add a step to its run's totals. `asks_height`: only if nothing was configured since, and nobody wants the run
    paused; `has_cost`: the cost is known.
    """

    def build() -> tuple[QuerySet[Run], dict[str, Any]]:
        current = Run.objects.filter(pk=RUN, lease_token=TOKEN, cancel_requested_at__isnull=True)
        if asks_height:
            configured = ChainHead.objects.filter(chain=ledger.CONFIGURATION)
            since = Exists(configured.filter(seq__gt=Given("height", IntegerField())))
            current = current.filter(pause_requested_at__isnull=True).exclude(since)
        counted = ("input_tokens", "cached_tokens", "output_tokens")
        return current, {
            "step_count": Given("number", IntegerField()),
            "model_failures": 0,
            "workers_lost": 0,
            "lease_until": LEASE_ENDS,
            "updated_at": Now(),
            **{name: F(name) + Given(name, IntegerField()) for name in counted},
            **({"cost": F("cost") + Given("cost", COST)} if has_cost else {"cost_is_partial": True}),
        }

    return PreparedUpdate(build)


def _park() -> tuple[QuerySet[Run], dict[str, Any]]:
    return Run.objects.filter(pk=RUN, lease_token=TOKEN), {
        "state": Run.State.WAITING,
        "waiting_for": Given("waiting_for", CharField()),
        "wake_at": Given("wake_at", DateTimeField()),
        "lease_token": None,
        "lease_until": None,
        "worked_seconds": worked_seconds(),
        "updated_at": Now(),
    }


PARK = PreparedUpdate(_park)
WAKE = PreparedUpdate(
    lambda: (
        Run.objects.filter(pk=RUN, state=Run.State.WAITING),
        {"wake_at": Given("wake_at", DateTimeField()), "updated_at": Now()},
    )
)
ADD_RUNS = RowInsert(Run)
ADD_STEPS = RowInsert(Step)


@cache
def finish(*, is_held: bool) -> PreparedUpdate:
    """End a run that has not ended. `is_held`: a worker holds it, and its time counts."""

    def build() -> tuple[QuerySet[Run], dict[str, Any]]:
        said = {name: Given(name, TextField()) for name in ("stop_reason", "stop_message", "stop_source", "answer")}
        return Run.objects.filter(pk=RUN).exclude(state__in=Run.FINAL), {
            "state": Given("state", CharField()),
            "waiting_for": "",
            **said,
            "answer_is_partial": Given("answer_is_partial", BooleanField()),
            "worked_seconds": worked_seconds() if is_held else F("worked_seconds"),
            "lease_token": None,
            "lease_until": None,
            "wake_at": None,
            "finished_at": Now(),
            "updated_at": Now(),
        }

    return PreparedUpdate(build)
