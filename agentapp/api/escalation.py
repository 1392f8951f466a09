"""How the API shows an approval's escalation: what happens while nobody decides, and what has happened so far."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field


class EscalationStepOut(BaseModel):
    """What happens if nobody decides by then, and whether it has happened."""

    after: int = Field(description="Seconds of the approval's time; business hours only, if `business_hours` is set.")
    group: str | None = Field(description="Who else may decide from then on.")
    remind: bool = Field(description="Whether those who may decide are reminded.")
    at: datetime
    taken_at: datetime | None


def step_out(step: dict[str, Any]) -> EscalationStepOut:
    return EscalationStepOut(
        after=step["after"],
        group=step["group"] or None,
        remind=step["remind"],
        at=datetime.fromisoformat(step["at"]),
        taken_at=datetime.fromisoformat(step["taken_at"]) if step["taken_at"] else None,
    )
