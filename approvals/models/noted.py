"""Rows that hold what is marked as personal: whoever is answered from them is told no more than they may see."""

from collections.abc import Collection
from typing import Any, ClassVar, Self

from approvals import lens


class Noted:
    """What is read while somebody is answered is known to their lens, and which run it belongs to."""

    column_of_run: ClassVar[str] = "run_id"

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any) -> Self:
        row: Self = super().from_db(db, field_names, values, **more)  # type: ignore[misc]
        lens.note(row)
        return row
