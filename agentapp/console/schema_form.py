"""A form from a tool's JSON Schema, and arguments from what was posted. Types are kept.

A field whose text comes back as it was shown keeps its value exactly, so that approving a form
nobody touched approves exactly the bytes that were proposed. Locked and secret fields are never
read from a post.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.http import QueryDict
from django.utils.text import capfirst

from agentapp.console import fields, schemas, typed_text
from agentapp.console.differences import changed_words
from agentapp.console.fields import ABSENT, Choice, Field, Terms
from agentapp.console.typed_text import Unreadable
from approvals import lens
from approvals.digest import MalformedJSON, parse
from approvals.masking import MASK, STILL_MASKED, masked, unmasked, with_masks

# What a form posts with its fields: which of them were on the page, and what was pressed.
SHOWN, ROWS = "shown", "rows"
RESTORE, ADD, REMOVE = "restore", "add", "remove"
# In a list: the entry that is not part of it yet.
NEW = "new"


class Fixed(NamedTuple):
    """An argument shown apart and not read from a post: its name, shown value, reason, label and origin."""

    name: str
    value: str
    why: str
    label: str
    origins: Sequence[Any] = ()


@dataclass
class SchemaForm:
    """The fields of one call, the resulting arguments, and what is wrong with them."""

    fields: list[Field]
    fixed: list["Fixed"]
    arguments: dict[str, Any]
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def all_fields(self) -> list[Field]:
        return list(fields.walk(self.fields))

    @property
    def labels(self) -> dict[str, str]:
        """The label of each argument that is shown."""
        return {item.path[0]: item.label for item in self.fields} | {each.name: each.label for each in self.fixed}

    @property
    def changes(self) -> int:
        return sum(1 for item in self.all_fields if item.was is not None)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """What is wrong, each with its field's label; without a label, what is wrong with the whole."""
        found = [(item.label, item.error) for item in self.all_fields if item.error]
        return [*found, *((("", self.errors[""]),) if "" in self.errors else ())]

    def point_at(self, pointer: str, message: str) -> bool:
        """Show a message at the field a pointer names, or the nearest one around it. False: there is none."""
        parts = tuple(part for part in pointer.split("/") if part)
        for length in range(len(parts), 0, -1):
            for item in self.all_fields:
                if item.path == parts[:length]:
                    item.error = item.error or _beside(item, pointer, message)
                    self.errors[item.pointer] = item.error
                    return True
        return False


def _beside(item: Field, pointer: str, message: str) -> str:
    """A message without the name that programs use, since it is shown under the field's label."""
    if item.pointer == pointer and message == f"{item.path[-1]} is missing.":
        return "This is missing."
    return capfirst(message.removeprefix(f"{pointer}: "))


def build(
    schema: Mapping[str, Any],
    proposed: dict[str, Any],
    current: dict[str, Any],
    locked: Sequence[str] = (),
    secret: Sequence[str] = (),
    posted: QueryDict | None = None,
) -> SchemaForm:
    """The form of one call.

    `proposed` is what the agent asked for, `current` what waits now (they differ if somebody edited it), `posted`
    what a person has typed. Fields in `locked` and `secret` are shown apart and not read.
    """
    form = SchemaForm([], [], dict(current))
    properties = schemas.properties(schema)
    terms = Terms(schema.get("$defs", {}), secret)
    for name in schemas.in_order(schema, current):
        value = current.get(name, ABSENT)
        described = schemas.resolve(properties.get(name, {}), terms.definitions)
        if terms.hides(name, described):
            shown = "" if value is ABSENT else MASK
            form.fixed.append(Fixed(name, shown, "masked", fields.label_of(name, described)))
        elif name in locked or described.get("x-lock") or "const" in described:
            if value is not ABSENT:
                shown = typed_text.inline(masked(value, secret))
                form.fixed.append(Fixed(name, shown, "fixed by policy", fields.label_of(name, described)))
        else:
            form.fields.append(fields.make((name,), described, terms, value, name in schema.get("required", [])))
    as_proposed = [
        fields.make(f.path, f.schema, terms, proposed.get(f.path[-1], ABSENT), f.required) for f in form.fields
    ]
    proposed_fields = {item.pointer: item for item in fields.walk(as_proposed)}
    if posted is not None:
        reader = _Reader(posted, terms, form.errors, proposed_fields.get(posted.get(RESTORE) or ""))
        for item in form.fields:
            value = reader.read(item)
            if value is ABSENT:
                form.arguments.pop(item.path[0], None)
            else:
                form.arguments[item.path[0]] = value
    for item in form.all_fields:
        _compare(item, proposed_fields.get(item.pointer))
    return form


def _compare(item: Field, proposed: Field | None) -> None:
    """Note what the agent proposed, where the field has a different value."""
    if item.kind in ("group", "locked") or proposed is None or proposed.kind != item.kind:
        return
    if item.kind == "checkbox":
        item.was = ("yes" if proposed.checked else "no") if proposed.checked != item.checked else None
    elif item.kind == "rows":
        if [child.path for child in item.children] != [child.path for child in proposed.children]:
            count = len(proposed.children)
            item.was = f"{count} entr{'y' if count == 1 else 'ies'}"
    elif item.kind in ("list", "checks"):
        before, now = proposed.values, item.values
        item.was = (", ".join(before) or "nothing") if before != now else None
    elif not _same_text(item, proposed.value):
        item.was = next((c.label for c in proposed.choices if c.selected), proposed.value) or "nothing"
        if item.kind == "textarea":
            item.changed_words = changed_words(proposed.value, item.value)


