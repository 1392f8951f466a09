"""Writing rows that have been changed in hand."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connection
from django.db.models import Case, Expression, Field, Model, QuerySet, Value, When
from django.db.models.functions import Cast

from approvals.prepared import Given, PreparedUpdate


class RowUpdate[T: Model]:
    """Writes some fields of rows in hand: of those that still are among some. For one row, which is nearly always what
    there is, the statement is put together once.
    """

    def __init__(self, among: Callable[[], QuerySet[T]], fields: Sequence[str]) -> None:
        self._among, self._fields = among, fields
        self._of_one: dict[tuple[tuple[str, Any], ...], PreparedUpdate] = {}

    def __call__(self, rows: Sequence[T]) -> int:
        """Write the rows, and say of how many. One statement."""
        if len(rows) != 1:
            return update_rows(self._among(), rows, self._fields)
        (row,) = rows
        columns = {field.attname: field for field in map(partial(_field, type(row)), self._fields)}
        values = {name: getattr(row, name) for name in columns}
        asked = tuple((name, value) for name, value in values.items() if hasattr(value, "resolve_expression"))
        update = self._of_one.get(asked)
        if update is None:
            given = {name: Given(name, field) for name, field in columns.items()} | dict(asked)
            key = Given("pk", type(row)._meta.pk)
            update = self._of_one.setdefault(asked, PreparedUpdate(lambda: (self._among().filter(pk=key), given)))
        return update(pk=row.pk, **{name: values[name] for name in values.keys() - dict(asked).keys()})


def update_rows[T: Model](among: QuerySet[T], rows: Sequence[T], fields: Sequence[str]) -> int:
    """Write these fields of the rows that still are among some, and say of how many. One statement.

    Only where rows differ does it say of each which value is its own: to put that together takes longer than to run
    it, and what several calls of a step share is most of what is written of them.
    """
    if not rows:
        return 0
    written: dict[str, Any] = {}
    for name in fields:
        field = _field(among.model, name)
        values = [getattr(row, field.attname) for row in rows]
        written[field.attname] = values[0] if _are_alike(values) else _own(field, rows, values)
    return among.filter(pk__in=[row.pk for row in rows]).update(**written)


def _field(model: type[Model], name: str) -> "Field[Any, Any]":
    field = model._meta.get_field(name)
    assert isinstance(field, Field)
    return field


def _are_alike(values: Sequence[Any]) -> bool:
    """Whether these are one value. What is inside of JSON is not looked at: 1 equals True there, and is another."""
    first = values[0]
    is_filled = isinstance(first, dict | list) and bool(first)
    return len(values) == 1 or (not is_filled and all(type(each) is type(first) and each == first for each in values))


def _own(field: "Field[Any, Any]", rows: Sequence[Model], values: Sequence[Any]) -> Expression:
    """Each row's value of a column."""
    told = [
        each if hasattr(each, "resolve_expression") else Value(each, None if each is None else field) for each in values
    ]
    case = Case(*(When(pk=row.pk, then=each) for row, each in zip(rows, told, strict=True)), output_field=field)
    return Cast(case, output_field=field) if connection.features.requires_casted_case_in_updates else case
