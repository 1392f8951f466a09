"""Guidelines and how they relate, as kept with a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

Criticality = Literal["low", "medium", "high"]
_LOUDNESS: dict[str, int] = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True)
class Guideline:
    """When a condition holds, do something, with these tools. Without an action it is an observation."""

    name: str
    condition: str = ""
    action: str = ""
    description: str = ""
    criticality: Criticality = "medium"
    priority: int = 0
    matcher: Literal["model", "always", "python"] = "model"
    python: str = ""
    """Dotted path of the function that says whether it holds, if `matcher` is python."""
    tools: tuple[str, ...] = ()
    version: int = 0
    is_transient: bool = False
    """It came with a tool's result, and counts only for the reply being prepared."""

    @property
    def words(self) -> str:
        if not self.condition:
            return self.action
        return f"When {self.condition}: {self.action}" if self.action else f"When {self.condition}"

    @property
    def loudness(self) -> tuple[int, int, str]:
        """Sorts guidelines as they are told: the critical first, then by priority."""
        return _LOUDNESS[self.criticality], -self.priority, self.name


@dataclass(frozen=True)
class Relation:
    """How one guideline relates to another, or to a tool.

    entails: if the source holds, so does the target. priority: the source takes precedence over the target.
    reevaluates: after the target, a tool, has run, the source is looked at again.
    """

    kind: Literal["entails", "priority", "reevaluates"]
    source: str
    target: str


@dataclass(frozen=True)
class Guidelines:
    """Everything that an agent's guidance is based on."""

    guidelines: tuple[Guideline, ...] = ()
    relations: tuple[Relation, ...] = ()
    overlaps: tuple[tuple[str, str], ...] = ()
    """Pairs of tools that can serve the same need and are therefore looked at together."""

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "Guidelines":
        """From the snapshot that a run keeps."""
        return cls(
            tuple(Guideline(**{**row, "tools": tuple(row.get("tools", ()))}) for row in kept.get("guidelines", ())),
            tuple(Relation(**row) for row in kept.get("relations", ())),
            tuple((first, second) for first, second in kept.get("overlaps", ())),
        )

    @cached_property
    def by_name(self) -> dict[str, Guideline]:
        return {guideline.name: guideline for guideline in self.guidelines}

    @cached_property
    def gated(self) -> frozenset[str]:
        """The tools that belong to any guideline."""
        return frozenset(tool for guideline in self.guidelines for tool in guideline.tools)

    def related(self, kind: str) -> list[Relation]:
        return [relation for relation in self.relations if relation.kind == kind]
