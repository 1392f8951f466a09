"""What the ledger announces on commit: LISTEN on PostgreSQL, polling the file on SQLite."""

import asyncio
import contextlib
import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections

from agentapp.postgresql import past_poolers
from approvals.append_only import ANNOUNCED_ON, TABLE
from approvals.clock import Now
from approvals.models import Event

log = logging.getLogger(__name__)

POLL_SECONDS = 0.15
RETRY_SECONDS = 1.0
# An announcement names a chain; its new events are among the most recent ones.
RECENT = timedelta(seconds=30)
# A payload with this prefix is not a chain: the text that a model is writing for a step has changed.
DRAFT = "draft:"
# Announcements that arrive within this time are looked up together.
GATHER_SECONDS = 0.02


@dataclass(frozen=True)
class Fact:
    """One event, as far as a nudge needs it."""

    chain: str
    type: str


# Published when something may have been missed: every subscriber looks again.
EVERYTHING = Fact("", "")

type Publish = Callable[[Iterable[Fact]], None]


async def listen(publish: Publish) -> None:
    """Publish the facts of every committed transaction until cancelled. Reconnects by itself, then says EVERYTHING."""
    follow = _follow_postgresql if connections["default"].vendor == "postgresql" else _follow_sqlite
    while True:
        try:
            await follow(publish)
        except (DatabaseError, psycopg.Error, sqlite3.Error, OSError) as error:
            log.warning("The live stream lost its database connection and will try again: %s", error)
        await asyncio.sleep(RETRY_SECONDS)


async def _follow_postgresql(publish: Publish) -> None:
    connection = await psycopg.AsyncConnection.connect(**past_poolers(), autocommit=True)
    async with connection:
        await connection.execute(f"LISTEN {ANNOUNCED_ON}")
        # For anything committed while nobody listened.
        publish([EVERYTHING])
        while True:
            # One reader at a time: the connection is locked while it waits.
            chains = {notice.payload async for notice in connection.notifies(stop_after=1)}
            await asyncio.sleep(GATHER_SECONDS)
            chains |= {notice.payload async for notice in connection.notifies(timeout=0)}
            written = {chain for chain in chains if chain.startswith(DRAFT)}
            publish(Fact(chain, "draft") for chain in written)
            if chains - written:
                publish(await sync_to_async(_recent, thread_sensitive=False)(chains - written))


def _recent(chains: set[str]) -> list[Fact]:
    """The latest events of some chains: all that were announced, perhaps with some already published."""
    close_old_connections()
    try:
        events = Event.objects.filter(chain__in=chains, at__gte=Now() - RECENT).order_by()
        return [Fact(chain, type_) for chain, type_ in events.values_list("chain", "type").distinct()]
    finally:
        connections.close_all()


async def _follow_sqlite(publish: Publish) -> None:
    """Check whether another connection has written. SQLite has one writer, so row ids come in order, without gaps."""
    path = connections["default"].settings_dict["NAME"]
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as database:
        seen, last = _one(database, "PRAGMA data_version"), _last(database)
        written: dict[str, str] = {}
        publish([EVERYTHING])
        while True:
            await asyncio.sleep(POLL_SECONDS)
            version = _one(database, "PRAGMA data_version")
            if version == seen:
                continue
            seen = version
            rows = database.execute(f"SELECT rowid, chain, type FROM {TABLE} WHERE rowid > ?", [last]).fetchall()  # noqa: S608
            if rows:
                last = max(row[0] for row in rows)
                publish([Fact(chain, type_) for chain, type_ in dict.fromkeys(row[1:] for row in rows)])
            drafts = dict(database.execute("SELECT run_id, updated_at FROM agentapp_draft").fetchall())
            publish([Fact(f"{DRAFT}{uuid.UUID(run)}", "draft") for run, at in drafts.items() if written.get(run) != at])
            written = drafts
            if not rows and _last(database) < last:
                # The table was emptied, as between tests.
                last = _last(database)


def _last(database: sqlite3.Connection) -> int:
    return int(_one(database, f"SELECT coalesce(max(rowid), 0) FROM {TABLE}"))  # noqa: S608


def _one(database: sqlite3.Connection, query: str) -> Any:
    return database.execute(query).fetchone()[0]
