"""Contracts from code into rows: the only writer of ToolSource and of the contract columns of Tool.

What an admin set is never touched. A contract that changed is a new version, and requests about
the old one are set aside: their runs ask again.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone
from django.utils.text import slugify

from agentapp import agent_tools, executions, runs, tasks
from agentapp.models import Tool, ToolExecution, ToolSource
from agentapp.tools import base, python_source
from approvals import configuration, decisions, ledger
from approvals.models import Approval, EffectClass

WHY_VOID = "The tool's contract has changed."

# From what changes nothing to what cannot be taken back.
_BY_SEVERITY = [str(value) for value in EffectClass.values]


@dataclass(frozen=True)
class Synced:
    """What a sync did: what changed, how many requests it set aside, and what an admin should look at."""

    changes: list[configuration.Change]
    voided: int
    warnings: list[str]


def is_weaker(effect_class: str, than: str) -> bool:
    """Whether the first says that a call does less harm than the second does."""
    return _BY_SEVERITY.index(effect_class) < _BY_SEVERITY.index(than)


def sync(actor: str, dry_run: bool = False) -> Synced:
    """Write the contracts of every tool in TOOL_MODULES. A dry run reports the same and changes nothing.

    Raises ImproperlyConfigured when a module cannot be read, or a name is taken; nothing is written then.
    """
    found = python_source.modules()
    changes: list[configuration.Change] = []
    with configuration.transaction(dry_run):
        for module, tools in found.items():
            changes += _sync_module(module, tools, actor)
        changes += _mark_missing({tool.name for tools in found.values() for tool in tools}, actor)
        changes += _sync_agents(actor)
        voided, warnings = _outdated().count(), _weaker_than_declared()
    if not dry_run:
        # Each with its own lock on its run; what a crash leaves is found by the next sync.
        voided = sum(_set_aside(approval) for approval in _outdated())
    return Synced(changes, voided, warnings)


def contract_columns(tool: base.Tool) -> dict[str, Any]:
    """The columns that belong to code."""
    return {
        "description": tool.description,
        "input_schema": tool.input_schema,
        "title_template": tool.title,
        "sentence_template": tool.sentence,
        "effects_template": [dataclasses.asdict(line) for line in tool.effects],
        "button_template": tool.button,
        "confirm_template": tool.confirm,
        "declared_effect_class": tool.effect or "",
        "takes_snapshot": tool.snapshot is not None,
        "output_schema": tool.output_schema,
        "business_key_template": tool.business_key,
        "return_direct": tool.return_direct,
        "version": tool.version,
        "missing_since": None,
    }


def first_safety_columns(tool: base.Tool) -> dict[str, Any]:
    """What a new row begins with. A tool that does not say what it does is taken to do the worst."""
    return {
        "effect_class": tool.effect or EffectClass.IRREVERSIBLE,
        "timeout_seconds": tool.timeout,
        "max_attempts": tool.max_attempts,
        "idempotency": tool.idempotency,
        "repeatable": tool.repeatable,
        "additional_arguments": tool.additional_arguments,
        "cost_per_call": tool.cost,
        "result_max_kb": tool.result_max_kb,
        "stop_on_failure": tool.stop_on_failure,
        "trust": tool.trust,
        "locked_fields": list(tool.locked),
        "secret_fields": list(tool.secret),
        "owner": tool.owner,
    }


def _sync_module(module: str, tools: list[base.Tool], actor: str) -> list[configuration.Change]:
    source = ToolSource.objects.filter(kind="python", location=module).first()
    changes = []
    if source is None:
        source = ToolSource(name=slugify(module.replace(".", "-"))[-80:], kind="python", location=module)
        changes.append(configuration.save(source, actor))
    for tool in tools:
        row = Tool.objects.select_related("source").filter(name=tool.name).first()
        if agent_tools.asks_agent(row):
            raise ImproperlyConfigured(f"{module}: {tool.name!r} is the name of the tool that asks an agent.")
        if row is None:
            row = Tool(name=tool.name, **first_safety_columns(tool))
        row.source = source
        for column, value in contract_columns(tool).items():
            setattr(row, column, value)
        changes.append(configuration.save(row, actor))
    return [change for change in changes if change]


def _sync_agents(actor: str) -> list[configuration.Change]:
    try:
        return agent_tools.sync(actor)
    except agent_tools.NameTaken as taken:
        raise ImproperlyConfigured(str(taken)) from taken


def _mark_missing(listed: set[str], actor: str) -> list[configuration.Change]:
    changes = []
    for row in Tool.objects.filter(source__kind="python", missing_since=None).exclude(name__in=listed):
        row.missing_since = timezone.now()
        changes.append(configuration.save(row, actor))
    return [change for change in changes if change]


def _weaker_than_declared() -> list[str]:
    return [
        f"{tool.name} is declared {tool.declared_effect_class} in code, but set to {tool.effect_class}."
        for tool in Tool.objects.filter(missing_since=None).exclude(declared_effect_class="")
        if is_weaker(tool.effect_class, tool.declared_effect_class)
    ]


def _outdated() -> QuerySet[Approval]:
    """Open requests about a contract that is no longer the tool's."""
    changed = Tool.objects.filter(name=OuterRef("tool")).exclude(version=OuterRef("tool_version"))
    return Approval.objects.filter(Exists(changed), state__in=Approval.OPEN, used_at__isnull=True)


def _set_aside(approval: Approval) -> bool:
    """Void one request and let its run ask again. False: it was closed or used just now."""
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        if run is None or not decisions.supersede(approval, WHY_VOID):
            return False
        execution = ToolExecution.objects.filter(approval=approval, state=ToolExecution.State.WAITING).first()
        if execution is not None:
            executions.set_aside(execution, WHY_VOID)
        # At once; the worker looks again under the lock.
        runs.wake(run, runs.with_configuration().get(pk=run.pk).database_now)  # type: ignore[attr-defined]
        transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    return True
