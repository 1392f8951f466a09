"""A form from a tool's JSON Schema, and arguments back from what was posted. Types are kept.

A field whose text comes back as it was shown keeps its value exactly, so that approving a form
nobody touched approves the very bytes that were proposed. Locked and secret fields are never read
from a post.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from agentapp.console import formats, schemas, typed_text
from agentapp.console.typed_text import Unreadable
from approvals.digest import MalformedJSON, parse
from approvals.masking import MASK

PREFIX = "arg"
SHOWN = "shown"
RESTORE = "restore"
MAX_DEPTH = 3
LONG_TEXT = 120
_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()

_INPUT_TYPES = {"date": "date", "time": "time", "email": "email", "uri": "url", "date-time": "text", "uuid": "text"}


@dataclass(frozen=True)
class Choice:
    value: str
    label: str
    selected: bool


@dataclass
class Field:
    """One control. `kind` names its template; `value` is what stands in it, as text."""

    name: str
    path: tuple[str, ...]
    label: str
    kind: str
    schema: dict[str, Any] = field(repr=False)
    original: Any = field(repr=False)
    value: str = ""
    values: list[str] = field(default_factory=list)
    checked: bool = False
    choices: list[Choice] = field(default_factory=list)
    children: list["Field"] = field(default_factory=list)
    input_type: str = "text"
    input_mode: str = ""
    prefix: str = ""
    suffix: str = ""
    hint: str = ""
    required: bool = False
    nullable: bool = False
    was: str | None = None
    error: str = ""
    restored: bool = False

    @property
    def pointer(self) -> str:
        return "/".join(self.path)

    @property
    def html_id(self) -> str:
        return "f-" + "-".join(self.path)

    @property
    def has_hidden(self) -> bool:
        """Whether the text holds characters that a control does not show."""
        return formats.visible(self.value) != self.value

    @property
    def words(self) -> str:
        """The value as people read it where it cannot be edited."""
        if self.kind == "checkbox":
            return "Yes" if self.checked else "No"
        if self.kind == "select":
            return next((choice.label for choice in self.choices if choice.selected), "")
        text = ", ".join(self.values) if self.kind in ("list", "checks") else self.value
        return f"{self.prefix}{text}" if self.prefix and text else text

    @property
    def wide(self) -> bool:
        return self.kind in ("textarea", "json", "group", "list", "checks")


@dataclass
class SchemaForm:
    """The fields of one call, the arguments they amount to, and what is wrong with them."""

    fields: list[Field]
    fixed: list[tuple[str, str, str]]
    arguments: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def all_fields(self) -> list[Field]:
        return list(_walk(self.fields))

    @property
    def changes(self) -> int:
        return sum(1 for item in self.all_fields if item.was is not None)

    def point_at(self, pointer: str, message: str) -> bool:
        """Put a message at the field a pointer names, or at the nearest one around it. False: there is none."""
        parts = tuple(part for part in pointer.split("/") if part)
        for length in range(len(parts), 0, -1):
            for item in self.all_fields:
                if item.path == parts[:length]:
                    item.error = item.error or message
                    self.errors[item.pointer] = item.error
                    return True
        return False


def build(
    schema: Mapping[str, Any],
    proposed: dict[str, Any],
    current: dict[str, Any],
    locked: Sequence[str] = (),
    secret: Sequence[str] = (),
    posted: QueryDict | None = None,
) -> SchemaForm:
    """The form of one call.

    `proposed` is what the agent asked for, `current` what waits now (they differ after somebody's
    edit), `posted` what a person has typed. Fields of `locked` and `secret` stand apart, unread.
    """
    form = SchemaForm([], [], dict(current))
    properties = schemas.properties(schema)
    definitions = schema.get("$defs", {})
    for name in schemas.in_order(schema, current):
        value = current.get(name, _ABSENT)
        described = schemas.resolve(properties.get(name, {}), definitions)
        if name in secret or described.get("x-secret"):
            form.fixed.append((name, "" if value is _ABSENT else MASK, "masked"))
        elif name in locked or described.get("x-lock") or "const" in described:
            if value is not _ABSENT:
                form.fixed.append((name, typed_text.inline(value), "fixed by policy"))
        else:
            required = name in schema.get("required", [])
            form.fields.append(_field((name,), described, definitions, value, required, MAX_DEPTH))
    proposed_fields = {f.pointer: f for f in _walk(_like(form.fields, proposed, definitions))}
    if posted is not None:
        _take(form, posted, proposed_fields.get(posted.get(RESTORE) or ""))
    for item in _walk(form.fields):
        _compare(item, proposed_fields.get(item.pointer))
    return form


def _like(fields: list[Field], values: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[Field]:
    """The same fields as they would stand with other values."""
    return [
        _field(f.path, f.schema, definitions, values.get(f.path[-1], _ABSENT), f.required, MAX_DEPTH) for f in fields
    ]


def _compare(item: Field, proposed: Field | None) -> None:
    """Note what the agent had proposed where it differs from what stands in the field."""
    if item.kind == "group" or proposed is None:
        return
    if item.kind == "checkbox":
        item.was = ("yes" if proposed.checked else "no") if proposed.checked != item.checked else None
    elif item.kind in ("list", "checks"):
        before, now = [v for v in proposed.values if v], [v for v in item.values if v]
        item.was = (", ".join(before) or "nothing") if before != now else None
    elif typed_text.lines(item.value) != typed_text.lines(proposed.value):
        item.was = next((c.label for c in proposed.choices if c.selected), proposed.value) or "nothing"


def _field(
    path: tuple[str, ...],
    described: dict[str, Any],
    definitions: Mapping[str, Any],
    value: Any,
    required: bool,
    depth: int,
) -> Field:
    described, nullable = schemas.without_null(described, definitions)
    item = Field(
        name=".".join((PREFIX, *path)),
        path=path,
        label=str(described.get("title") or path[-1].replace("_", " ").capitalize()),
        kind=_kind(described, value, depth),
        schema=described,
        original=value,
        hint=schemas.hint(described),
        required=required and not nullable,
        nullable=nullable,
    )
    given = "" if value is _ABSENT or value is None else value
    match item.kind:
        case "group":
            known = schemas.properties(described)
            inner = value if isinstance(value, dict) else {}
            item.children = [
                _field((*path, name), schemas.resolve(known.get(name, {}), definitions), definitions,
                       inner.get(name, _ABSENT), name in described.get("required", []), depth - 1)
                for name in schemas.in_order(described, inner)
            ]  # fmt: skip
        case "checkbox":
            item.checked = value is True
        case "select":
            _choose(item, None if value is _ABSENT else value)
        case "checks" | "list":
            item.values = [typed_text.shown(entry) for entry in given or []]
            items = schemas.resolve(described.get("items", {}), definitions)
            item.schema = {**described, "items": items}
            item.choices = [Choice(str(v), schemas.title(items, n, v), v in (given or []))
                            for n, v in enumerate(items.get("enum", []))]  # fmt: skip
        case "json":
            item.value = "" if value is _ABSENT else json.dumps(value, ensure_ascii=False, indent=2)
        case _:
            item.value = typed_text.shown(given)
            if described.get("format") == "money":
                item.value = typed_text.cents(item.value)
            _dress(item, described)
    return item


def _kind(described: Mapping[str, Any], value: Any, depth: int) -> str:
    """Which control suits a schema and the value that stands in it. What none suits is edited as JSON."""
    type_ = described.get("type")
    empty = value is _ABSENT or value is None
    if "enum" in described or schemas.constants(described):
        return "select"
    if type_ == "boolean" and isinstance(value, bool):
        return "checkbox"
    if type_ == "boolean":
        return "select" if empty else "json"
    if type_ in ("integer", "number") and (empty or (isinstance(value, int | float) and not isinstance(value, bool))):
        return "number"
    if type_ == "string" and (empty or isinstance(value, str)):
        long = described.get("maxLength", 0) > LONG_TEXT or described.get("format") == "multiline"
        return "textarea" if long or "\n" in str(value) else "input"
    if type_ == "object" and schemas.properties(described) and depth > 0 and (empty or isinstance(value, dict)):
        return "json" if empty else "group"
    if type_ == "array" and (empty or isinstance(value, list)):
        items = described.get("items")
        if isinstance(items, dict) and items.get("type") in ("string", "integer", "number"):
            return "checks" if "enum" in items else "list"
    return "json"


def _dress(item: Field, described: Mapping[str, Any]) -> None:
    form = described.get("format", "")
    item.input_type = _INPUT_TYPES.get(form, "text") if item.kind == "input" else "text"
    if item.input_type != "text" and item.value and not typed_text.suits(item.input_type, item.value):
        item.input_type = "text"
    if item.kind == "number":
        item.input_mode = "numeric" if described.get("type") == "integer" else "decimal"
    if form == "money":
        item.input_mode = "decimal"
        currency = str(described.get("x-currency", ""))
        item.prefix, item.suffix = typed_text.CURRENCY.get(currency, ""), currency


def _choose(item: Field, value: Any) -> None:
    """The choices of a field as JSON texts: an enum may mix types. One the schema does not know is kept."""
    known = [(v, label) for v, label in schemas.constants(item.schema)] or [
        (v, schemas.title(item.schema, n, v)) for n, v in enumerate(item.schema.get("enum", []))
    ]
    if item.schema.get("type") == "boolean":
        known = [(True, "Yes"), (False, "No")]
    if value is not None and all(not typed_text.same(v, value) for v, _ in known):
        known.insert(0, (value, typed_text.inline(value)))
    item.choices = [Choice(json.dumps(v), label, typed_text.same(v, value)) for v, label in known]
    if value is None and all(not choice.selected for choice in item.choices):
        item.choices.insert(0, Choice("", "Not given", True))
    elif not item.required:
        item.choices.insert(0, Choice("", "Not given", False))
    item.value = next((choice.value for choice in item.choices if choice.selected), "")


def _take(form: SchemaForm, posted: QueryDict, restored: Field | None) -> None:
    """Read what was posted into the form. A field that was not on the page keeps its value."""
    shown = set(posted.getlist(SHOWN))
    for item in form.fields:
        value = _read(item, posted, shown, form.errors, restored)
        if value is _ABSENT:
            form.arguments.pop(item.path[0], None)
        else:
            form.arguments[item.path[0]] = value


def _read(item: Field, posted: QueryDict, shown: set[str], errors: dict[str, str], restored: Field | None) -> Any:
    if restored is not None and item.pointer == restored.pointer:
        item.value, item.values, item.checked = restored.value, restored.values, restored.checked
        item.choices, item.restored = restored.choices, True
        return restored.original
    if item.kind == "group":
        inner = dict(item.original)
        for child in item.children:
            value = _read(child, posted, shown, errors, restored)
            if value is _ABSENT:
                inner.pop(child.path[-1], None)
            else:
                inner[child.path[-1]] = value
        return inner
    if item.name not in shown:
        return item.original
    try:
        return _read_one(item, posted)
    except Unreadable as problem:
        item.error = errors[item.pointer] = str(problem)
        return item.original


def _read_one(item: Field, posted: QueryDict) -> Any:
    """The value of one control. Raises Unreadable; what was typed stands in the field either way."""
    raw = typed_text.lines(posted.get(item.name) or "")
    if item.kind == "checkbox":
        item.checked = bool(raw)
        return item.checked
    if item.kind in ("list", "checks"):
        before = [value for value in item.values if value]
        item.values = [entry for entry in map(str.strip, posted.getlist(item.name)) if entry]
        item.choices = [Choice(c.value, c.label, c.value in item.values) for c in item.choices]
        if item.values == before:
            return item.original
        return [typed_text.read(entry, item.schema["items"]) for entry in item.values]
    before_text, item.value = typed_text.lines(item.value), raw
    if item.kind == "select":
        item.choices = [Choice(c.value, c.label, c.value == raw) for c in item.choices]
        if raw not in [c.value for c in item.choices]:
            raise Unreadable("Choose one of the values.")
    if raw == before_text:
        return item.original
    if not raw.strip() and (item.kind != "textarea" or not item.required):
        return _emptied(item)
    if item.kind in ("json", "select"):
        try:
            return parse(raw)
        except MalformedJSON as error:
            raise Unreadable(str(error)) from error
    return typed_text.read(raw, item.schema)


def _emptied(item: Field) -> Any:
    """What an emptied field means: an empty text where one is a text, else no value."""
    if item.nullable and item.original is not _ABSENT:
        return None
    if not item.required:
        return _ABSENT
    if item.schema.get("type") == "string" and item.kind == "input":
        return ""
    raise Unreadable("This cannot be empty.")


def _walk(fields: Sequence[Field]) -> Any:
    for item in fields:
        yield item
        yield from _walk(item.children)
