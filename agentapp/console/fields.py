"""One control for each part of a JSON Schema, with its current value."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agentapp.console import formats, schemas, typed_text
from approvals.masking import MASK, masked

PREFIX = "arg"
MAX_DEPTH = 3
LONG_TEXT = 120
# Up to this many choices are shown side by side, if their words fit on one line.
FEW_CHOICES, FEW_CHARS = 4, 40
# From this fraction of its limit on, a text shows how full it is.
NEARLY_FULL = 0.8
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()

_INPUT_TYPES = {
    "date": "date", "time": "time", "date-time": "datetime-local", "email": "email", "uri": "url", "uuid": "text",
}  # fmt: skip
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True)
class Terms:
    """What applies to every field of a form: the schema's definitions, and the names whose values are hidden."""

    definitions: Mapping[str, Any]
    secret: Collection[str] = ()

    def hides(self, name: str, described: Mapping[str, Any]) -> bool:
        return name in self.secret or bool(described.get("x-secret"))


@dataclass(frozen=True)
class Choice:
    value: str
    label: str
    selected: bool


@dataclass
class Field:
    """One control. `kind` names its template; `value` is its current value, as text."""

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
    # For a moment: what follows the time and cannot be edited.
    zone: str = ""
    hint: str = ""
    required: bool = False
    nullable: bool = False
    # One of the entries of a list of objects.
    is_row: bool = False
    was: str | None = None
    # A long text compared with what the agent proposed: (kept, removed or inserted, words).
    changed_words: Sequence[tuple[str, str]] = ()
    error: str = ""
    restored: bool = False
    # Where its values came from, as `origins` words it.
    origins: Sequence[Any] = ()

    @property
    def pointer(self) -> str:
        return "/".join(self.path)

    @property
    def html_id(self) -> str:
        return "f-" + _UNSAFE.sub(lambda char: f"_{ord(char[0]):x}", "-".join(self.path))

    @property
    def described_by(self) -> str:
        """The ids of what is said about its control: the hint, and what is wrong with it."""
        return f"h-{self.html_id} e-{self.html_id}" if self.error else f"h-{self.html_id}"

    @property
    def has_hidden(self) -> bool:
        """Whether the text contains characters that a control does not show."""
        return formats.visible(self.value) != self.value

    @property
    def words(self) -> str:
        """The value for people to read where it cannot be edited."""
        if self.kind == "checkbox":
            return "Yes" if self.checked else "No"
        if self.kind in ("select", "radio"):
            return next((choice.label for choice in self.choices if choice.selected), "")
        text = ", ".join(self.values) if self.kind in ("list", "checks") else self.value
        if self.schema.get("format") == "money":
            text = typed_text.grouped(text)
        return f"{self.prefix}{text}" if self.prefix and text else text

    @property
    def summary(self) -> str:
        """A list entry in one line: its first few values."""
        said = [child.words for child in walk(self.children) if child.kind not in ("group", "rows") and child.words]
        return typed_text.inline(", ".join(said[:3]))

    @property
    def wide(self) -> bool:
        return self.kind in ("textarea", "json", "group", "rows", "list", "checks")

    @property
    def is_open(self) -> bool:
        """Whether an optional part is shown open: it has a value, or something in it is wrong."""
        return self.required or self.original is not ABSENT or any(f.value or f.error for f in walk(self.children))

    @property
    def counter(self) -> str:
        """How full a text with a limit is, once that matters."""
        most = self.schema.get("maxLength")
        if self.kind not in ("input", "textarea") or not isinstance(most, int) or len(self.value) < NEARLY_FULL * most:
            return ""
        return f"{len(self.value):,} of {most:,} characters"

    @property
    def host(self) -> str:
        """For an address: its host."""
        if self.schema.get("format") != "uri":
            return ""
        try:
            return urlsplit(self.value).hostname or ""
        except ValueError:
            return ""

    @property
    def has_seconds(self) -> bool:
        """For a moment: whether it has seconds, and so is edited with them."""
        return self.value.count(":") == 2

    @property
    def may_add(self) -> bool:
        return bool(self._count < self.schema.get("maxItems", self._count + 1))

    @property
    def may_remove(self) -> bool:
        return bool(self._count > self.schema.get("minItems", 0))

    @property
    def _count(self) -> int:
        return len(self.children) if self.kind == "rows" else len(self.values)


def label_of(name: str, described: Mapping[str, Any]) -> str:
    """An argument's name for people."""
    return str(described.get("title") or name.replace("_", " ").capitalize())


