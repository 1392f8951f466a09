"""Counting rows for a page, however many there are."""

from typing import Any

from django.db.models import IntegerField, QuerySet, Subquery

MOST_COUNTED = 999
"""Above this a page says 999+. Counting further takes longer every year, and nobody reads the number."""


class CountOf(Subquery):
    """The number of rows of a query, as part of another query. Stops just above MOST_COUNTED."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()
    empty_result_set_value = 0

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[: MOST_COUNTED + 1])


def in_words(number: int) -> str:
    return str(number) if number <= MOST_COUNTED else f"{MOST_COUNTED}+"
