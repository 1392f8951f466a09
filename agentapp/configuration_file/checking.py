"""What is wrong with one entry of a file: with its shape, and with the row it makes. Both are reported together."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pydantic
from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from agentapp.configuration_file.shape import SECTIONS, Known, columns
from agentapp.models import Route
from approvals import channels, escalation, thresholds
from approvals.models import Channel, Rule


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a file, and where, for example rules.over-limit.condition."""

    path: str
    message: str
    place: tuple[int | str, ...] = field(default=(), compare=False)
    """The place within an entry whose shape is wrong."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True)
class Shaped:
    """The part of an entry that has the right shape, and what is wrong with the rest. `given` is the whole entry."""

    path: str
    given: Mapping[str, Any]
    entry: dict[str, Any]
    problems: list[Problem] = field(default_factory=list)

    @property
    def left_out(self) -> set[str]:
        """The keys that the entry lacks, wholly or in part."""
        return {problem.path.removeprefix(f"{self.path}.").split(".")[0] for problem in self.problems}

    def names(self, key: str) -> list[str] | None:
        """The names a key lists; some may not exist. None: the entry does not say."""
        listed = self.given.get(key)
        return [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else None

    def others(self, found: Iterable[Problem]) -> list[Problem]:
        """Those that are not about what was left out."""
        places = [problem.path for problem in self.problems]
        return [problem for problem in found if not any(self._same(problem.path, place) for place in places)]

    def _same(self, path: str, place: str) -> bool:
        return _within(path, place) or (path != self.path and _within(place, path))


def _within(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}.")


def shaped(section: str, path: str, raw: Any, known: Known) -> Shaped | list[Problem]:
    """An entry without the parts of the wrong shape. If it is not an entry at all, only what is wrong."""
    shape = pydantic.TypeAdapter(SECTIONS[section])
    given = {} if raw is None else raw
    if not isinstance(given, dict):
        return _tried(shape, path, given, known)[1]
    entry, problems = _tried(shape, path, given, known)
    kept, found = given, problems
    while entry is None:
        smaller = _without(kept, [problem.place for problem in found])
        if smaller == kept:
            return problems
        kept = smaller
        entry, found = _tried(shape, path, kept, known)
    return Shaped(path, given, entry, problems)


def _tried(
    shape: pydantic.TypeAdapter[Any], path: str, given: Any, known: Known
) -> tuple[dict[str, Any] | None, list[Problem]]:
    try:
        return shape.validate_python(given, context=known), []
    except pydantic.ValidationError as error:
        return None, pydantic_problems(path, error)


def _without(given: dict[Any, Any], places: Collection[tuple[Any, ...]]) -> dict[Any, Any]:
    """The same without what is at these places, or without the list that holds it."""
    heads = {str(place[0]) for place in places if len(place) == 1}
    kept = {}
    for key, value in given.items():
        names = {str(key), repr(key)}  # a key that is not text is named by the latter
        inner = [place[1:] for place in places if len(place) > 1 and str(place[0]) in names]
        if names & heads or (inner and not isinstance(value, dict)):
            continue
        kept[key] = _without(value, inner) if inner else value
    return kept


def row_problems(shaped: Shaped, row: models.Model, is_new: bool) -> list[Problem]:
    """What the database would refuse. In an existing row, only what the entry says is checked."""
    fields = {field.name for field in row._meta.fields}
    exclude = fields & shaped.left_out if is_new else fields - shaped.entry.keys()
    problems = []
    try:
        row.clean_fields(exclude)
    except ValidationError as error:
        for column, messages in error.message_dict.items():
            problems += [Problem(f"{shaped.path}.{column}", message) for message in messages]
    for constraint in row._meta.constraints:
        try:
            constraint.validate(type(row), row, exclude=fields & shaped.left_out)
        except ValidationError as error:
            problems += [Problem(_place_of(constraint, shaped.path), message) for message in error.messages]
    return problems


def _place_of(constraint: models.BaseConstraint, path: str) -> str:
    """The place a constraint is about: one key, or the whole entry."""
    condition = getattr(constraint, "condition", None)
    about = sorted(condition.referenced_base_fields) if condition is not None else []
    return f"{path}.{about[0]}" if len(about) == 1 else path


def by_key(name: str, error: ValidationError) -> Iterator[tuple[str, str]]:
    """(place, what is wrong) for a row that an entry holds under its name."""
    for column, messages in error.message_dict.items():
        where = name if column in {"name", NON_FIELD_ERRORS} else f"{name}.{column}"
        yield from ((where, message) for message in messages)


def channel_problems(path: str, row: Channel) -> list[Problem]:
    try:
        channels.open_channel(row)
    except LookupError as error:
        return [Problem(f"{path}.kind", str(error))]
    except pydantic.ValidationError as error:
        return pydantic_problems(f"{path}.config", error)
    return []


def threshold_problems(path: str, row: Rule, groups: list[str]) -> list[Problem]:
    try:
        thresholds.validate_groups(row.thresholds, groups)
        thresholds.validate_steps(row.thresholds, escalation.groups_named(row.escalation))
    except ValidationError as error:
        return [Problem(f"{path}.thresholds", message) for message in error.messages]
    return []


def route_problems(path: str, own: set[str], entry: dict[str, Any]) -> list[Problem]:
    """`own`: the tools that the agent may call."""
    problems = []
    for name, route in entry.get("routes", {}).items():
        row = Route(name=name, **columns(route))
        try:
            row.clean_fields(exclude={"agent"})
        except ValidationError as error:
            problems += [Problem(f"{path}.routes.{where}", message) for where, message in by_key(name, error)]
        foreign = [tool for tool in route.get("tools", []) if tool not in own]
        problems += [
            Problem(f"{path}.routes.{name}.tools", f"{tool!r} is not among the agent's tools.") for tool in foreign
        ]
    return problems


def pydantic_problems(path: str, error: pydantic.ValidationError) -> list[Problem]:
    problems = []
    for found in error.errors():
        place = tuple(part for part in found["loc"] if part != "[key]")
        where = ".".join([path, *map(str, place)])
        problems.append(Problem(where, str(found.get("ctx", {}).get("error", found["msg"])), place))
    return problems
