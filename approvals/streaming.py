"""Reading many rows without holding all of them."""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import cast

from django.db.models import Model, QuerySet


@contextmanager
def streamed[M: Model, Row](rows: QuerySet[M, Row], at_a_time: int = 2000) -> Iterator[Iterator[Row]]:
    """Rows as the database gives them, so many at a time, and its cursor closed when the block ends, however it ends.

    What an exception leaves open is closed by the garbage collector, at any time: it then ends whatever transaction
    is under way on that connection.
    """
    with closing(cast(Generator[Row], rows.iterator(at_a_time))) as found:
        yield found
