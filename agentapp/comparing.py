"""Two runs side by side: which steps and calls are the same, different, missing or new. Reads only.

Steps are paired by the tools they asked for, and calls within a pair by tool and arguments, then by tool.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any, Literal

from agentapp.models import Run, Step, ToolExecution
from agentapp.transcript import StepRows, goes_on_from, kept_of, load_lines
from approvals.digest import MalformedJSON, canonical, parse

type Kind = Literal["kept", "same", "different", "missing", "new"]
# Longer pages are useless: nobody reads them.
MAX_STEPS = 400


@dataclass(frozen=True)
class CallPair:
    """One call in both runs, or in one of them. `differs`: what is different."""

    kind: Kind
    was: ToolExecution | None
    now: ToolExecution | None
    differs: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[ToolExecution | None, ToolExecution | None]:
        return self.was, self.now

    @property
    def name(self) -> str:
        call = self.was or self.now
        return call.name if call is not None else ""


@dataclass(frozen=True)
class StepPair:
    """One decision in both runs, or in one of them."""

    kind: Kind
    was: Step | None
    now: Step | None
    calls: Sequence[CallPair] = ()
    differs: tuple[str, ...] = ()
    gone: Sequence[str] = ()
    """Tools that were offered then and are not offered now."""
    added: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """What two runs did, step by step, and how they ended."""

    was: Run
    now: Run
    steps: Sequence[StepPair]
    differs: tuple[str, ...]
    """How their ends differ."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many of their calls are of each kind."""
    cut: bool = False

    @property
    def ends(self) -> tuple[tuple[Run, str], tuple[Run, str]]:
        return (self.was, "First"), (self.now, "Second")

    @property
    def told(self) -> list[tuple[str, int]]:
        """The kinds of calls there are any of."""
        return [(kind, number) for kind, number in self.counts.items() if number]

    @property
    def is_same(self) -> bool:
        return not self.differs and all(step.kind in ("same", "kept") for step in self.steps)


@dataclass
class _Decision:
    """A decision as its run made it: a step that was kept in part and the step that continues it count as one."""

    step: Step
    calls: list[ToolExecution]

    @property
    def signature(self) -> tuple[str, ...]:
        return tuple(call.name for call in self.calls)


def compare(was: Run, now: Run) -> Comparison:
    """Compare `now` with `was`. Two queries, and one for each run they continue that is not read yet."""
    lines = load_lines({run.pk: run for one in (was, now) for run in (one, *goes_on_from(one))}.values())
    before, after = _decisions(was, lines), _decisions(now, lines)
    cut = max(len(before), len(after)) > MAX_STEPS
    steps = [_pair(one, other) for one, other in _aligned(before[:MAX_STEPS], after[:MAX_STEPS])]
    counts = dict.fromkeys(("kept", "same", "different", "missing", "new"), 0)
    for call in (call for step in steps for call in step.calls):
        counts[call.kind] += 1
    ends = ("state", "stop_reason", "answer")
    differs = tuple(name for name in ends if getattr(was, name) != getattr(now, name))
    return Comparison(was, now, steps, differs, counts, cut)


def _decisions(run: Run, lines: Mapping[uuid.UUID, list[StepRows]]) -> list[_Decision]:
    found: list[_Decision] = []
    goes_on = False
    for rows in (*kept_of(run, lines), *lines[run.pk]):
        calls = _declared(rows)
        if goes_on:
            found[-1].calls += calls
        else:
            found.append(_Decision(rows.step, calls))
        goes_on = rows.is_part
    return found


def _declared(rows: StepRows) -> list[ToolExecution]:
    """The calls of a step, without the row that stands for a failed decision."""
    return [] if rows.step.error else list(rows.executions)


def _aligned(
    before: Sequence[_Decision], after: Sequence[_Decision]
) -> Iterator[tuple[_Decision | None, _Decision | None]]:
    matcher = SequenceMatcher(None, [one.signature for one in before], [one.signature for one in after], False)
    for _, first, last, begins, ends in matcher.get_opcodes():
        yield from zip_longest(before[first:last], after[begins:ends])


def _pair(was: _Decision | None, now: _Decision | None) -> StepPair:
    calls = list(_calls(was.calls if was else [], now.calls if now else []))
    if was is None or now is None:
        then, today = was.step if was else None, now.step if now else None
        return StepPair("new" if was is None else "missing", then, today, calls)
    if was.step.pk == now.step.pk and all(call.kind == "kept" for call in calls):
        return StepPair("kept", was.step, now.step, calls)
    differs = ["words"] * (was.step.text != now.step.text) + ["error"] * (was.step.error != now.step.error)
    offered, still = set(was.step.disclosed_tools), set(now.step.disclosed_tools)
    same = not differs and offered == still and all(call.kind in ("same", "kept") for call in calls)
    return StepPair(
        "same" if same else "different", was.step, now.step, calls, tuple(differs),
        sorted(offered - still), sorted(still - offered),
    )  # fmt: skip


def _calls(was: Sequence[ToolExecution], now: Sequence[ToolExecution]) -> Iterator[CallPair]:
    left = list(now)
    paired: dict[Any, ToolExecution] = {}
    for is_alike in (_same_arguments, _same_name):
        for call in (call for call in was if call.pk not in paired):
            found = next((other for other in left if is_alike(call, other)), None)
            if found is not None:
                paired[call.pk] = found
                left.remove(found)
    for call in was:
        other = paired.get(call.pk)
        yield _call(call, other) if other is not None else CallPair("missing", call, None)
    for call in left:
        yield CallPair("new", None, call)


def _call(was: ToolExecution, now: ToolExecution) -> CallPair:
    if was.pk == now.pk:
        return CallPair("kept", was, now)
    pairs = {
        "arguments": (_arguments(was), _arguments(now)),
        "ruling": (_ruling(was), _ruling(now)),
        "outcome": (_outcome(was), _outcome(now)),
        "what ran": (_ran(was), _ran(now)),
        "result": (was.result_text or "null", now.result_text or "null"),
        "version of the tool": (was.tool_version, now.tool_version),
    }
    differs = tuple(name for name, (then, today) in pairs.items() if then != today)
    return CallPair("different" if differs else "same", was, now, differs)


def _same_name(one: ToolExecution, other: ToolExecution) -> bool:
    return one.name == other.name


def _same_arguments(one: ToolExecution, other: ToolExecution) -> bool:
    return one.name == other.name and _arguments(one) == _arguments(other)


def _arguments(call: ToolExecution) -> str:
    try:
        return canonical(parse(call.arguments_text or "{}"))
    except MalformedJSON:
        return call.arguments_text


def _ruling(call: ToolExecution) -> str:
    return str(call.ruling.get("verdict", ""))


def _outcome(call: ToolExecution) -> tuple[str, str, str]:
    return call.state, call.result_status, call.reason


def _ran(call: ToolExecution) -> str:
    """The arguments a person changed it to before it ran; empty if it ran as proposed, or not at all."""
    return call.executed_text if call.started_at is not None else ""
