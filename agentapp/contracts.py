"""Turns contracts into rows, whatever their source: the only writer of the contract columns of Tool.

What an admin set is never touched. A changed contract is a new version, and requests about the old one
are set aside: their runs ask again.
"""

import dataclasses
from collections.abc import Collection, Iterable
from decimal import Decimal
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from agentapp import agent_tools, executions, runs, tasks
from agentapp.models import Tool, ToolExecution, ToolSource
from agentapp.tools import base
from agentapp.tools.personal import personal_names
from agentapp.tools.sources import implementation_of
from approvals import configuration, decisions, ledger
from approvals.digest import storable
from approvals.models import Approval, EffectClass

WHY_VOID = "The tool's contract has changed."


# From classes that change nothing to those that cannot be undone.
_BY_SEVERITY = [str(value) for value in EffectClass.values]


class NotHeld(ImproperlyConfigured):
    """A tool says something that no row can hold, or that an admin could not set. The tool stays as it was."""


class NameTaken(ImproperlyConfigured):
    """Another source already has a tool of that name."""


def is_weaker(effect_class: str, than: str) -> bool:
    """Whether the first class claims less harm than the second."""
    return _BY_SEVERITY.index(effect_class) < _BY_SEVERITY.index(than)


def write(source: ToolSource, tools: Iterable[base.Tool], actor: str) -> list[configuration.Change]:
    """Write the contracts of tools of one source. Inside `configuration.transaction`.

    Raises NameTaken if another source has a tool of that name: its settings were made for another tool. A tool may move
    between Python modules, which people here write. Raises NotHeld for what no row can hold.
    """
    changes = []
    for tool in tools:
        row = held(Tool.objects.filter(name=tool.name))
        if row is not None and not _may_be_of(source, row.source):
            of = "the tool that asks an agent" if agent_tools.asks_agent(row) else f"a tool of {row.source.name}"
            raise NameTaken(f"{source.location}: {tool.name!r} is the name of {of}.")
        columns = contract_columns(tool)
        if row is None:
            columns |= {"name": tool.name, **first_safety_columns(tool)}
            row = Tool()
        row.source = source
        for column, value in columns.items():
            setattr(row, column, value)
        _check(row, columns)
        changes.append(configuration.save(row, actor))
    return [change for change in changes if change]


def _check(row: Tool, written: Collection[str]) -> None:
    """Check columns by the rules that the admin and files must meet. Raises NotHeld."""
    # A list or an object may be empty, whatever its form field says.
    passed = {field.name for field in row._meta.fields if getattr(row, field.attname) in field.empty_values}
    passed |= {field.name for field in row._meta.fields} - set(written)
    try:
        row.clean_fields(passed)
        row.validate_constraints()
        for column in written:
            value = getattr(row, column)
            if isinstance(value, str) and storable(value) != value:
                raise ValidationError({column: "The text holds a NUL character or half of a surrogate pair."})
    except ValidationError as error:
        [(column, messages), *_] = error.message_dict.items()
        raise NotHeld(f"The tool {row.name!r} cannot be kept: {column}: {messages[0]}") from error


def held(among: QuerySet[Tool]) -> Tool | None:
    """A row, locked until the transaction ends, so that nothing an admin sets meanwhile is overwritten."""
    return among.select_related("source").select_for_update(of=("self",), no_key=True).first()


def _may_be_of(source: ToolSource, of_now: ToolSource) -> bool:
    both_python = source.kind == of_now.kind == ToolSource.Kind.PYTHON
    return both_python or source.pk == of_now.pk


def promises_the_same(row: Tool, tool: base.Tool) -> bool:
    """Whether a row says about a tool what its source says now. The source's location, set by an admin, is ignored."""
    kept = {column: getattr(row, column) for column in _promise(tool)}
    return {**kept, "wire": {**kept["wire"], "server": ""}} == {**_promise(tool), "wire": {**tool.wire, "server": ""}}


def put_before_people(row: Tool, tool: base.Tool, actor: str) -> configuration.Change | None:
    """Keep a contract that its source changed by itself next to the one in force. The tool is then out of use.

    The row must be `held`.
    """
    row.waiting_contract = {**_promise(tool), "claims": dict(tool.claims)}
    row.missing_since = None
    return configuration.save(row, actor)


