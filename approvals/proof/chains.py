"""Whether chains of events hold: each event, its order, the chain's end, and what checkpoints say of it.

Goes through the tables in slices, by chain and place, with a plain cursor and no objects, so that millions of events
take minutes and a worker that dies loses one slice. Concurrent writes are not mistaken for a break: a chain whose parts
disagree is looked at again by itself.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from django.db import connection
from pydantic_core import from_json

from approvals.digest import sha256
from approvals.models import Event
from approvals.proof.columns import found_by
from approvals.proof.merkle import Tree, leaf
from approvals.proof.snapshot import one_moment

GENESIS = "0" * 64
BATCH = 5000
_LOOKS = 3
_COLUMNS = (
    "chain, seq, hash, type, actor, at, body, previous_hash, id, run_id, "
    "actor_key, approval_id, execution_id, tool, risk, took_ms"
)
_COLUMNS_ON_SQLITE = _COLUMNS.replace(" at,", " CAST(at AS TEXT),")
# Keys are compared as digits: reading them so is cheaper than making objects.
_COLUMNS_ON_POSTGRESQL = re.sub(r"\b(\w*id)\b", r"REPLACE(CAST(\1 AS TEXT), '-', '')", _COLUMNS)

type Row = tuple[Any, ...]


@dataclass(frozen=True)
class Neighbour:
    """An event next to a break, for somebody looking for it."""

    seq: int
    type: str
    at: str
    hash: str


@dataclass(frozen=True)
class Break:
    """The first place where a chain does not hold, and how. The event itself, if it exists, is among the neighbours."""

    chain: str
    seq: int
    problem: str
    before: Neighbour | None = field(default=None, compare=False)
    found: Neighbour | None = field(default=None, compare=False)
    after: Neighbour | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Scope:
    """Which chains are looked at: all, one, or those in which something happened within a period."""

    chain: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def where(self) -> tuple[str, list[Any]]:
        if self.chain:
            return "chain = %s", [self.chain]
        bounds = [("at >= %s", self.since), ("at < %s", self.until)]
        given = [(text, connection.ops.adapt_datetimefield_value(at)) for text, at in bounds if at is not None]
        if not given:
            return "1 = 1", []
        within = " AND ".join(text for text, _ in given)
        sql = f"chain IN (SELECT moved.chain FROM approvals_event moved WHERE {within})"  # noqa: S608
        return sql, [value for _, value in given]


@dataclass
class Cursor:
    """How far the walk has come: the last finished chain, and the place in the next one, which may be long."""

    finished: str | None = None
    chain: str | None = None
    seq: int = 0
    hash: str = GENESIS
    tree: list[list[object]] | None = None
    """A half-grown tree, if the last event is within what a checkpoint covers."""


@dataclass(frozen=True)
class Leaf:
    """What a checkpoint covers of a chain."""

    first: int
    last: int
    hash: str
    root: str
    checkpoint: int


@dataclass(frozen=True)
class Head:
    seq: int
    hash: str
    covered: int
    uncovered: bool


class Walk:
    """Goes through chains slice by slice. `held` counts events that hold; a break ends the walk."""

    def __init__(self, scope: Scope | None = None, cursor: Cursor | None = None) -> None:
        self.scope, self.cursor = scope or Scope(), cursor or Cursor()
        self.held = 0
        self.broken: Break | None = None
        self._sure = False
        # The places of events to keep on the way, and those events.
        self.keeps = range(0)
        self.kept: list[Row] = []

    def go_on(self, events: int = BATCH) -> bool:
        """Look at this many more events. False: there are no more, or a break was found."""
        rows = events_after(self.scope, self.cursor, events)
        continues = rows[-1][0] if len(rows) == events else None
        heads, leaves = _known(self.scope, self.cursor.finished, continues)
        by_chain = {chain: list(of_chain) for chain, of_chain in groupby(rows, key=itemgetter(0))}
        begun = self.cursor
        for chain in _in_order(by_chain, heads, leaves, begun):
            at = begun if begun.chain == chain else Cursor(chain=chain)
            self._events(at, by_chain.get(chain, []), leaves.get(chain, []))
            if chain == continues:
                at.finished = self.cursor.finished
                self.cursor = at
            elif self.broken is None:
                self._end(at, heads.get(chain), leaves.get(chain, []))
                self.cursor = Cursor(finished=chain)
            if self.broken is not None:
                self.broken = _with_neighbours(self.broken)
                return False
        return continues is not None

    def _events(self, at: Cursor, rows: list[Row], leaves: list[Leaf]) -> None:
        """Check the next events of a chain, and grow the trees of what is covered."""
        read = _reader()
        ahead = deque(one for one in leaves if one.last > at.seq)
        tree = Tree(at.tree) if at.tree is not None else _caught_up(at, ahead)
        seq, previous = at.seq, at.hash
        for row in rows:
            problem = _problem_of(row, read, seq + 1, previous)
            if problem:
                self.broken = Break(row[0], row[1], problem)
                break
            seq, previous = seq + 1, row[2]
            if seq in self.keeps:
                self.kept.append(row)
            if not ahead:
                continue
            if seq == ahead[0].first:
                tree = Tree()
            if tree is not None:
                tree.add(leaf(bytes.fromhex(previous)))
            if seq == ahead[0].last:
                done = ahead.popleft()
                if tree is None or tree.root.hex() != done.root or previous != done.hash:
                    self.broken = Break(row[0], done.first, _not_covered(done))
                    break
                tree = None
        self.held += seq - at.seq
        at.seq, at.hash, at.tree = seq, previous, tree.state if tree is not None else None

    def _end(self, at: Cursor, head: Head | None, leaves: list[Leaf]) -> None:
        """Compare the end of a chain with what is known of it. To tell concurrent writes from a break, look at the
        chain alone, all of it at one moment.
        """
        self.broken = _problem_of_end(at, head, leaves)
        for _ in range(0 if self._sure else _LOOKS):
            if self.broken is None:
                break
            alone = Walk(Scope(chain=str(at.chain)))
            alone._sure = True
            with one_moment():
                while alone.go_on():
                    pass
            self.broken = alone.broken
            self.held, at.seq = self.held + alone.held - at.seq, alone.held


def verify(chain: str | None = None) -> tuple[int, Break | None]:
    """Recompute one chain or all. Returns how many events hold, and the first break if there is one."""
    walk = Walk(Scope(chain=chain) if chain is not None else None)
    while walk.go_on():
        pass
    return walk.held, walk.broken


def read(chain: str, places: range) -> tuple[int, Break | None, list[Event]]:
    """`verify` for one chain, with its events at some places. In a broken chain these are as they stand."""
    walk = Walk(Scope(chain=chain))
    walk.keeps = places
    while walk.go_on():
        pass
    if walk.broken is None:
        return walk.held, None, [_event(row) for row in walk.kept]
    there = Event.objects.filter(chain=chain, seq__gte=places.start, seq__lt=places.stop).order_by("seq")
    return walk.held, walk.broken, list(there)


def _event(row: Row) -> Event:
    chain, seq, hashed, type_, actor, at, body, previous = row[:8]
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    named = {"chain": chain, "seq": seq, "type": type_, "actor": actor, "at": moment, "body": body}
    return Event(**named, hash=hashed, previous_hash=previous)


def plain(row: Row) -> Row:
    """An event row as PostgreSQL would return it: its moment as text, its keys as hexadecimal digits."""
    return _reader()(row)


# --- One event ---------------------------------------------------------------------------------


def _reader() -> Callable[[Row], Row]:
    return _from_postgresql if connection.vendor == "postgresql" else _from_sqlite


def _from_sqlite(row: Row) -> Row:
    """Moments are read as text, so that a malformed one does not stop the check."""
    return (*row[:5], f"{row[5].replace(' ', 'T')}+00:00", *row[6:])


def _from_postgresql(row: Row) -> Row:
    return (*row[:5], row[5].isoformat(), *row[6:])


def _problem_of(row: Row, read: Callable[[Row], Row], expected_seq: int, previous: str) -> str:
    try:
        return _problem(read(row), expected_seq, previous)
    except (AttributeError, TypeError):  # SQLite stores anything in a column, and a text can say anything
        return "its columns cannot be read"


def _problem(row: Row, expected_seq: int, previous: str) -> str:
    """What is wrong with one event, or an empty text."""
    chain, seq, hash, type_, actor, at, text, previous_hash, id_, *columns = row
    if seq != expected_seq:
        return f"event {expected_seq} is missing"
    if hash != sha256(text):
        return "its text does not match its hash"
    if previous_hash != previous:
        return "it does not follow the event before it"
    try:
        body = from_json(text)  # several times as fast as the library's own
        said = (body["chain"], body["seq"], body["type"], body["actor"], body["previous"], body["at"])
        data = body["data"]
    except ValueError:
        return "its text is not JSON"
    except (KeyError, TypeError):
        return "its columns do not match its text"
    if said != (chain, seq, type_, actor, previous_hash, at):
        return "its columns do not match its text"
    # Older events have no key in their text.
    if "id" in body and str(body["id"]).replace("-", "") != id_:
        return "its key does not match its text"
    wanted = found_by(chain, actor, data)
    if columns == wanted:
        return ""
    wrong = columns[1:] != wanted[1:]
    return "what it is about does not match its text" if wrong else "its run is not the run of its chain"


# --- Where a chain ends ------------------------------------------------------------------------


def _problem_of_end(at: Cursor, head: Head | None, leaves: list[Leaf]) -> Break | None:
    chain, covered = str(at.chain), 0
    known = max(head.seq if head is not None else 0, leaves[-1].last if leaves else 0)
    if known > at.seq:
        return Break(chain, at.seq + 1, f"event {at.seq + 1} is missing")
    if head is None:
        return Break(chain, 1, "nothing is known of its chain")
    if head.seq < at.seq:
        return Break(chain, head.seq + 1, "it was added behind the ledger's back")
    if head.hash != at.hash:
        return Break(chain, at.seq, "it is not the event that its chain ended with")
    for one in leaves:
        if one.first != covered + 1:
            return Break(
                chain, covered + 1, f"checkpoint {one.checkpoint} does not continue where the one before ended"
            )
        covered = one.last
    if (head.covered, bool(head.uncovered)) != (covered, at.seq > covered):
        return Break(chain, at.seq, "the checkpoints said to cover its chain are not those that exist")
    return None


def _not_covered(one: Leaf) -> str:
    which = "it is" if one.first == one.last else f"it and those up to event {one.last} are"
    return f"{which} not what checkpoint {one.checkpoint} vouches for"


def _caught_up(at: Cursor, ahead: Iterable[Leaf]) -> Tree | None:
    """The tree of a checkpoint made while the walk was in the middle of what it covers."""
    first = next(iter(ahead), None)
    if first is None or first.first > at.seq:
        return None
    tree = Tree()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT hash FROM approvals_event WHERE chain = %s AND seq BETWEEN %s AND %s ORDER BY seq",
            [at.chain, first.first, at.seq],
        )
        for (hashed,) in cursor.fetchall():
            tree.add(leaf(bytes.fromhex(hashed)))
    return tree


# --- What is read ------------------------------------------------------------------------------


def events_after(scope: Scope, at: Cursor, number: int) -> list[Row]:
    where, values = scope.where
    if at.chain is not None:
        where, values = f"{where} AND (chain, seq) > (%s, %s)", [*values, at.chain, at.seq]
    elif at.finished is not None:
        where, values = f"{where} AND chain > %s", [*values, at.finished]
    columns = _COLUMNS_ON_POSTGRESQL if connection.vendor == "postgresql" else _COLUMNS_ON_SQLITE
    sql = f"SELECT {columns} FROM approvals_event WHERE {where} ORDER BY chain, seq LIMIT {number:d}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        rows: list[Row] = cursor.fetchall()
        return rows


def _known(scope: Scope, after: str | None, until: str | None) -> tuple[dict[str, Head], dict[str, list[Leaf]]]:
    """The heads and leaves of the chains after one and up to another, in order."""
    where, values = scope.where
    for bound, chain in (("chain > %s", after), ("chain <= %s", until)):
        if chain is not None:
            where, values = f"{where} AND {bound}", [*values, chain]
    heads: dict[str, Head] = {}
    leaves: dict[str, list[Leaf]] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT 0, chain, seq, covered_seq, hash, '', CASE WHEN uncovered THEN 1 ELSE 0 END "  # noqa: S608
            f"FROM approvals_chainhead WHERE {where} UNION ALL "
            f'SELECT 1, chain, "first", "last", hash, root, checkpoint_id FROM approvals_checkpointleaf WHERE {where} '
            "ORDER BY 2, 1, 4",
            [*values, *values],
        )
        for is_leaf, chain, first, last, hashed, root, number in cursor.fetchall():
            if is_leaf:
                leaves.setdefault(chain, []).append(Leaf(first, last, hashed, root, number))
            else:
                heads[chain] = Head(first, hashed, last, bool(number))
    return heads, leaves


def _in_order(there: Collection[str], heads: Collection[str], leaves: Collection[str], at: Cursor) -> Iterator[str]:
    """Every chain that anything is known of, once, in the order of the database, which alone knows how it sorts."""
    waiting, told = deque(chain for chain in heads if chain not in there), set()
    order = {chain: place for place, chain in enumerate(heads)}
    given = [] if at.chain is None or at.chain in there or at.chain in heads else [at.chain]
    for chain in (*given, *there, None):
        while waiting and (chain is None or order[waiting[0]] < order.get(chain, -1)):
            told.add(waiting[0])
            yield waiting.popleft()
        if chain is not None:
            told.add(chain)
            yield chain
    yield from (chain for chain in leaves if chain not in told)


def _with_neighbours(broken: Break) -> Break:
    sql = "SELECT seq, type, at, hash FROM approvals_event WHERE chain = %s AND seq {} %s ORDER BY seq {} LIMIT 1"
    found = []
    with connection.cursor() as cursor:
        for comparison, direction in (("<", "DESC"), ("=", "ASC"), (">", "ASC")):
            cursor.execute(sql.format(comparison, direction), [broken.chain, broken.seq])
            row = cursor.fetchone()
            found.append(Neighbour(row[0], row[1], str(row[2]), row[3]) if row else None)
    return replace(broken, before=found[0], found=found[1], after=found[2])
