"""What was found in the trail, as a file: JSON lines for programs, CSV for spreadsheets.

Rows are read in batches, oldest first, so that memory does not grow with them and the first bytes come at once. Each
file ends with a manifest: the number of events, the digest of the bytes, and a signature that anybody can check.
"""

import csv
import io
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from agentapp.audit import names
from agentapp.audit.cells import inert
from agentapp.audit.query import TEXT, Query, Term
from agentapp.deadline import let_go_of_database
from approvals import ledger
from approvals.digest import canonical, load
from approvals.models import Event
from approvals.proof.manifest import Manifest

AT_ONCE = 5000
COLUMNS = (
    "time", "actor", "type", "tool", "risk", "took_ms", "run", "approval", "execution", "data", "chain", "seq",
    "hash", "previous_hash", "id",
)  # fmt: skip
CSV_NAME, MANIFEST_NAME = "events.csv", "manifest.json"
_READ = (
    "at", "id", "actor", "type", "tool", "risk", "took_ms", "run_id", "approval_id", "execution_id", "body", "chain",
    "seq", "hash", "previous_hash",
)  # fmt: skip
HIDDEN: dict[str, Any] = {}
"""Replaces a row that the exporting person may not see."""
CUSTOMER = "customer"
_HIDDEN_LINE = canonical({"kind": "hidden"}) + "\n"


@dataclass(frozen=True)
class Export:
    """Which events, the query that found them, and who exports them, as the ledger names people."""

    found: QuerySet[Event]
    filter: dict[str, Any]
    by: str
    veil: Callable[[Sequence[Event]], set[uuid.UUID]] | None = None
    """Which of some events this person may not see. The file marks them, so that there are no silent gaps."""
    succession: Sequence[Mapping[str, str]] = ()
    """The chain of keys up to the one that signs it."""


def note(user: User, asked: Query, kind: str) -> None:
    """Put on record that somebody exports a file. Their query may contain personal data."""
    terms = [str(_on_record(term, user)) for term in asked.terms if term.word != TEXT]
    data = {"filter": " ".join(terms), "words": len(asked.terms) - len(terms), "format": kind}
    with ledger.transaction():
        ledger.record(ledger.CONFIGURATION, "trail.exported", data, ledger.actor_of(user))


def _on_record(term: Term, user: User) -> Term:
    """A condition in a form that may stay for ever: people by their keys, as for actors, and no customer by name."""
    if term.word != "who":
        return term
    keys: list[str] = []
    for value in term.values:
        is_customer = value.partition(":")[0].lower() == CUSTOMER
        keys += [CUSTOMER] if is_customer else names.actors(value, user)
    return replace(term, values=tuple(dict.fromkeys(keys)))


def json_lines(export: Export) -> Iterator[bytes]:
    """One event per line, its text exactly as it was hashed, with the manifest last."""
    manifest = _manifest(export)
    for stretch in _stretches(export):
        lines = io.StringIO()
        for row in stretch:
            if row is HIDDEN:
                lines.write(_HIDDEN_LINE)
                continue
            manifest.note(row["hash"])
            lines.write(_line(row))
        yield manifest.feed(lines.getvalue().encode())
    yield manifest.finish().encode()


def zipped_csv(export: Export) -> Iterator[bytes]:
    """An archive with `events.csv` and a `manifest.json` over its bytes."""
    manifest, sink = _manifest(export), _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(CSV_NAME, "w", force_zip64=True) as file:
            file.write(manifest.feed(_csv([COLUMNS])))
            for stretch in _stretches(export):
                for row in stretch:
                    if row is not HIDDEN:
                        manifest.note(row["hash"])
                file.write(manifest.feed(_csv([_cells(row) for row in stretch])))
                yield sink.taken()
        archive.writestr(MANIFEST_NAME, manifest.finish())
        yield sink.taken()
    yield sink.taken()


def _manifest(export: Export) -> Manifest:
    return Manifest(export.filter, export.by, succession=export.succession)


def _stretches(export: Export) -> Iterator[list[dict[str, Any]]]:
    found, after = export.found, Q()
    while True:
        stretch = list(found.filter(after).order_by("at", "id").values(*_READ)[:AT_ONCE])
        if stretch:
            told = _veiled(export, stretch)
            # The client may read the file slowly, or not at all.
            let_go_of_database()
            yield told
        if len(stretch) < AT_ONCE:
            return
        at, key = stretch[-1]["at"], stretch[-1]["id"]
        after = Q(at__gte=at) & (Q(at__gt=at) | Q(id__gt=key))


def _veiled(export: Export, stretch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if export.veil is None:
        return stretch
    hidden = export.veil([Event(pk=row["id"], run_id=row["run_id"]) for row in stretch])
    return [HIDDEN if row["id"] in hidden else row for row in stretch]


def _line(row: dict[str, Any]) -> str:
    said = {"kind": "event", "id": str(row["id"]), "chain": row["chain"], "seq": row["seq"]}
    return canonical({**said, "hash": row["hash"], "body": row["body"]}) + "\n"


def _cells(row: dict[str, Any]) -> list[Any]:
    if row is HIDDEN:
        return ["", "", "An event you may not see", *[""] * (len(COLUMNS) - 3)]
    data = canonical(load(row["body"])["data"])
    keys = [str(row[name] or "") for name in ("run_id", "approval_id", "execution_id")]
    words = [inert(row[name]) for name in ("actor", "type", "tool", "risk")]
    place = [inert(row["chain"]), row["seq"], row["hash"], row["previous_hash"], str(row["id"])]
    took = "" if row["took_ms"] is None else row["took_ms"]
    return [row["at"].isoformat(), *words, took, *keys, inert(data), *place]


def _csv(rows: list[Any]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(rows)
    return written.getvalue().encode()


class _Sink(io.RawIOBase):
    """A buffer that an archive is written to and read from piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._pieces.append(bytes(content))
        return len(content)

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)
