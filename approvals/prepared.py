"""Statements that are built once and run again and again, each time with other values.

Django turns a queryset into SQL every time it is used. That took more than half of a worker's time for a step.

    due = Prepared(lambda: Run.objects.filter(pk=Given("run", UUIDField())).select_related("agent"))
    due.rows(run=run_id)

A value that changes is `Given`; all others are the same each time. Reading returns the rows that the queryset would;
changing returns the number of rows.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression, Field, Model, QuerySet
from django.db.models.sql import InsertQuery, Query, UpdateQuery
from django.db.models.sql.compiler import SQLCompiler

MOST_PREPARED = 4
"""The most rows that one statement writes. More at once are rare, and each number of rows needs another statement."""


class Given(Expression):
    """A value given when the statement is run, in the form of a field. None is compared as NULL."""

    def __init__(self, name: str, output_field: "Field[Any, Any]") -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        return "%s", (self,)


@dataclass(frozen=True)
class _Statement:
    """The statement for one kind of database, with the places where values go."""

    sql: str
    params: tuple[Any, ...]
    names: frozenset[str]
    compiler: SQLCompiler

    @classmethod
    def of(cls, compiler: SQLCompiler) -> "_Statement":
        made = compiler.as_sql()
        # Inserting rows could take several statements; a few rows need one.
        sql, found = made[0] if isinstance(made, list) else made
        params: tuple[Any, ...] = tuple(found)
        return cls(sql, params, frozenset(each.name for each in params if isinstance(each, Given)), compiler)

    def filled(self, given: Mapping[str, Any]) -> tuple[Any, ...]:
        """Raises TypeError if the values given are not those the statement needs."""
        if given.keys() != self.names:
            raise TypeError(f"This statement needs {sorted(self.names)}, not {sorted(given)}.")
        connection = _connection()
        return tuple(
            each.output_field.get_db_prep_save(given[each.name], connection) if isinstance(each, Given) else each
            for each in self.params
        )


class _Kept[T]:
    """Something for each kind of database, made on first use because there is no connection before."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[str, T] = {}
        self._lock = Lock()

    def get(self) -> T:
        made = self._made.get(_connection().vendor)
        if made is None:
            with self._lock:
                made = self._made.setdefault(_connection().vendor, self._make())
        return made


class Prepared[T]:
    """A query that returns rows: models with what is read along with them, or what `values_list` gives."""

    def __init__(self, build: Callable[[], "QuerySet[Any, T]"]) -> None:
        self._kept = _Kept(partial(self._prepare, build))

    @staticmethod
    def _prepare(build: Callable[[], "QuerySet[Any, T]"]) -> tuple["QuerySet[Any, T]", _Statement, Any]:
        found = build()
        # Locks need a transaction, so a statement that takes them can be compiled only within one.
        compiler = found.query.get_compiler(connection=_connection())
        statement = _Statement.of(compiler)
        return found, statement, compiler.get_converters([each for each, *_ in compiler.select[: compiler.col_count]])

    def rows(self, **given: Any) -> list[T]:
        """Run the query. Raises TypeError if the values given are not those it needs."""
        kept, statement, converters = self._kept.get()
        if kept.query.select_for_update and _connection().get_autocommit():
            raise transaction.TransactionManagementError("Rows can only be locked within a transaction.")
        asked, compiler = kept.all(), copy(statement.compiler)
        compiler.connection = _connection()
        filled = statement.filled(given)
        _stand_in(compiler, "as_sql", lambda *_, **__: (statement.sql, filled))
        _stand_in(compiler, "get_converters", lambda *_: converters)
        _stand_in(asked.query, "get_compiler", lambda *_, **__: compiler)
        return list(asked)

    def first(self, **given: Any) -> T | None:
        """The first row. It must be the only one, or the queryset must be sliced. None if there is none."""
        return next(iter(self.rows(**given)), None)


class _Change:
    """A statement that changes something."""

    def __init__(self, build: Callable[[], Query]) -> None:
        self._kept = _Kept(lambda: _Statement.of(build().get_compiler(connection=_connection())))

    def __call__(self, **given: Any) -> int:
        """Run it. Returns the number of rows. Raises TypeError if the values given are not those it needs."""
        statement = self._kept.get()
        filled = statement.filled(given)
        with transaction.mark_for_rollback_on_error(), _connection().cursor() as cursor:
            cursor.execute(statement.sql, filled)
            return int(cursor.rowcount)


class PreparedUpdate(_Change):
    """Changes all rows of a queryset in one statement."""

    def __init__(self, build: Callable[[], tuple["QuerySet[Any]", Mapping[str, Any]]]) -> None:
        super().__init__(lambda: self._query(*build()))

    @staticmethod
    def _query(among: "QuerySet[Any]", values: Mapping[str, Any]) -> UpdateQuery:
        query = cast(UpdateQuery, among.query.chain(UpdateQuery))
        query.add_update_values(dict(values))
        return query


class PreparedInsert(_Change):
    """Inserts rows into a table in one statement. Each row is given as its columns' values by field name."""

    def __init__(
        self, model: type[Model], fields: Sequence["Field[Any, Any]"], rows: Sequence[Mapping[str, Any]]
    ) -> None:
        super().__init__(lambda: self._query(model, fields, rows))

    @staticmethod
    def _query(
        model: type[Model], fields: Sequence["Field[Any, Any]"], rows: Sequence[Mapping[str, Any]]
    ) -> InsertQuery:
        query = InsertQuery(model)
        # Raw: values are taken as given and not passed to the fields, which have already seen the rows.
        objects = [cast(Model, SimpleNamespace(**row)) for row in rows]
        query.insert_values(fields, objects, raw=True)
        return query


def is_asked(value: Any) -> bool:
    """Whether the database computes this value."""
    return hasattr(value, "resolve_expression")


def _connection() -> BaseDatabaseWrapper:
    # The connection itself, not its proxy, which is asked for every column of every row.
    return connections[DEFAULT_DB_ALIAS]


def _stand_in(thing: object, name: str, does: Callable[..., Any]) -> None:
    """Override a method of one object that nobody else holds."""
    setattr(thing, name, does)
