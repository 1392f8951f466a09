"""The whole ledger as JSON lines, for `verify_export.py` and for anyone who keeps a copy elsewhere.

Checkpoints, what they cover, the ends of chains, the line `events`, the events as the table has them, and the manifest
with the keys. A column changed by hand is exported as changed, so that a verifier sees it. It is read at one moment and
written as it is read, however large it is.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from approvals.models import Checkpoint, LedgerKey
from approvals.proof import chains, keys
from approvals.proof.manifest import Manifest
from approvals.proof.snapshot import one_moment
from approvals.streaming import streamed

VERSION = 1
_AT_ONCE = 2000


def lines(by: str) -> Iterator[bytes]:
    """Every line of a whole export, the manifest last. Raises signing_key.NoKey."""
    keys.introduce()
    with one_moment():
        manifest = Manifest({}, by, [_key(row) for row in LedgerKey.objects.order_by("number")])
        yield manifest.feed(_line({"kind": "ledger", "version": VERSION}))
        for checkpoint in _checkpoints():
            yield manifest.feed(_line(checkpoint))
        for leaf in _rows("approvals_checkpointleaf", _LEAF, "checkpoint_id, position"):
            yield manifest.feed(_line({"kind": "leaf", **leaf}))
        for head in _rows("approvals_chainhead", _HEAD, "chain"):
            yield manifest.feed(_line({"kind": "head", **head}))
        yield manifest.feed(_line({"kind": "events"}))
        for row in _events():
            manifest.note(str(row["hash"]))
            yield manifest.feed(_line({"kind": "event", **row}))
    yield manifest.finish().encode()


def event_line(row: chains.Row) -> dict[str, Any]:
    """One event as an export contains it, from a row of `chains`."""
    told = dict(zip(_EVENT, chains.plain(row), strict=True))
    told["id"] = _dashed(told["id"])
    return told


_LEAF = {"checkpoint": "checkpoint_id", "chain": "chain", "first": '"first"', "last": '"last"', "hash": "hash",
         "root": "root"}  # fmt: skip
_HEAD = {"chain": "chain", "seq": "seq", "hash": "hash"}
# Events are found by the last seven. Keys there are hexadecimal digits.
_EVENT = (
    "chain", "seq", "hash", "type", "actor", "at", "body", "previous", "id", "run", "actor_key", "approval",
    "execution", "tool", "risk", "took_ms",
)  # fmt: skip


def _line(told: dict[str, Any]) -> bytes:
    return f"{json.dumps(told, ensure_ascii=False, separators=(',', ':'), default=str)}\n".encode("utf-8", "replace")


def _key(row: LedgerKey) -> dict[str, str]:
    said = {"statement": row.statement, "signature": row.signature, "endorsement": row.endorsement}
    return {"key_id": row.key_id, "public_key": row.public_key, **said}


def _checkpoints() -> Iterator[dict[str, Any]]:
    with streamed(Checkpoint.objects.order_by("number"), _AT_ONCE) as rows:
        for row in rows:
            yield {"kind": "checkpoint", "statement": row.statement, "signature": row.signature}


def _rows(table: str, columns: dict[str, str], order: str) -> Iterator[dict[str, Any]]:
    """Some columns of a table. The names are our own."""
    sql = f"SELECT {', '.join(columns.values())} FROM {table} ORDER BY {order}"  # noqa: S608
    with _streamed(sql) as rows:
        for row in rows:
            yield dict(zip(columns, row, strict=True))


def _events() -> Iterator[dict[str, Any]]:
    cursor = chains.Cursor()
    while rows := chains.events_after(chains.Scope(), cursor, _AT_ONCE):
        for row in rows:
            yield event_line(row)
        cursor = chains.Cursor(chain=rows[-1][0], seq=rows[-1][1])


@contextmanager
def _streamed(sql: str) -> Iterator[Iterator[tuple[Any, ...]]]:
    """Rows as they are read. Without a server-side cursor, PostgreSQL's client would load all of them at once."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql)

        def every() -> Iterator[tuple[Any, ...]]:
            while found := cursor.fetchmany(_AT_ONCE):
                yield from found

        yield every()


def _dashed(key: Any) -> Any:
    """A key in hexadecimal digits as it is usually written. Anything else stays as it is, so that it is found."""
    if not isinstance(key, str) or len(key) != 32:
        return key
    return "-".join((key[:8], key[8:12], key[12:16], key[16:20], key[20:]))
