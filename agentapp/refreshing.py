"""Asks MCP servers regularly what they offer, and stores their tools. The only writer of SourceHealth.

A new tool is in use at once, and asks: it counts as irreversible until an admin says otherwise. A tool whose contract
has changed is out of use until a person has looked at the difference.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from celery import shared_task
from django.db import IntegrityError
from django.db.models import F, QuerySet
from django.utils import timezone

from agentapp import contracts
from agentapp.deadline import let_go_of_database
from agentapp.models import SourceHealth, Tool, ToolSource
from agentapp.tools import mcp_source
from agentapp.tools.source_changes import source_changed
from approvals import configuration, ledger
from approvals.digest import canonical, sha256, storable_json

if TYPE_CHECKING:
    from agentapp.tools.mcp_connection import Listing

log = logging.getLogger(__name__)

LISTS_WITHIN_SECONDS = 45.0
# Per server, including tools that it no longer lists: rows are kept, and it may rename its tools each time.
MAX_ROWS = 1000
FULL = f"{{}} new tools. At most {MAX_ROWS:,} are kept per server, including those that it no longer lists."


@dataclass(frozen=True)
class Refreshed:
    """The outcome of asking one server."""

    problem: str = ""
    changes: list[configuration.Change] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """The tools whose new contract waits for a person."""
    left_out: list[str] = field(default_factory=list)
    full: str = ""
    """A message that no more of its tools are stored, or empty."""


class Outdated(Exception):
    """The contract that somebody looked at is not the one that waits now."""


@shared_task
def refresh_sources() -> None:
    """Ask each server in its own task, so that one that hangs does not hold up the others."""
    for name in in_use().values_list("name", flat=True):
        source_changed(name)


@shared_task
def refresh_source(name: str) -> None:
    source = in_use().filter(name=name).first()
    if source is not None:
        refresh(source, ledger.actor_of(None, "refresh_sources"))


def in_use() -> QuerySet[ToolSource]:
    """The MCP servers that are asked automatically."""
    return ToolSource.objects.filter(kind=ToolSource.Kind.MCP, enabled=True)


def refresh(source: ToolSource, actor: str, seconds: float = LISTS_WITHIN_SECONDS) -> Refreshed:
    """Ask a server what it offers, and store it. If it cannot be asked, its tools stay as they are."""
    let_go_of_database()
    try:
        refreshed = _write(source, mcp_source.listed(source, seconds), actor)
        contracts.void_outdated()
    except mcp_source.CannotBeAsked as error:
        refreshed = Refreshed(problem=str(error))
    except (contracts.NameTaken, contracts.NotHeld, IntegrityError) as error:
        log.warning("The tools of %s could not be written", source.name, exc_info=True)
        refreshed = Refreshed(problem=f"Its tools could not be written. {error}")
    _note(source, refreshed)
    return refreshed


def seen(tool: Tool) -> str:
    """The digest that identifies the waiting contract on the page that shows it."""
    return sha256(canonical(tool.waiting_contract))


def accept(tool: Tool, digest: str, actor: str) -> int:
    """Accept a contract that somebody has looked at. Returns how many open requests about the old one were set aside.

    Raises Outdated if a different contract waits by now, or none does.
    """
    with configuration.transaction():
        row = Tool.objects.select_for_update(of=("self",), no_key=True).select_related("source").get(pk=tool.pk)
        if row.waiting_contract is None or seen(row) != digest:
            raise Outdated
        contracts.accept(row, actor)
    return contracts.void_outdated()


def _write(source: ToolSource, listing: "Listing", actor: str) -> Refreshed:
    with configuration.transaction():
        source = ToolSource.objects.select_for_update(no_key=True).get(pk=source.pk)
        rows = {row.wire.get("tool"): row for row in Tool.objects.select_related("source").filter(source=source)}
        taken = set(Tool.objects.exclude(source=source).values_list("name", flat=True))
        names = {remote: row.name for remote, row in rows.items()}
        found = mcp_source.offered(source, listing.tools, names, taken)
        new = [tool.name for tool in found.tools if tool.wire["tool"] not in rows]
        too_many = set(new[max(MAX_ROWS - len(rows), 0) :])
        agreed, changes, waiting = [], [], []
        for tool in found.tools:
            if tool.name in too_many:
                continue
            known = rows.get(tool.wire["tool"])
            # Read again: an admin may have accepted the waiting contract meanwhile.
            row = contracts.held(Tool.objects.filter(pk=known.pk)) if known is not None else None
            if row is None or contracts.promises_the_same(row, tool):
                agreed.append(tool)
            else:
                changes.append(contracts.put_before_people(row, tool, actor))
                waiting.append(row.name)
        changes += contracts.write(source, agreed, actor)
        changes += contracts.mark_missing(
            [tool.name for tool in found.tools], Tool.objects.filter(source=source), actor
        )
        source.details = storable_json(listing.details)
        changes.append(configuration.save(source, actor))
    full = FULL.format(len(too_many)) if too_many else ""
    left_out = [*found.left_out, *filter(None, [full])]
    return Refreshed("", [change for change in changes if change], waiting, left_out, full)


def _note(source: ToolSource, refreshed: Refreshed) -> None:
    problem, full = refreshed.problem, refreshed.full and f"Left out: {refreshed.full}"
    failures = F("failures") + 1 if problem else 0
    now = timezone.now()
    noted = {"ok": not problem, "problem": problem or full, "checked_at": now, "failures": failures}
    if not problem:
        noted["seen_at"] = now
    SourceHealth.objects.update_or_create(
        source=source, defaults=noted, create_defaults={**noted, "failures": int(bool(problem))}
    )
