"""Inserts rows that were made in memory."""

from collections.abc import Sequence
from typing import Any

from django.db import DEFAULT_DB_ALIAS
from django.db.models import AutoField, Field, Model

from approvals.prepared import MOST_PREPARED, Given, PreparedInsert, is_asked


class RowInsert[T: Model]:
    """Inserts rows as `bulk_create` does. For a few rows, which is the usual case, the statement is built only once.
    Keys that the database generates are not read back.
    """

    def __init__(self, model: type[T]) -> None:
        self._model = model
        self._prepared: dict[tuple[Any, ...], PreparedInsert] = {}

    def __call__(self, rows: Sequence[T]) -> None:
        """Insert them in one statement. A field set to an expression, such as the database's time, keeps the expression
        in memory.
        """
        if not rows:
            return
        if len(rows) > MOST_PREPARED:
            self._model._default_manager.bulk_create(rows)
            return
        fields = [field for field in self._model._meta.concrete_fields if not isinstance(field, AutoField)]
        told = [{field.attname: field.pre_save(row, add=True) for field in fields} for row in rows]
        asked = tuple(tuple((name, value) for name, value in each.items() if is_asked(value)) for each in told)
        insert = self._prepared.get(asked)
        if insert is None:
            insert = self._prepared.setdefault(asked, self._prepare(fields, asked))
        insert(**{f"{name}_{n}": v for n, each in enumerate(told) for name, v in each.items() if not is_asked(v)})
        for row in rows:
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS

    def _prepare(
        self, fields: "Sequence[Field[Any, Any]]", asked: Sequence[Sequence[tuple[str, Any]]]
    ) -> PreparedInsert:
        rows = [
            {field.attname: Given(f"{field.attname}_{n}", field) for field in fields} | dict(of_row)
            for n, of_row in enumerate(asked)
        ]
        return PreparedInsert(self._model, fields, rows)
