"""What a plan says: its calls as people were shown them, and whether a call is one of them. Pure: no row is read."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from approvals.digest import action_digest, canonical, load
from approvals.models import Approval, PlannedCall
from approvals.policy import RISK_ORDER, Ruling


@dataclass(frozen=True)
class ShownCall:
    """One call of a plan as the card shows it, frozen with it."""

    tool: str
    tool_version: str
    effect_class: str
    arguments_text: str
    snapshot_text: str
    title: str
    sentence: list[dict[str, Any]]
    risk: str
    reason: str
    effects: list[dict[str, Any]] = field(default_factory=list)
    rule: str = ""
    risk_factors: list[dict[str, Any]] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    """The arguments that hold values from outside."""

    @property
    def arguments(self) -> Any:
        return load(self.arguments_text)

    @property
    def snapshot(self) -> dict[str, Any]:
        found = load(self.snapshot_text) if self.snapshot_text else {}
        return found if isinstance(found, dict) else {}


def text_of(calls: Sequence[ShownCall]) -> str:
    """The calls of a plan as one text, to which its approval is bound."""
    return canonical([asdict(each) for each in calls])


def calls_in(plan_text: str) -> list[ShownCall]:
    """The calls of a plan, in order. Empty for a request that is not a plan."""
    return [ShownCall(**each) for each in load(plan_text)] if plan_text else []


def call_digest(approval: Approval, position: int, tool: str, tool_version: str, arguments: Any) -> str:
    """What a planned call is bound to: the tool, its exact contract, the arguments, the run, its place in the plan."""
    subject = f"{approval.pk}/{position}"
    return action_digest(
        tool=tool, tool_version=tool_version, arguments=arguments, run=str(approval.run_id), subject=subject,
        salt=approval.salt,
    )  # fmt: skip


def next_of(calls: Sequence[PlannedCall], is_done: Callable[[PlannedCall], bool]) -> PlannedCall | None:
    """The call that a plan allows next: the first one not done. None: that one may no longer be made.

    `calls` are those of one plan, in order. A call that was made but is not done ends the plan.
    """
    following = next((call for call in calls if not is_done(call)), None)
    return following if following is not None and following.used_by is None and following.ended_at is None else None


def stricter(call: ShownCall, effect_class: str, ruling: Ruling) -> str:
    """Why a new ruling is stricter than what people saw of a planned call. Empty: it is not."""
    if effect_class not in PlannedCall.EFFECT_CLASSES or effect_class != call.effect_class:
        return "The effect class of the tool has changed."
    if ruling.customer:
        return "The customer must now confirm it."
    if RISK_ORDER.index(ruling.risk) > RISK_ORDER.index(call.risk):
        return f"Its risk is higher than when it was approved: {ruling.risk}."
    return ""
