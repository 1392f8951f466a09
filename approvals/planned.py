"""What a plan says: its calls as people were shown them, and whether a call is one of them. Pure: no row is read."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from approvals.digest import action_digest, canonical, load
from approvals.models import Approval, PlannedCall
from approvals.policy import RISK_ORDER, Ruling


@dataclass(frozen=True)
class ShownCall:
    """One call of a plan, as it stands on the card; frozen with it."""

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
    """The arguments that hold what came from outside."""

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
    """The calls of a plan, in their order. None for a request that is no plan."""
    return [ShownCall(**each) for each in load(plan_text)] if plan_text else []


def call_digest(approval: Approval, position: int, tool: str, tool_version: str, arguments: Any) -> str:
    """What a planned call is bound to: the tool, its exact contract, the arguments, the run, its place in the plan."""
    subject = f"{approval.pk}/{position}"
    return action_digest(
        tool=tool, tool_version=tool_version, arguments=arguments, run=str(approval.run_id), subject=subject,
        salt=approval.salt,
    )  # fmt: skip


def next_of(calls: Sequence[PlannedCall], is_done: Callable[[PlannedCall], bool]) -> PlannedCall | None:
    """The call that a plan allows next: the first that has not been done. None: it may not be made any more.

    `calls` are those of one plan, in their order. One that was made and came to nothing ends the order.
    """
    following = next((call for call in calls if not is_done(call)), None)
    return following if following is not None and following.used_by is None and following.ended_at is None else None


def stricter(call: ShownCall, effect_class: str, ruling: Ruling) -> str:
    """Why a ruling of now is stricter than what people saw of a planned call, or an empty text."""
    if effect_class not in PlannedCall.EFFECT_CLASSES or effect_class != call.effect_class:
        return "What the tool does to the world is said to be another thing by now."
    if ruling.customer:
        return "The customer must confirm it by now."
    if RISK_ORDER.index(ruling.risk) > RISK_ORDER.index(call.risk):
        return f"It is of more risk than when it was approved: {ruling.risk}."
    return ""
