"""Writing rows that have been changed in hand."""

from collections.abc import Sequence

from django.db.models import Model, QuerySet


def update_rows[T: Model](among: QuerySet[T], rows: Sequence[T], fields: Sequence[str]) -> int:
    """Write these fields of the rows that still are among some, and say of how many.

    Mostly there is one, and its update need not say of each column which row it is of: to put that together takes
    longer than to run it.
    """
    if len(rows) == 1:
        return among.filter(pk=rows[0].pk).update(**{name: getattr(rows[0], name) for name in fields})
    return among.bulk_update(rows, fields)
