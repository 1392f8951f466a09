"""The parts of the Insights pages: figures, and cards with a drawing, a sentence and a table. No queries."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest

from django.contrib.auth.models import User
from django.utils import timezone

from agentapp.console import formats
from agentapp.console.charts import Bar, Columns, Lines
from agentapp.insights.adding import LEAST_FOR_P95

DASH = "—"
# A longer list of bars is left to the table.
MOST_BARS = 12


@dataclass(frozen=True)
class Figure:
    """One number with its name. `change`: how it changed from the period before, and `hue`: whether that is good."""

    name: str
    value: str
    about: str = ""
    unit: str = ""
    href: str = ""
    change: str = ""
    hue: str = ""
    why: str = ""
    """Why there is a dash instead of a number."""


class Cell(str):
    """A value for people to read. `plain` is the value for a spreadsheet, empty if there is none."""

    __slots__ = ("plain",)
    plain: str

    def __new__(cls, shown: str, plain: object) -> "Cell":
        made = super().__new__(cls, shown)
        made.plain = "" if plain is None else str(plain)
        return made


@dataclass(frozen=True)
class Table:
    """The drawing's content in words and numbers, for the page and for a file. A row's first cell names it."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    links: Sequence[str] = ()

    @property
    def linked(self) -> list[tuple[Sequence[str], str]]:
        """Each row with its link, or an empty text."""
        return list(zip_longest(self.rows, self.links, fillvalue=""))


@dataclass(frozen=True)
class Key:
    """One line of a legend. `shape`: line, dash, box or limit."""

    words: str
    hue: str
    shape: str = "box"


@dataclass(frozen=True)
class Card:
    """A drawing of one thing. `sentence` says what it shows."""

    slug: str
    title: str
    table: Table
    note: str = ""
    sentence: str = ""
    wide: bool = True
    lines: Lines | None = None
    columns: Columns | None = None
    bars: Sequence[Bar] = ()
    legend: Sequence[Key] = ()
    people: Sequence["Person"] = ()
    gauge: bool = False
    empty: str = ""
    """What to say when there is nothing to draw."""
    about: str = ""


@dataclass(frozen=True)
class Person:
    """One person's decisions in words, and how many at high or critical risk came within 3 seconds of being shown."""

    user: User | None
    name: str
    cells: Sequence[str]
    fast_high: int
    href: str
    bar: Bar | None = None


@dataclass(frozen=True)
class Topic:
    """One tab: its figures and its cards."""

    figures: Sequence[Figure] = ()
    cards: Sequence[Card] = field(default_factory=list)


def percent(share: float | None) -> str:
    return DASH if share is None else f"{_rounded(100 * share)}%"


def seconds(value: float | None) -> str:
    """A wait in whole seconds, for people to read."""
    return DASH if value is None else f"{int(value)} s" if value < 60 else formats.duration(value)


def counted(number: int) -> Cell:
    return Cell(f"{number:,}", number)


def money(amount: Decimal) -> Cell:
    return Cell(formats.money(amount), f"{amount:f}")


def share(value: float | None) -> Cell:
    """A share as a percentage; as a number between 0 and 1 for a spreadsheet."""
    return Cell(percent(value), None if value is None else f"{round(value, 4):g}")


def wait(value: int | None) -> Cell:
    """A wait for people to read; in seconds for a spreadsheet."""
    return Cell(seconds(value), value)


def on_day(day: date) -> Cell:
    return Cell(day_name(day), day.isoformat())


def at_hour(at: datetime, shown: str = "") -> Cell:
    return Cell(shown or hour_name(at), timezone.localtime(at).isoformat(timespec="minutes"))


def few(number: int) -> str:
    """Why there is no 95th percentile."""
    return "" if number >= LEAST_FOR_P95 else f"Too few ({number} of {LEAST_FOR_P95}) for p95"


def change(now: float | None, before: float | None, words: str) -> str:
    """ "↓ 24 s": by how much something has changed. Empty if nothing can be compared or nothing changed."""
    if now is None or before is None or now == before:
        return ""
    return f"{'↓' if now < before else '↑'} {words}"


def hour_name(at: datetime) -> str:
    return timezone.localtime(at).strftime("%H:%M")


def day_name(day: date) -> str:
    return day.strftime("%-d %b")


def plural(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def _rounded(value: float) -> str:
    """Whole percents; below ten with one decimal, unless that is zero."""
    return f"{value:.0f}" if value >= 10 or value == 0 or value == int(value) else f"{value:.1f}"
