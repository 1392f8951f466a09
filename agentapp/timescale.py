"""Working and waiting times as positions on one axis. Arithmetic on moments, no Django.

An axis shows worked time to scale. Unless asked otherwise, it folds time in which a run only waited into a narrow
strip, so that a night of waiting for a person does not squeeze a minute of work to nothing.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Literal

Kind = Literal["model", "tool", "failed", "people", "idle"]

# If two things happen at once, the time counts for the one named first here.
_PRECEDENCE: tuple[Kind, ...] = ("model", "tool", "failed", "people")
FOLD_WIDTH = 9.0
# However often a run waited, this much of the axis is left for work.
_LEAST_FOR_WORK = 55.0
# Idle time is folded only when it is long, in seconds and compared with the work.
_IDLE_SECONDS, _IDLE_SHARE = 1.0, 0.1
_TICK_STEPS = (
    *(base * 10.0**power for power in (-3, -2, -1) for base in (1, 2, 5)),
    1, 2, 3, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400,
)  # fmt: skip
_MOST_TICKS = 5
# The width of a label, in percent. A mark's label begins at the mark, a fold's label is centred on the fold.
_LABEL_WIDTH = 13.0


@dataclass(frozen=True)
class Span:
    kind: Kind
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return max(0.0, (self.end - self.start).total_seconds())


@dataclass(frozen=True)
class Tick:
    """A mark on the axis: `x` in percent of its width, `seconds` of time that is shown to scale."""

    x: float
    seconds: float


@dataclass(frozen=True)
class Fold:
    """A strip that stands for `seconds` of waiting. `x` and `width` in percent."""

    x: float
    width: float
    seconds: float
    labelled: bool = True

    @property
    def middle(self) -> float:
        """The middle of the label, placed so that all of it is on the axis."""
        return round(max(_LABEL_WIDTH / 2, min(self.x + self.width / 2, 100 - _LABEL_WIDTH / 2)), 2)


def partition(spans: Iterable[Span], start: datetime, end: datetime) -> list[Span]:
    """Every moment from start to end in exactly one span. Neighbours of the same kind are joined."""
    edges: list[tuple[datetime, int, Kind]] = []
    for span in spans:
        first, last = max(span.start, start), min(span.end, end)
        if first < last:
            edges += [(first, 1, span.kind), (last, -1, span.kind)]
    edges.sort(key=lambda edge: edge[0])
    moments = [start, *(edge[0] for edge in edges), end]
    active: Counter[str] = Counter()
    parts: list[Span] = []
    # Before the first edge nothing is active; then each edge opens or closes a span.
    for (first, last), edge in zip(pairwise(moments), [None, *edges], strict=True):
        if edge is not None:
            active[edge[2]] += edge[1]
        if first >= last:
            continue
        kind: Kind = next((kind for kind in _PRECEDENCE if active[kind]), "idle")
        if parts and parts[-1].kind == kind:
            parts[-1] = Span(kind, parts[-1].start, last)
        else:
            parts.append(Span(kind, first, last))
    return parts


class Axis:
    """Moments → percent of the width. Made from parts that follow each other without a gap."""

    def __init__(self, parts: Sequence[Span], start: datetime, *, folded: bool = True) -> None:
        self._start = start
        worked = sum(part.seconds for part in parts if part.kind not in ("people", "idle"))
        folds_at = [folded and _folds(part, worked) for part in parts]
        strips = [part for part, fold in zip(parts, folds_at, strict=True) if fold]
        width = min(FOLD_WIDTH, (100 - _LEAST_FOR_WORK) / len(strips)) if strips else 0.0
        to_scale = sum(part.seconds for part in parts) - sum(part.seconds for part in strips)
        room = 100 - width * len(strips)
        rate = room / to_scale if to_scale else 0.0
        # The knots of a line through (seconds since start, seconds to scale, percent).
        self._clock, self._scaled, self._x = [0.0], [0.0], [0.0]
        folds: list[Fold] = []
        labelled = -_LABEL_WIDTH
        for part, fold in zip(parts, folds_at, strict=True):
            x, long = self._x[-1], part.seconds
            if fold:
                made = Fold(round(x, 2), round(width, 2), long)
                folds.append(replace(made, labelled=made.middle - labelled >= _LABEL_WIDTH))
                labelled = made.middle if folds[-1].labelled else labelled
            self._clock.append(self._clock[-1] + long)
            self._scaled.append(self._scaled[-1] + (0 if fold else long))
            self._x.append(x + (width if fold else long * rate))
        self.folds = tuple(folds)
        self.ticks = tuple(self._ticks(to_scale))
        self.seconds = to_scale

    def x(self, moment: datetime) -> float:
        """The position of a moment, in percent. A moment outside the axis is put at the nearer end."""
        return round(_between(self._clock, self._x, (moment - self._start).total_seconds()), 2)

    def width(self, first: datetime, last: datetime, least: float = 0.4) -> float:
        """How wide a span is, in percent; never so narrow that it cannot be seen."""
        return round(max(least, self.x(last) - self.x(first)), 2)

    def _ticks(self, to_scale: float) -> Iterable[Tick]:
        step = next((step for step in _TICK_STEPS if to_scale / step <= _MOST_TICKS), _TICK_STEPS[-1])
        count, taken = (int(to_scale / step) if to_scale else 0), 0.0
        for number in range(min(count, 2 * _MOST_TICKS) + 1):
            seconds = number * step
            # If a fold begins at this very second, the mark belongs before it.
            index = max(1, bisect_left(self._scaled, seconds))
            x = _interpolate(self._scaled, self._x, min(index, len(self._x) - 1), seconds) if number else 0.0
            if x >= taken and self._has_room(x):
                taken = x + _LABEL_WIDTH * 0.8
                yield Tick(round(x, 2), seconds)

    def _has_room(self, x: float) -> bool:
        """Whether a mark's label can begin here without running into a fold's label or off the axis."""
        if x > 100 - _LABEL_WIDTH / 3:
            return False
        labels = [fold.middle for fold in self.folds if fold.labelled]
        return not any(middle - 1.5 * _LABEL_WIDTH < x < middle + _LABEL_WIDTH / 2 for middle in labels)


def _folds(part: Span, worked: float) -> bool:
    if part.kind == "idle":
        return part.seconds > max(_IDLE_SECONDS, worked * _IDLE_SHARE)
    return part.kind == "people"


def _between(knots: Sequence[float], values: Sequence[float], at: float) -> float:
    if at <= knots[0] or len(knots) == 1:
        return values[0]
    if at >= knots[-1]:
        return values[-1]
    return _interpolate(knots, values, bisect_right(knots, at), at)


def _interpolate(knots: Sequence[float], values: Sequence[float], index: int, at: float) -> float:
    """The value at `at` on the line from the knot before `index` to the one at it."""
    if len(knots) == 1:
        return values[0]
    first, last = knots[index - 1], knots[index]
    share = (at - first) / (last - first) if last > first else 0.0
    return values[index - 1] + min(1.0, share) * (values[index] - values[index - 1])
