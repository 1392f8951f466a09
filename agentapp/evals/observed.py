"""What came of a case, as plain values: `observing` makes them from rows, `expectations` judges and `metrics`
adds up.

They are kept with a result, but without the arguments of calls: only a digest says whether two were the same.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from agentapp.messages import FAILED
from agentapp.reasons import Reason

# Reasons why a call was refused: its arguments were not what the tool takes,
INVALID = frozenset({Reason.MALFORMED_ARGUMENTS, Reason.MISSING_ARGUMENTS, Reason.INVALID_ARGUMENTS})
# or the agent was not allowed to make it.
UNAUTHORIZED = frozenset(
    {Reason.TOOL_NOT_DISCLOSED, Reason.TOOL_DISABLED, Reason.PERMISSION_DENIED, Reason.POLICY_DENIED}
)


@dataclass(frozen=True)
class Asked:
    """One request about a call: to whom it was put, and what became of it."""

    groups: tuple[str, ...] = ()
    customer: bool = False
    people: int = 1
    risk: str = ""
    state: str = ""


@dataclass(frozen=True)
class Call:
    """One proposed call and what became of it."""

    tool: str
    executed: bool = False
    status: str = ""
    reason: str = ""
    verdict: str = ""
    """What the gate said: allow, ask or deny. Empty: the call did not reach it."""
    rule: str = ""
    asked: tuple[Asked, ...] = ()
    step: int = 1
    depth: int = 0
    attempts: int = 0
    arguments_digest: str = ""
    cost: float = 0
    broken: tuple[str, ...] = ()
    """What happened to this call that must never happen, by name."""
    arguments: dict[str, Any] = field(default_factory=dict, compare=False)
    """In memory while the call is judged; never kept."""

    @property
    def failed(self) -> bool:
        return self.executed and self.status in FAILED

    @property
    def is_invalid(self) -> bool:
        return not self.executed and self.reason in INVALID

    @property
    def is_unauthorized(self) -> bool:
        return not self.executed and self.reason in UNAUTHORIZED


@dataclass(frozen=True)
class Observed:
    """One run of a case."""

    final_status: str
    state: str = ""
    stop_reason: str = ""
    waiting_for: str = ""
    steps: int = 0
    calls: tuple[Call, ...] = ()
    """Every proposed call of the run and of the runs it asked for; executed ones in the order in which they began."""
    cost: float = 0
    model_cost: float = 0
    tools_cost: float = 0
    tokens: int = 0
    seconds: float = 0
    """How long workers held it. Waiting for people is not included."""
    model_seconds: float = 0
    tool_seconds: float = 0
    waited_seconds: float = 0
    routed: tuple[bool, ...] | None = None
    """For each call with an expected ruling of the gate, whether the gate ruled so. Arguments say which calls those
    are, so this is worked out while they are in memory. None: it was not."""
    answer: str = field(default="", compare=False)
    """In memory while the run is judged; never kept."""

    @property
    def executed(self) -> list[Call]:
        return [call for call in self.calls if call.executed]

    @property
    def tools_called(self) -> list[str]:
        """The executed tools, each once, in the order of their first calls."""
        return list(dict.fromkeys(call.tool for call in self.executed))

    def as_json(self) -> dict[str, Any]:
        kept = asdict(self)
        kept.pop("answer")
        for call in kept["calls"]:
            call.pop("arguments")
        return kept

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "Observed":
        calls = tuple(
            Call(**{**call, "asked": tuple(_asked(each) for each in call["asked"]), "broken": tuple(call["broken"])})
            for call in kept["calls"]
        )
        routed = kept.get("routed")
        return cls(**{**kept, "calls": calls, "routed": None if routed is None else tuple(routed)})


def _asked(kept: dict[str, Any]) -> Asked:
    return Asked(**{**kept, "groups": tuple(kept["groups"])})
