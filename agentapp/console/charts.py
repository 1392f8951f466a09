"""Figures as shapes: what a template draws as SVG. Pure; no HTML.

Axes are HTML around the drawing, so text never scales. Series differ by dash or position as well as by hue.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2, log10

# The length of the drawing's sides.
SIDE = 100.0
MOST_LINES = 7
MOST_LABELS = 5
_GAP = 0.3


@dataclass(frozen=True)
class Series:
    """Values from left to right. None: no value, so the line breaks."""

    name: str
    hue: str
    values: Sequence[float | None]
    dashed: bool = False


@dataclass(frozen=True)
class Scale:
    """Where a value stands between 0, the bottom, and 1; and the labels of its lines, highest first."""

    place: Callable[[float], float]
    words: Sequence[str]
    factor: int = 0
    """On a scale by powers: how much more each line is than the one below."""


@dataclass(frozen=True)
class Lines:
    """A chart of lines, each as (class, path), with the area below the first if it is filled."""

    paths: list[tuple[str, str]]
    area: str
    grid: list[str]
    y: Sequence[str]
    x: Sequence[str]
    dots: Sequence[tuple[str, str]] = ()
    """Single points, as (class, path): a line needs two points."""


@dataclass(frozen=True)
class Column:
    """One column: (class, y, height) of each of its parts, in percent."""

    x: str
    width: str
    parts: list[tuple[str, str, str]]
    words: str
    href: str = ""


@dataclass(frozen=True)
class Columns:
    columns: list[Column]
    grid: list[str]
    y: Sequence[str]
    x: Sequence[str]
    limit: str = ""
    """The limit's distance from the top, in percent. Empty: no limit."""


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: (class, x, width) of each of its parts, in percent; its label and its link."""

    name: str
    parts: list[tuple[str, str, str]]
    words: str
    value: str
    href: str = ""
    mark: str = ""
    """Where a threshold stands, in percent. Empty: no threshold."""
    about: list[str] = field(default_factory=list)


def counts(most: float) -> Scale:
    """From zero up, with lines at whole numbers."""
    return amounts(max(most, 1), lambda value: f"{value:g}", least_step=1)


def amounts(most: float, words: Callable[[float], str], least_step: float = 0.01) -> Scale:
    """From zero up, with lines at round numbers."""
    step = max(_round_step(max(most, least_step) / 4), least_step)
    top = step * max(1, ceil(most / step - 1e-9))
    lines = [top - step * number for number in range(round(top / step) + 1)]
    return Scale(lambda value: value / top, [words(line) for line in lines])


def doubling(least: float, most: float, words: Callable[[float], str]) -> Scale:
    """Each line is twice the one below, or four times and so on if there would be too many lines."""
    base, factor = (30.0 if least >= 30 else 1.0), 2
    while True:
        step = log2(factor)
        low = floor(log2(max(least, 1) / base) / step + 1e-9) * step
        high = ceil(log2(max(most, 1) / base) / step - 1e-9) * step
        high = max(high, low + step)
        if (high - low) / step < MOST_LINES:
            break
        factor *= factor
    number = round((high - low) / step)
    lines = [base * 2 ** (high - step * place) for place in range(number + 1)]
    named = [words(line) for line in lines]
    if least < lines[-1]:
        named[-1] = f"≤ {named[-1]}"  # lower values are drawn there too
    return Scale(lambda value: (log2(max(value, 1) / base) - low) / (high - low), named, factor)


def lines(series: Sequence[Series], scale: Scale, x: Sequence[str], *, filled: bool = False) -> Lines:
    """A chart of one or several lines on one scale."""
    paths = [(f"s-{one.hue}{' dash' if one.dashed else ''}", _path(one.values, scale)) for one in series]
    area = ""
    if filled and series and len(series[0].values) > 1 and None not in series[0].values:
        area = f"{paths[0][1]} L100 100 L0 100Z"
    dots = [(f"s-{one.hue}", path) for one in series if (path := _dots(one.values, scale))]
    return Lines([one for one in paths if one[1]], area, _grid(scale), scale.words, thinned(x), dots)


def columns(
    names: Sequence[str],
    parts: Sequence[tuple[str, Sequence[float]]],
    scale: Scale,
    words: Sequence[str],
    hrefs: Sequence[str] = (),
    limit: float | None = None,
) -> Columns:
    """Columns of several parts, the first at the bottom. `parts`: a hue, and a value for each name."""
    room = SIDE / max(len(names), 1)
    made = []
    for at in range(len(names)):
        bottom = SIDE
        drawn: list[tuple[str, str, str]] = []
        for hue, values in parts:
            height = scale.place(values[at]) * SIDE
            if height > 0:
                drawn.append((f"f-{hue}", _n(bottom - height), _n(max(height - (_GAP if drawn else 0), 0.1))))
                bottom -= height
        left, width = at * room + room * 0.15, room * 0.7
        made.append(Column(_n(left), _n(width), drawn, words[at], hrefs[at] if hrefs else ""))
    line = "" if limit is None else _n(SIDE - scale.place(limit) * SIDE)
    return Columns(made, _grid(scale), scale.words, thinned(names), line)


def bar(name: str, parts: Sequence[tuple[str, float]], most: float, words: str, value: str, **more: object) -> Bar:
    """A bar among others on one scale. `parts`: hue and value."""
    left, drawn = 0.0, []
    for hue, number in parts:
        width = SIDE * number / most if most else 0.0
        if width > 0:
            drawn.append((f"f-{hue}", _n(left), _n(max(width - (_GAP if len(parts) > 1 else 0), 0.2))))
            left += width
    return Bar(name, drawn, words, value, **more)  # type: ignore[arg-type]


def thinned(labels: Sequence[str], most: int = MOST_LABELS) -> list[str]:
    """As many labels as fit below a chart, evenly spaced, including the first and the last."""
    if len(labels) <= most:
        return list(labels)
    last = len(labels) - 1
    return [labels[round(last * place / (most - 1))] for place in range(most)]


def _path(values: Sequence[float | None], scale: Scale) -> str:
    """A line through the values, leaving out single points."""
    drawn, pen = [], "M"
    for at, value in enumerate(values):
        if value is None or _is_alone(values, at):
            pen = "M"
            continue
        drawn.append(f"{pen}{_point(values, at, scale)}")
        pen = "L"
    return " ".join(drawn)


def _dots(values: Sequence[float | None], scale: Scale) -> str:
    """The single points, as strokes without length: their round ends are dots."""
    alone = [at for at, value in enumerate(values) if value is not None and _is_alone(values, at)]
    return " ".join(f"M{_point(values, at, scale)}h0" for at in alone)


def _is_alone(values: Sequence[float | None], at: int) -> bool:
    return all(value is None for value in (*values[max(at - 1, 0) : at], *values[at + 1 : at + 2]))


def _point(values: Sequence[float | None], at: int, scale: Scale) -> str:
    across = SIDE * at / max(len(values) - 1, 1)
    up = min(max(scale.place(values[at] or 0), 0), 1)
    return f"{_n(across)} {_n(SIDE * (1 - up))}"


def _grid(scale: Scale) -> list[str]:
    last = max(len(scale.words) - 1, 1)
    return [_n(SIDE * place / last) for place in range(len(scale.words))]


def _round_step(rough: float) -> float:
    """1, 2 or 5 times a power of ten, at least `rough`."""
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
