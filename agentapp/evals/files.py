"""Cases as files: a directory is a suite. YAML or JSON, with one case per file, or several under `cases`.

`suite.yaml` next to them describes the suite and its cases' defaults. Everything wrong is reported with its file, line
and field, and then nothing is loaded.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from agentapp import plain_yaml
from agentapp.evals.cases import Case

SUFFIXES = (".yaml", ".yml", ".json")
SUITE = "suite.yaml"
# A name that can be part of an address.
SUITE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
MAX_FILE_CHARS = 1_000_000
# Larger files are not read at all.
MAX_FILE_BYTES = 4 * MAX_FILE_CHARS
MAX_PROBLEMS = 50
# Aliases repeat what is written once: a few lines of them can fill any memory.
MAX_NODES = 200_000
# How much of an invalid value is shown.
MAX_SHOWN = 60
_OF_SUITE = {"name", "description", "defaults"}


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a file, and where."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {f'{self.field}: ' if self.field else ''}{self.message}"


class FilesRefused(Exception):
    """The files are not a valid suite. `problems` lists every place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)


@dataclass(frozen=True)
class Suite:
    """A suite as written in files."""

    name: str
    description: str = ""
    cases: tuple[Case, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """By case, its file and line."""


@dataclass(frozen=True)
class _Document:
    """One case as read: its values, and the nodes that know their lines."""

    file: str
    node: yaml.Node
    value: Any


def read(directory: Path) -> Suite:
    """The suite in a directory. Raises FilesRefused, with every place, and OSError."""
    problems: list[Problem] = []
    about = _about(directory, problems)
    defaults = about.get("defaults", {})
    cases: list[Case] = []
    files: dict[str, str] = {}
    for path in sorted(path for path in directory.rglob("*") if path.suffix in SUFFIXES and path.name != SUITE):
        for document in _documents(path, directory, problems):
            case = _case(document, defaults, problems)
            if case is None:
                continue
            if case.name in files:
                line = _line(document.node, ["name"])
                problems.append(Problem(document.file, line, "name", f"{case.name} is already in {files[case.name]}"))
                continue
            cases.append(case)
            files[case.name] = f"{document.file}:{_line(document.node, [])}"
    name = about.get("name") or directory.resolve().name
    if not SUITE_NAME.fullmatch(name):
        problems.append(Problem(SUITE, 1, "name", f"{name!r} is not a name of letters, digits, - and _"))
    if not cases and not problems:
        problems.append(Problem(str(directory), 1, "", "it contains no cases"))
    if problems:
        raise FilesRefused(problems[:MAX_PROBLEMS])
    return Suite(name, about.get("description", ""), tuple(cases), files)


def read_text(text: str, file: str = "case") -> Case:
    """One case as somebody wrote it. Raises FilesRefused, with every place."""
    problems: list[Problem] = []
    node = _parsed(text, file, problems)
    case = _case(_Document(file, node, _value(node)), {}, problems) if node is not None else None
    if case is None or problems:
        raise FilesRefused(problems[:MAX_PROBLEMS])
    return case


def written(document: Mapping[str, Any]) -> str:
    """A case as YAML, for people to read and change. Its fields are in order, which not every database keeps."""
    ordered = {name: document[name] for name in Case.model_fields if name in document}
    return yaml.dump(ordered | dict(document), Dumper=plain_yaml.Dumper, sort_keys=False, allow_unicode=True, width=110)


def _about(directory: Path, problems: list[Problem]) -> dict[str, Any]:
    path = directory / SUITE
    if not path.is_file():
        return {}
    node = _read(path, SUITE, problems)
    if node is None:
        return {}
    value = _value(node)
    if not isinstance(value, dict):
        problems.append(Problem(SUITE, 1, "", "it must be an object with name, description and defaults"))
        return {}
    for name in sorted(set(value) - _OF_SUITE, key=str):
        problems.append(Problem(SUITE, _line(node, [name]), str(name), "there is no such field"))
    wanted: dict[str, type] = {"name": str, "description": str, "defaults": dict}
    for name, type_ in wanted.items():
        if name in value and not isinstance(value[name], type_):
            problems.append(Problem(SUITE, _line(node, [name]), name, f"it is not of the type {type_.__name__}"))
    return value if not problems else {}


def _documents(path: Path, directory: Path, problems: list[Problem]) -> Iterator[_Document]:
    file = str(path.relative_to(directory))
    node = _read(path, file, problems)
    if node is None:
        return
    value = _value(node)
    if isinstance(value, dict) and set(value) == {"cases"} and isinstance(value["cases"], list):
        listed = _child(node, "cases")
        assert isinstance(listed, yaml.SequenceNode)
        for at, each in enumerate(value["cases"]):
            yield _Document(file, listed.value[at], each)
    else:
        yield _Document(file, node, value)


def _read(path: Path, file: str, problems: list[Problem]) -> yaml.Node | None:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            problems.append(Problem(file, 1, "", f"it has more than {MAX_FILE_BYTES} bytes"))
            return None
        return _parsed(path.read_text("utf-8-sig"), file, problems)
    except UnicodeDecodeError:
        problems.append(Problem(file, 1, "", "it is not UTF-8 text"))
        return None


def _parsed(text: str, file: str, problems: list[Problem]) -> yaml.Node | None:
    """The nodes of a file, which know their lines. JSON is YAML."""
    if len(text) > MAX_FILE_CHARS:
        problems.append(Problem(file, 1, "", f"it has more than {MAX_FILE_CHARS} characters"))
        return None
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=plain_yaml.Loader)
        if node is None:
            problems.append(Problem(file, 1, "", "it is empty"))
            return None
        _check(node)
        _value(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        problems.append(Problem(file, mark.line + 1 if mark else 1, "", str(said)))
        return None
    except RecursionError:
        problems.append(Problem(file, 1, "", "it is nested too deeply, or contains itself"))
        return None
    return node


def _check(node: yaml.Node) -> None:
    """Raises yaml.MarkedYAMLError if it is larger than a file may be, or has a key that JSON does not allow."""
    if _size(node, {}) > MAX_NODES:
        raise yaml.MarkedYAMLError(problem="it is too large with its aliases expanded", problem_mark=node.start_mark)
    _check_part(node)


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes it has with every alias expanded. Each is visited once."""
    if id(node) not in known:
        parts: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            parts = [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            parts = node.value
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def _check_part(node: yaml.Node) -> None:
    """Refuse duplicate names: YAML would take the last, but nobody means to write two."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a name must be text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value} appears twice", problem_mark=key.start_mark)
            seen.add(key.value)
            _check_part(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_part(value)
    elif isinstance(node, yaml.ScalarNode):
        _check_scalar(node)


def _check_scalar(node: yaml.ScalarNode) -> None:
    """JSON has no dates, and 2024-13-45 is not a date: in quotes, each is text."""
    kind = node.tag.rpartition(":")[2]
    try:
        known = isinstance(_value(node), str | int | float | None)
    except yaml.YAMLError:
        raise
    except (ValueError, LookupError, AttributeError):  # its pattern allows it, but its type does not
        known = False
    if not known:
        said = f"{node.value[:MAX_SHOWN]} is taken for a {kind}: write it in quotes"
        raise yaml.MarkedYAMLError(problem=said, problem_mark=node.start_mark)


def _value(node: yaml.Node) -> Any:
    loader = plain_yaml.Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _case(document: _Document, defaults: Mapping[str, Any], problems: list[Problem]) -> Case | None:
    if not isinstance(document.value, dict):
        problems.append(Problem(document.file, _line(document.node, []), "", "a case must be an object"))
        return None
    try:
        # As in JSON: a case's values cannot be dates and the like.
        return Case.model_validate_json(json.dumps({**defaults, **document.value}, allow_nan=False))
    except ValidationError as error:
        for found in error.errors(include_url=False, include_context=False, include_input=False):
            place = list(found["loc"])
            line, named = _line(document.node, place), ".".join(str(part) for part in place)
            problems.append(Problem(document.file, line, named, found["msg"].removeprefix("Value error, ")))
    except (TypeError, ValueError) as error:
        problems.append(Problem(document.file, _line(document.node, []), "", str(error)))
    return None


def _line(node: yaml.Node, place: Sequence[int | str]) -> int:
    """The line of a place in a document, or of the nearest parent that is in it."""
    at = node
    for part in place:
        child = _child(at, part)
        if child is None:
            break
        at = child
    return int(at.start_mark.line) + 1


def _child(node: yaml.Node, part: int | str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        return node.value[part] if part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == str(part)), None)
    return None
