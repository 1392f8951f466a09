"""How a run branches off from one that has ended: what its row keeps of the branch, and what the record says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from agentapp.descent import line_of
from agentapp.models import Conversation, Run
from approvals.sealed import ERASED, sealed


@dataclass(frozen=True)
class Branch:
    """What makes a new run a fork or a replay of the one it comes from."""

    kind: str
    snapshot: Mapping[str, Any]
    """The agent's configuration, with the changes made to it."""
    calls_kept: int = 0
    opening: dict[str, Any] | None = None
    changed: Mapping[str, str] = field(default_factory=dict)
    """The changed texts, by name. The record has only their digests."""
    asked_in: Conversation | None = None

    @property
    def columns(self) -> dict[str, Any]:
        return {
            "branch": self.kind,
            "calls_kept": self.calls_kept,
            "opening": self.opening,
            "changed": sorted(self.changed),
            "asked_in": self.asked_in,
        }

    @property
    def wanted(self) -> dict[str, Any]:
        """What distinguishes one branch request from another: not the configuration, which may change in between."""
        return {"kind": self.kind, "calls_kept": self.calls_kept, "changed": dict(self.changed)}

    def facts(self, run: Run) -> dict[str, Any]:
        """What the record says about the branch."""
        said = {name: sealed(text, run.salt) for name, text in sorted(self.changed.items())}
        return {"branch": self.kind, "calls_kept": self.calls_kept, "changed": said}


def columns_of(branch: Branch | None) -> dict[str, Any]:
    return branch.columns if branch is not None else {}


def without_words(run: Run) -> dict[str, Any]:
    """The columns of a branch that people have written in, with their words erased.

    A fork of a fork has the instructions of the first, so changes made further up the line are people's words too.
    """
    if not run.branch:
        return {}
    forks = takewhile(lambda each: each.branch == Run.Branch.FORK, (run, *line_of(run)))
    rewritten = any("instructions" in each.changed for each in forks)
    snapshot = run.agent_snapshot | ({"instructions": ERASED} if rewritten else {})
    return {"opening": None, "agent_snapshot": snapshot}
