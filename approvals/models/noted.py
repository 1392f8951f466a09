"""Rows that hold fields marked as personal: answers made from them tell people no more than they may see."""

from collections.abc import Collection
from typing import Any, ClassVar, Self

from approvals import lens


class Noted:
    """Tells the lens of the person being answered which rows were read, and which run each belongs to."""

    column_of_run: ClassVar[str] = "run_id"

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any) -> Self:
        row: Self = super().from_db(db, field_names, values, **more)  # type: ignore[misc]
        lens.note(row)
        return row
