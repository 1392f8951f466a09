"""Merges the figures of several hours and computes percentiles of what was counted. Plain values."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import Any

# With fewer values, a 95th percentile says nothing.
LEAST_FOR_P95 = 20


def merged(many: Iterable[Mapping[str, int] | Mapping[int, int]]) -> dict[int, int]:
    """Add up counts of whole seconds. JSON keeps the seconds as text."""
    total: dict[int, int] = {}
    for one in many:
        counted = {int(seconds): count for seconds, count in one.items()}
        if total:
            for seconds, count in counted.items():
                total[seconds] = total.get(seconds, 0) + count
        else:
            total = counted
    return total


class Waits:
    """Whole seconds and how often each occurred, over many hours. Most are never asked for, so they are read and added
    up only when somebody asks.

    A part is a mapping, the JSON text of one (whose seconds are text), or other waits.
    """

    def __init__(self, *parts: "Part") -> None:
        self._parts: list[Part] = list(parts)
        self._total: Mapping[int, int] | None = None
        self._ranks: tuple[list[int], list[int]] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Waits) and self.total == other.total

    __hash__ = None  # type: ignore[assignment]

    def add(self, *parts: "Part") -> None:
        self._parts += parts
        self._total = self._ranks = None

    @property
    def total(self) -> Mapping[int, int]:
        if self._total is None:
            match self._parts:
                case [Waits() as alone]:
                    self._total = alone.total
                case parts:
                    self._total = merged(map(_read, parts))
        return self._total

    def _ranked(self) -> tuple[list[int], list[int]]:
        """Every value that occurs, smallest first, and how many values do not exceed it."""
        if self._ranks is None:
            values = sorted(self.total)
            self._ranks = values, list(accumulate(self.total[value] for value in values))
        return self._ranks

    @property
    def number(self) -> int:
        upto = self._ranked()[1]
        return upto[-1] if upto else 0

    def percentile(self, percent: int) -> int | None:
        """By nearest rank: the smallest value that this percentage of values does not exceed. None if there are no
        values.
        """
        values, upto = self._ranked()
        return values[bisect_left(upto, ceil(Fraction(percent * upto[-1], 100)))] if upto else None

    @property
    def median(self) -> int | None:
        return self.percentile(50)

    @property
    def p95(self) -> int | None:
        """None also if there are too few values for it to mean anything."""
        return self.percentile(95) if self.number >= LEAST_FOR_P95 else None


type Part = str | Mapping[int, int] | Waits


def _read(part: Part) -> Mapping[Any, int]:
    if isinstance(part, Waits):
        return part.total
    return json.loads(part) if isinstance(part, str) else part


def share(part: int | Decimal, whole: int | Decimal) -> float | None:
    """Between 0 and 1. None if the whole is zero."""
    return float(part / whole) if whole else None
