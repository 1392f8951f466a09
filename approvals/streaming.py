"""Reads many rows without holding all of them."""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import cast

from django.db.models import Model, QuerySet


@contextmanager
def streamed[M: Model, Row](rows: QuerySet[M, Row], at_a_time: int = 2000) -> Iterator[Iterator[Row]]:
    """Rows as the database returns them, this many at a time. The cursor is closed when the block ends, however it
    ends.

    Without this, after an exception the garbage collector closes the cursor at any time, and ends whatever transaction
    is under way on that connection.
    """
    with closing(cast(Generator[Row], rows.iterator(at_a_time))) as found:
        yield found
