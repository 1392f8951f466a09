"""Writes rows that were changed in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Case, Expression, Field, Model, QuerySet, Value, When
from django.db.models.functions import Cast

from approvals.prepared import MOST_PREPARED, Given, PreparedUpdate, is_asked

MOST_KEPT = 200
"""The most statements to keep: each set of columns shared by rows needs another one."""


class RowUpdate[T: Model]:
    """Writes some fields of rows in memory, for those still among a queryset. For a few rows, which is the usual case,
    the statement is built only once.
    """

    def __init__(self, among: Callable[[], QuerySet[T]], fields: Sequence[str]) -> None:
        self._among, self._fields = among, fields
        self._prepared: dict[tuple[Any, ...], PreparedUpdate] = {}

    def __call__(self, rows: Sequence[T]) -> int:
        """Write the rows in one statement. Returns how many."""
        if not 0 < len(rows) <= MOST_PREPARED:
            return update_rows(self._among(), rows, self._fields)
        columns = _columns(rows, self._fields)
        asked = (len(rows), *(tuple(each if is_asked(each) else None for each in column.told) for column in columns))
        update = self._prepared.get(asked)
        if update is None:
            if len(self._prepared) >= MOST_KEPT:
                return update_rows(self._among(), rows, self._fields)
            update = self._prepared.setdefault(asked, self._prepare(type(rows[0]), len(rows), columns))
        given = {
            column.place(n): each
            for column in columns
            for n, each in enumerate(column.told)
            if not is_asked(each)
        }  # fmt: skip
        return update(**given, **{f"pk_{n}": row.pk for n, row in enumerate(rows)})

    def _prepare(self, model: type[T], count: int, columns: "Sequence[_Column]") -> PreparedUpdate:
        keys = [Given(f"pk_{n}", model._meta.pk) for n in range(count)]
        places = [
            [each if is_asked(each) else Given(column.place(n), column.field) for n, each in enumerate(column.told)]
            for column in columns
        ]
        written = {
            column.field.attname: column.written(keys, told) for column, told in zip(columns, places, strict=True)
        }
        return PreparedUpdate(lambda: (self._among().filter(pk__in=keys), written))


def update_rows[T: Model](among: QuerySet[T], rows: Sequence[T], fields: Sequence[str]) -> int:
    """Write these fields of the rows still among a queryset, in one statement. Returns how many."""
    if not rows:
        return 0
    keys, written = [row.pk for row in rows], {}
    for column in _columns(rows, fields):
        told = column.told if len(column.told) == 1 else [_valued(each, column.field) for each in column.told]
        written[column.field.attname] = column.written(keys, told)
    return among.filter(pk__in=keys).update(**written)


@dataclass(frozen=True)
class _Column:
    """What is written to one field: one value if all rows share it, otherwise one for each.

    The statement names a value per row only where rows differ. Building that takes longer than running it, and most of
    what is written for the calls of a step is shared.
    """

    field: "Field[Any, Any]"
    told: Sequence[Any]

    def place(self, n: int) -> str:
        return f"{self.field.attname}_{n}"

    def written(self, keys: Sequence[Any], told: Sequence[Any]) -> Any:
        """What the column is set to, given these values or their placeholders."""
        if len(told) == 1:
            return told[0]
        cases = (When(pk=key, then=each) for key, each in zip(keys, told, strict=True))
        case = Case(*cases, output_field=self.field)
        return Cast(case, output_field=self.field) if connection.features.requires_casted_case_in_updates else case


def _columns(rows: Sequence[Model], names: Sequence[str]) -> list[_Column]:
    found = []
    for name in names:
        field = rows[0]._meta.get_field(name)
        assert isinstance(field, Field)
        values = [getattr(row, field.attname) for row in rows]
        found.append(_Column(field, values[:1] if _are_alike(values) else values))
    return found


def _are_alike(values: Sequence[Any]) -> bool:
    """Whether these are one value. JSON is not compared inside: 1 equals True there, but is another value."""
    first = values[0]
    is_filled = isinstance(first, dict | list) and bool(first)
    return len(values) == 1 or (not is_filled and all(type(each) is type(first) and each == first for each in values))


def _valued(value: Any, field: "Field[Any, Any]") -> Expression:
    return value if is_asked(value) else Value(value, None if value is None else field)
