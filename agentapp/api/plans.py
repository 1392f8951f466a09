"""How the API shows the calls of a plan."""

import uuid
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from approvals import lens, planned
from approvals.masking import masked
from approvals.models import Approval


class PlannedCallOut(BaseModel):
    """One call of a plan, as people are shown it, and what came of it."""

    position: int
    tool: str
    tool_version: str
    effect_class: str
    args: dict[str, Any]
    title: str
    sentence: str = Field(description="What will happen, from the tool's own template.")
    risk: str
    rule: str | None
    reason: str | None
    snapshot: dict[str, Any] = Field(description="The state it rests on; looked up again when the call is made.")
    outside: list[str] = Field(description="The arguments whose content came from outside.")
    use_by: datetime | None = Field(description="Once the plan is approved: until when the call may be made.")
    execution: uuid.UUID | None = Field(description="The tool execution that was made under it.")
    ended_at: datetime | None
    ended_because: str | None


def plan_out(approval: Approval) -> list[PlannedCallOut]:
    """The calls of a plan, in order. For anything but a plan: an empty list, without a query."""
    rows = {row.position: row for row in approval.planned_calls.all()} if approval.is_plan else {}
    shown, hidden = [], lens.hidden(approval.secret_fields, approval.pii_fields)
    for position, call in enumerate(planned.calls_in(approval.plan_text), start=1):
        row = rows.get(position)
        shown.append(
            PlannedCallOut(
                position=position,
                tool=call.tool,
                tool_version=call.tool_version,
                effect_class=call.effect_class,
                args=masked(call.arguments, hidden),
                title=call.title,
                sentence="".join(piece["text"] for piece in call.sentence),
                risk=call.risk,
                rule=call.rule or None,
                reason=call.reason or None,
                snapshot=masked(call.snapshot, hidden),
                outside=call.outside,
                use_by=row.use_by if row else None,
                execution=row.used_by if row else None,
                ended_at=row.ended_at if row else None,
                ended_because=(row.ended_why or None) if row else None,
            )
        )
    return shown
