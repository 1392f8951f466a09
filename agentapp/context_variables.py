"""What an agent always knows about its customer: the values, and which must be read again. Reads only.

A value is the result of an ordinary tool call: proposed, judged and run by the executor, and marked with the
variable's name. Nothing here calls a tool.
"""

import uuid
from collections.abc import Sequence
from datetime import timedelta

from django.db.models import Q

from agentapp import starters
from agentapp.messages import ToolCall
from agentapp.models import ContextVariable, Run, ToolExecution
from agentapp.tools.arguments import effective
from approvals.clock import Now
from approvals.digest import canonical, sha256
from approvals.models import EffectClass

_OK = ToolExecution.ResultStatus.OK


def stale(run: Run) -> list[ToolCall]:
    """The calls that read what is missing or too old, for a driver to propose. A read that failed in this run is not
    tried again in it. Two queries; one for an agent without variables.
    """
    variables = _of(run)
    if not variables:
        return []
    fresh = _fresh(run, variables)
    failed = set(
        run.executions.filter(variable__in=[variable.name for variable in variables])
        .exclude(result_status=_OK)
        .values_list("variable", flat=True)
    )
    return [
        ToolCall(f"variable_{uuid.uuid4().hex[:12]}", variable.tool.name, canonical(variable.arguments), variable.name)
        for variable in variables
        if variable.name not in fresh and variable.name not in failed
    ]


def values(run: Run) -> dict[str, ToolExecution]:
    """The calls whose results are the current values, by variable: each with its value, and how far to trust it.

    A value that is too old does not count. Three queries; one for an agent without variables.
    """
    variables = _of(run)
    return _fresh(run, variables) if variables else {}


def _of(run: Run) -> list[ContextVariable]:
    """The agent's variables whose tools only read, according to their current settings, and may be called in this run:
    what another run has read with a tool that is kept to it is not told here.
    """
    rows = ContextVariable.objects.filter(agent=run.agent_id, tool__effect_class=EffectClass.READ)
    found = list(rows.select_related("tool").order_by("name"))
    if run.is_mocked or not found:
        return found
    barred = starters.barred(run.starter_id, [variable.tool for variable in found])
    return [variable for variable in found if variable.tool.name not in barred]


def _fresh(run: Run, variables: Sequence[ContextVariable]) -> dict[str, ToolExecution]:
    wanted = Q(pk__in=[])
    for variable in variables:
        wanted |= _counts(run, variable)
    ok = ToolExecution.objects.filter(wanted, run__agent=run.agent_id, result_status=_OK, mocked=run.is_mocked)
    return {row.variable: row for row in ok.select_related("tool").order_by("finished_at", "pk")}


def _counts(run: Run, variable: ContextVariable) -> Q:
    """The calls that give a variable its value: with exactly its tool and arguments, recent enough, for this customer.

    For a customer without a name only this run's calls count: others might be another customer's. What this run's last
    step has just read counts once, however soon it expires: otherwise the run would do nothing but read.
    """
    digest = sha256(canonical(effective(variable.tool, variable.arguments)))
    its = Q(variable=variable.name, tool=variable.tool, arguments_digest=digest)
    if variable.freshness_seconds is None or run.is_mocked:
        return its & Q(run=run)
    recent = Q(finished_at__gt=Now() - timedelta(seconds=variable.freshness_seconds))
    of_customer = Q(run__customer=run.customer) if run.customer else Q(run=run)
    return its & (recent & of_customer | Q(run=run, step__number=run.step_count))