def accept(row: Tool, actor: str) -> list[configuration.Change]:
    """Put the waiting contract into force. `void_outdated` then sets aside requests about the old one."""
    implementation = implementation_of(row)
    if row.waiting_contract is None or implementation is None:
        return []
    return write(row.source, [dataclasses.replace(implementation, **row.waiting_contract)], actor)


def _promise(tool: base.Tool) -> dict[str, Any]:
    """What a source that is not our code says about a tool: the columns a person agrees to."""
    return {
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "wire": dict(tool.wire),
    }


def mark_missing(listed: Collection[str], among: QuerySet[Tool], actor: str) -> list[configuration.Change]:
    """Mark the tools that their source no longer lists as gone."""
    changes = []
    for key in list(among.filter(missing_since=None).exclude(name__in=listed).values_list("pk", flat=True)):
        row = held(Tool.objects.filter(pk=key))
        if row is None:
            continue
        row.missing_since = timezone.now()
        changes.append(configuration.save(row, actor))
    return [change for change in changes if change]


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
        "takes_preview": tool.preview is not None,
        "undone_by": tool.undone_by,
        "output_schema": tool.output_schema,
        "business_key_template": tool.business_key,
        "return_direct": tool.return_direct,
        "parameters": {name: dict(declared) for name, declared in tool.parameters.items()},
        "overlap": tool.overlap,
        "wire": dict(tool.wire),
        "claims": dict(tool.claims),
        "waiting_contract": None,
        "version": tool.version,
        "missing_since": None,
    }


def first_safety_columns(tool: base.Tool) -> dict[str, Any]:
    """What a new row begins with. A tool that does not say what it does is assumed to do the worst."""
    return {
        "effect_class": tool.effect or EffectClass.IRREVERSIBLE,
        "timeout_seconds": tool.timeout,
        "max_attempts": tool.max_attempts,
        "idempotency": tool.idempotency,
        "repeatable": tool.repeatable,
        "additional_arguments": tool.additional_arguments,
        "cost_per_call": Decimal(str(tool.cost)),
        "result_max_kb": tool.result_max_kb,
        "stop_on_failure": tool.stop_on_failure,
        "trust": tool.trust,
        "locked_fields": list(tool.locked),
        "secret_fields": list(tool.secret),
        "pii_fields": _personal(tool),
        "owner": tool.owner,
    }


def _personal(tool: base.Tool) -> list[str]:
    """Fields marked in code, and those whose schema says so: `x-pii`, or a format of personal data."""
    return list(dict.fromkeys([*tool.pii, *personal_names(tool.input_schema), *personal_names(tool.output_schema)]))


def void_outdated() -> int:
    """Set aside the open requests about contracts that have changed. Returns how many there were.

    Each takes its own lock on its run, outside any transaction. The next call finds what a crash leaves.
    """
    return sum(_set_aside(approval) for approval in outdated())


def outdated() -> QuerySet[Approval]:
    """Open requests about a contract that is no longer the tool's."""
    changed = Tool.objects.filter(name=OuterRef("tool")).exclude(version=OuterRef("tool_version"))
    return Approval.objects.filter(Exists(changed), state__in=Approval.OPEN, used_at__isnull=True)


def _set_aside(approval: Approval) -> bool:
    """Void one request and let its run ask again. False: it was closed or used just now."""
    with ledger.transaction():
        run = runs.lock(approval.run_id)
        is_still_open = outdated().filter(pk=approval.pk).exists()
        if run is None or not is_still_open or not decisions.supersede(approval, WHY_VOID):
            return False
        execution = ToolExecution.objects.filter(approval=approval, state=ToolExecution.State.WAITING).first()
        if execution is not None:
            executions.set_aside(execution, WHY_VOID)
        # At once: the worker checks again under the lock.
        runs.wake(run, runs.with_configuration().get(pk=run.pk).database_now)  # type: ignore[attr-defined]
        transaction.on_commit(partial(tasks.nudge, run.pk), robust=True)
    return True