def _same_text(item: Field, other: str) -> bool:
    one, two = typed_text.lines(item.value), typed_text.lines(other)
    if item.input_type in ("time", "datetime-local"):
        # Browsers leave out seconds if they are zero.
        return typed_text.to_minute(one) == typed_text.to_minute(two)
    return one == two


class _Reader:
    """What a post says about fields. A field that was not on the page keeps its value."""

    def __init__(self, posted: QueryDict, terms: Terms, errors: dict[str, str], restored: Field | None) -> None:
        self.posted, self.terms, self.errors, self.restored = posted, terms, errors, restored
        self.shown = set(posted.getlist(SHOWN))

    def read(self, item: Field) -> Any:
        if self.restored is not None and item.pointer == self.restored.pointer:
            item.value, item.values, item.checked = self.restored.value, self.restored.values, self.restored.checked
            item.choices, item.children, item.restored = self.restored.choices, self.restored.children, True
            return self.restored.original
        if item.kind == "locked":
            return item.original
        if item.kind == "group":
            return self._object(item)
        if item.name not in self.shown:
            return item.original
        if item.kind == "rows":
            return self._rows(item)
        try:
            value = self._one(item)
            if with_masks(value) - with_masks(item.original):
                raise Unreadable(STILL_MASKED)
            return value
        except Unreadable as problem:
            item.error = self.errors[item.pointer] = str(problem)
            return item.original

    def _object(self, item: Field) -> Any:
        inner = dict(item.original) if isinstance(item.original, dict) else {}
        for child in item.children:
            value = self.read(child)
            if value is ABSENT:
                inner.pop(child.path[-1], None)
            else:
                inner[child.path[-1]] = value
        return ABSENT if item.original is ABSENT and not inner and not item.is_row else inner

    def _rows(self, item: Field) -> Any:
        """The entries still on the page, in order, plus a new one if that was requested."""
        keys = [name.removeprefix(f"{item.name}.") for name in self.posted.getlist(ROWS)]
        keys = [key for key in keys if key.isdecimal() and len(key) < 6]
        keys = [key for key in dict.fromkeys(keys) if self.posted.get(REMOVE) != f"{item.name}.{key}"]
        before = {child.path[-1]: child for child in item.children}
        if self.posted.get(ADD) == item.name:
            keys.append(str(max([len(before) - 1, *map(int, keys)]) + 1))
        item.children = [before.get(key) or fields.row(item, key, self.terms, ABSENT) for key in keys]
        values = [self.read(child) for child in item.children]
        # No entries, where no list was: still no value, or null.
        return values if values or isinstance(item.original, list) else item.original

    def _one(self, item: Field) -> Any:
        """The value of one control. Raises Unreadable. Either way, the field keeps what was typed."""
        raw = typed_text.lines(self.posted.get(item.name) or "")
        if item.kind == "checkbox":
            item.checked = bool(raw)
            return item.checked
        if item.kind in ("list", "checks"):
            return self._several(item)
        before, item.value = item.value, raw
        if item.kind in ("select", "radio"):
            item.choices = [Choice(c.value, c.label, c.value == raw) for c in item.choices]
            if raw not in [c.value for c in item.choices]:
                raise Unreadable("Choose one of the values.")
        if _same_text(item, before) or raw == typed_text.lines(lens.in_words(before)):
            return item.original  # unchanged, or as it was shown
        if not raw.strip() and (item.kind != "textarea" or not item.required):
            return _emptied(item)
        if item.kind in ("json", "select", "radio"):
            try:
                return unmasked(parse(raw), item.original, self.terms.secret)
            except MalformedJSON as error:
                raise Unreadable(str(error)) from error
        if item.zone:
            raw = f"{raw}:00{item.zone}" if raw.count(":") == 1 else raw + item.zone
        return typed_text.read(raw, item.schema)

    def _several(self, item: Field) -> Any:
        before = list(item.values)
        typed = [typed_text.lines(entry) for entry in self.posted.getlist(item.name)]
        removed = (self.posted.get(REMOVE) or "").removeprefix(f"{item.name}.")
        if removed.isdecimal() and int(removed) < len(typed):
            del typed[int(removed)]
        typed += [added for each in self.posted.getlist(f"{item.name}.{NEW}") if (added := typed_text.lines(each))]
        if item.kind == "checks":
            # Checkboxes are in the schema's order; earlier choices keep their own order and number.
            ticked = set(typed)
            typed = [*(value for value in before if value in ticked), *(each for each in typed if each not in before)]
        # An unchanged list stays as it is, including its blanks.
        if typed == [typed_text.lines(lens.in_words(value)) for value in before]:
            return item.original
        kept = {typed_text.lines(value): value for value in before}
        # An emptied entry is removed, unless it was empty before.
        blanks = before.count("")
        item.values = []
        for entry in (kept.get(each, each.strip()) for each in typed):
            blanks -= not entry
            if entry or blanks >= 0:
                item.values.append(entry)
        item.choices = [Choice(c.value, c.label, c.value in item.values) for c in item.choices]
        if item.values == before:
            return item.original
        return [typed_text.read(entry, item.schema["items"]) for entry in item.values]


def _emptied(item: Field) -> Any:
    """What an emptied field means: null or no value if that is allowed, else an empty text. Raises Unreadable."""
    if item.nullable and item.original is not ABSENT:
        return None
    if not item.required:
        return ABSENT
    if item.schema.get("type") == "string" and item.kind == "input":
        return ""
    raise Unreadable("This cannot be empty.")
