"""What a dry run predicted that a call would change, and what happened."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentapp import previews
from agentapp.console import typed_text
from agentapp.models import ToolExecution
from approvals import lens
from approvals.masking import masked_lines
from approvals.models import Approval


@dataclass(frozen=True)
class Line:
    """One thing a call would change. None: unknown."""

    name: str
    before: str | None
    after: str | None
    actual: str | None = None
    state: str = ""


@dataclass(frozen=True)
class DryRun:
    """The lines, or why there are none. `unmeasured`: why the outcome is unknown."""

    lines: list[Line]
    unavailable: str = ""
    unmeasured: str = ""

    @property
    def is_compared(self) -> bool:
        return any(line.state for line in self.lines)

    @property
    def drifted(self) -> list[Line]:
        return [line for line in self.lines if line.state == previews.DRIFTED]

    @property
    def is_as_predicted(self) -> bool:
        return self.is_compared and all(line.state == previews.AS_PREDICTED for line in self.lines)


def of(approval: Approval | None, execution: ToolExecution | None) -> DryRun | None:
    """The dry run of what would run, or did run, under a request. None: its tool has no dry run."""
    if execution is not None and execution.comparison is not None:
        kept = execution.comparison
        lines = masked_lines(kept["lines"], lens.hidden(execution.all_secret_fields, execution.all_pii_fields))
        return DryRun([_line(line) for line in lines], unmeasured=kept["unavailable"])
    if approval is None:
        return None
    return read(approval.shown_preview_text, lens.hidden(approval.secret_fields, approval.pii_fields))


def read(text: str, hidden: Sequence[str]) -> DryRun | None:
    """The dry run as `previews.take` wrote it, without what is hidden. None: the tool has no dry run."""
    if not text:
        return None
    said = json.loads(text)
    lines = masked_lines(said.get("lines", []), hidden)
    return DryRun([_line(line) for line in lines], said.get("unavailable", ""))


def _line(line: dict[str, Any]) -> Line:
    after = line.get("predicted") if "state" in line else line["after"]
    known = "predicted" in line or "after" in line
    return Line(
        name=line["name"],
        before=typed_text.inline(line["before"]) if "before" in line else None,
        after=typed_text.inline(after) if known else None,
        actual=typed_text.inline(line["actual"]) if "actual" in line else None,
        state=line.get("state", ""),
    )