def make(
    path: tuple[str, ...], described: dict[str, Any], terms: Terms, value: Any, required: bool, depth: int = MAX_DEPTH
) -> Field:
    """The control for one value. References in `described` must be resolved already."""
    described, nullable = schemas.without_null(described, terms.definitions)
    item = Field(
        name=".".join((PREFIX, *path)),
        path=path,
        label=label_of(path[-1], described),
        kind=_kind(described, terms, value, depth),
        schema=described,
        original=value,
        hint=schemas.hint(described),
        required=required and not nullable,
        nullable=nullable,
    )
    given = "" if value is ABSENT or value is None else value
    match item.kind:
        case "group":
            item.children = _children(item, terms, depth)
        case "rows":
            item.children = [row(item, str(n), terms, each, depth) for n, each in enumerate(given or [])]
        case "checkbox":
            item.checked = value is True
        case "select":
            _choose(item, None if value is ABSENT else value)
            chars = sum(len(choice.label) for choice in item.choices)
            item.kind = "radio" if len(item.choices) <= FEW_CHOICES and chars <= FEW_CHARS else "select"
        case "checks" | "list":
            item.values = [typed_text.shown(entry) for entry in given or []]
            items = schemas.resolve(described.get("items", {}), terms.definitions)
            item.schema = {**described, "items": items}
            item.choices = [Choice(typed_text.shown(v), schemas.title(items, n, v), v in (given or []))
                            for n, v in enumerate(items.get("enum", []))]  # fmt: skip
        case "json":
            shown = masked(value, terms.secret)
            item.value = "" if value is ABSENT else json.dumps(shown, ensure_ascii=False, indent=2)
        case _:
            item.value = typed_text.shown(given)
            if described.get("format") == "money":
                item.value = typed_text.cents(item.value)
            _dress(item, described)
    return item


def row(item: Field, key: str, terms: Terms, value: Any, depth: int = MAX_DEPTH) -> Field:
    """One entry of a list of objects."""
    items = schemas.resolve(item.schema.get("items", {}), terms.definitions)
    made = Field(
        name=f"{item.name}.{key}",
        path=(*item.path, key),
        label=str(items.get("title") or f"Entry {int(key) + 1}"),
        kind="group",
        schema=items,
        original=value,
        required=True,
        is_row=True,
    )
    made.children = _children(made, terms, depth)
    return made


def walk(fields: Sequence[Field]) -> Iterator[Field]:
    for item in fields:
        yield item
        yield from walk(item.children)


def _children(item: Field, terms: Terms, depth: int) -> list[Field]:
    known = schemas.properties(item.schema)
    values = item.original if isinstance(item.original, dict) else {}
    made = []
    for name in schemas.in_order(item.schema, values):
        described = schemas.resolve(known.get(name, {}), terms.definitions)
        value = values.get(name, ABSENT)
        if terms.hides(name, described) or described.get("x-lock") or "const" in described:
            made.append(_locked((*item.path, name), described, terms, value))
        else:
            required = name in item.schema.get("required", [])
            made.append(make((*item.path, name), described, terms, value, required, depth - 1))
    return made


def _locked(path: tuple[str, ...], described: dict[str, Any], terms: Terms, value: Any) -> Field:
    hidden = terms.hides(path[-1], described)
    shown = "" if value is ABSENT else MASK if hidden else typed_text.inline(masked(value, terms.secret))
    label = label_of(path[-1], described)
    why = "Masked" if hidden else "Fixed by policy"
    return Field(".".join((PREFIX, *path)), path, label, "locked", described, value, value=shown, hint=why)


def _kind(described: Mapping[str, Any], terms: Terms, value: Any, depth: int) -> str:
    """The control that suits a schema and its current value. Anything else is edited as JSON."""
    type_ = described.get("type")
    empty = value is ABSENT or value is None
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
    if _is_plain_object(described) and depth > 0 and (value is ABSENT or isinstance(value, dict)):
        return "group"
    if type_ == "array" and (empty or isinstance(value, list)):
        items = schemas.resolve(described.get("items", {}), terms.definitions)
        if items.get("type") in ("string", "integer", "number"):
            return "checks" if "enum" in items else "list"
        if _is_plain_object(items) and depth > 0 and all(isinstance(entry, dict) for entry in (() if empty else value)):
            return "rows"
    return "json"


def _is_plain_object(described: Mapping[str, Any]) -> bool:
    """Whether all its parts are named, so that each can have a field."""
    return (
        described.get("type") == "object"
        and bool(schemas.properties(described))
        and not ({"patternProperties", "anyOf", "oneOf", "allOf"} & described.keys())
    )


def _dress(item: Field, described: Mapping[str, Any]) -> None:
    form = described.get("format", "")
    item.input_type = _INPUT_TYPES.get(form, "text") if item.kind == "input" else "text"
    if item.input_type == "datetime-local":
        moment = _MOMENT.fullmatch(item.value)
        if moment is not None:
            item.value, item.zone = typed_text.to_minute(moment[1]), moment[2]
        elif not item.value:
            item.zone = "Z"
        item.suffix = "UTC" if item.zone == "Z" else item.zone
        item.input_type = "datetime-local" if item.zone else "text"
    elif item.input_type != "text" and item.value and not typed_text.suits(item.input_type, item.value):
        item.input_type = "text"
    if item.kind == "number":
        item.input_mode = "numeric" if described.get("type") == "integer" else "decimal"
    if form == "money":
        item.input_mode = "decimal"
        currency = str(described.get("x-currency", ""))
        item.prefix, item.suffix = typed_text.CURRENCY.get(currency, ""), currency


def _choose(item: Field, value: Any) -> None:
    """The choices of a field as JSON texts, since an enum may mix types. A value the schema does not know is kept."""
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
