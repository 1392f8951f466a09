"""Counting rows for a page, however many there are."""

from typing import Any

from django.db.models import IntegerField, QuerySet, Subquery

MOST_COUNTED = 999
"""What a page says of more: 999+. To count on takes longer with each year, and nobody reads it."""


class CountOf(Subquery):
    """How many rows a query has, as a part of another, and no more than just beyond MOST_COUNTED."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()
    empty_result_set_value = 0

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[: MOST_COUNTED + 1])


def in_words(number: int) -> str:
    return str(number) if number <= MOST_COUNTED else f"{MOST_COUNTED}+"
