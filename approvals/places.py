"""Places in lists that are sorted by a time and then by key, latest first: the one way to read, write and use them."""

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from django.db.models import Model, Q


@dataclass(frozen=True)
class Place:
    """The place of one row, even if the row is gone. `column` is the time by which the list is sorted.

    Its conditions are written so that an index on the column and the id can be used.
    """

    at: datetime
    id: uuid.UUID
    column: str = "at"

    @classmethod
    def of(cls, row: Model, column: str = "at") -> Self:
        return cls(getattr(row, column), row.pk, column)

    @classmethod
    def read(cls, text: str, column: str = "at") -> Self:
        """Raises ValueError for text that no list has written."""
        written, _, key = text.partition("_")
        return cls(moment(written), uuid.UUID(key), column)

    def __str__(self) -> str:
        return f"{self.at.astimezone(UTC).isoformat()}_{self.id}"

    @property
    def here_and_older(self) -> Q:
        return self._compared("lte", Q(**{f"{self.column}__lt": self.at}) | Q(id__lte=self.id))

    @property
    def older(self) -> Q:
        return self._compared("lte", Q(**{f"{self.column}__lt": self.at}) | Q(id__lt=self.id))

    @property
    def newer(self) -> Q:
        return self._compared("gte", Q(**{f"{self.column}__gt": self.at}) | Q(id__gt=self.id))

    def _compared(self, side: str, beyond: Q) -> Q:
        return Q(**{f"{self.column}__{side}": self.at}) & beyond


def moment(text: str) -> datetime:
    """The moment that a place names. Raises ValueError for one without a time zone, or beyond what can be stored."""
    named = datetime.fromisoformat(text)
    if named.tzinfo is None:
        raise ValueError("a place in a list has a time zone")
    try:
        return named.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("nothing is as old or as young as that") from error
