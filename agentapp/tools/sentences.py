"""What people read about a call: made from the tool's own templates and the checked arguments.

A template is text with {names}: an argument, or `snapshot.name` for the state the tool looked up.
`{amount:money}` formats money, in the currency that its schema says (`x-currency`), or an argument or a snapshot named
`currency`. Nothing a model says can reach a sentence except as a value in it.
"""

import string
from collections.abc import Iterable
from typing import Any, Protocol

from approvals.amounts import amount_of
from approvals.masking import MASK

CURRENCY = {"USD": "$", "EUR": "€", "GBP": "£"}
MISSING = "(not given)"
MAX_TITLE_CHARS = 300
MAX_VALUE_CHARS = 160
_MAX_SHORTENED = MAX_VALUE_CHARS + 30  # with how many characters it has
MAX_TYPED_CHARS = 60


class Described(Protocol):
    """A tool's row: the templates of its contract."""

    name: str
    input_schema: Any
    title_template: str
    sentence_template: str
    effects_template: Any
    button_template: str
    confirm_template: str


def title(tool: Described, arguments: dict[str, Any], snapshot: dict[str, Any]) -> str:
    """One line that names the act and its object."""
    if not tool.title_template:
        return f"Call {tool.name}"
    return _text(tool, tool.title_template, arguments, snapshot)[:MAX_TITLE_CHARS]


def sentence(tool: Described, arguments: dict[str, Any], snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    """The full sentence in pieces, each {"text": …, "value": bool}: values are shown in bold."""
    if not tool.sentence_template:
        return [
            {"text": "The agent will call ", "value": False},
            {"text": tool.name, "value": True},
            {"text": " with the arguments below. This tool has no description of its effect.", "value": False},
        ]
    return _pieces(tool, tool.sentence_template, arguments, snapshot)


def effects(tool: Described, arguments: dict[str, Any], snapshot: dict[str, Any]) -> list[dict[str, str]]:
    """What leaves or changes, how hard it is to take back and who is told: {"icon", "title", "detail"}."""
    return [
        {
            "icon": line.get("icon", "zap"),
            "title": _text(tool, line.get("title", ""), arguments, snapshot),
            "detail": _text(tool, line.get("detail", ""), arguments, snapshot),
        }
        for line in tool.effects_template
    ]


def button(tool: Described, arguments: dict[str, Any], snapshot: dict[str, Any]) -> str:
    """The size of the effect, as on the button: "$214.50". Empty if the tool names none."""
    return _text(tool, tool.button_template, arguments, snapshot)[:60] if tool.button_template else ""


def target(tool: Described, arguments: dict[str, Any], snapshot: dict[str, Any]) -> str:
    """What the call acts on, as a person types it: "40117". Empty if none is named, or if nobody could type it."""
    text = _text(tool, tool.confirm_template, arguments, snapshot).strip()
    is_typed = len(text) <= MAX_TYPED_CHARS and text.isprintable() and MISSING not in text and MASK not in text
    return text if is_typed else ""


def money(value: Any, currency: str = "USD") -> str:
    """An amount with its currency. What is not a number, or is too large to write out, is shown as it is."""
    number = amount_of(value)
    if number is None:
        return _shortened(str(value))
    mark = CURRENCY.get(currency)
    return f"{mark}{number:,.2f}" if mark else f"{number:,.2f} {_shortened(currency)}"


def check_template(template: str, known: set[str], looks_up: bool = True) -> str:
    """What is wrong with a template, or empty text. `known` are the arguments; `looks_up`: there is a snapshot."""
    try:
        found = names(template)
    except ValueError as error:
        return f"The template {template!r} cannot be read: {error}."
    for name in found:
        if name.split(".")[0] not in known | ({"snapshot"} if looks_up else set()):
            return f"The template {template!r} names {name!r}, which is not an argument."
    return ""


def unnamed(tool: Described, arguments: Iterable[str]) -> list[str]:
    """The arguments that title, sentence and effects do not name. People find them only in the list of arguments."""
    named = {name.split(".")[0] for template in _templates(tool) for name in names(template)}
    return [name for name in arguments if name not in named]


def leaves_out(tool: Described, arguments: dict[str, Any]) -> bool:
    """Whether title, sentence and effects leave something of a call out: a value they do not name, unless it is the
    argument's default, or one that is too long for them. A title that may be cut names nothing.
    """
    whole = _templates(tool) if _fits(tool, arguments) else _templates(tool)[1:]
    named = {name for template in whole for name in names(template)}
    properties = tool.input_schema.get("properties", {})
    return not all(
        _is_told(name, value, named) or _is_default(properties.get(name), value) for name, value in arguments.items()
    )


def _fits(tool: Described, arguments: dict[str, Any]) -> bool:
    """Whether the title fits, however long what it takes from the snapshot is."""
    parts = [(name, form) for _, name, form, _ in string.Formatter().parse(tool.title_template) if name is not None]
    of_snapshot = [form for name, form in parts if name.startswith("snapshot.")]
    if "words" in of_snapshot:  # never shortened
        return False
    longest = len(_text(tool, tool.title_template, arguments, {})) + len(of_snapshot) * _MAX_SHORTENED
    return longest <= MAX_TITLE_CHARS


def _is_told(path: str, value: Any, named: set[str]) -> bool:
    if path in named:
        return len(_words(value)) <= MAX_VALUE_CHARS
    return isinstance(value, dict) and all(_is_told(f"{path}.{key}", item, named) for key, item in value.items())


def _is_default(described: Any, value: Any) -> bool:
    if not isinstance(described, dict) or "default" not in described:
        return False
    return type(described["default"]) is type(value) and bool(described["default"] == value)


def looked_up(tool: Described) -> dict[str, Any]:
    """A stand-in for the state that a tool's templates name: each value is its own name, in brackets."""
    state: dict[str, Any] = {}
    for path in (name for template in [*_templates(tool), tool.button_template] for name in names(template)):
        first, *keys = path.split(".")
        if first != "snapshot" or not keys:
            continue
        place = state
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place.setdefault(keys[-1], f"[{keys[-1].replace('_', ' ')}]")
    return state


def names(template: str) -> list[str]:
    """The names in a checked template, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]


def _templates(tool: Described) -> list[str]:
    lines = [text for line in tool.effects_template for text in (line.get("title", ""), line.get("detail", ""))]
    return [tool.title_template, tool.sentence_template, *lines]


def _text(tool: Described, template: str, arguments: dict[str, Any], snapshot: dict[str, Any]) -> str:
    return "".join(piece["text"] for piece in _pieces(tool, template, arguments, snapshot))


def _pieces(
    tool: Described, template: str, arguments: dict[str, Any], snapshot: dict[str, Any]
) -> list[dict[str, Any]]:
    names = {**arguments, "snapshot": snapshot}
    pieces: list[dict[str, Any]] = []
    for literal, name, form, _ in string.Formatter().parse(template):
        if literal:
            pieces.append({"text": literal, "value": False})
        if name is not None:
            value = _look_up(names, name)
            shown = money(value, _currency(tool, name, names)) if form == "money" and value is not None else None
            pieces.append({"text": _shown(value, form or "") if shown is None else shown, "value": True})
    return pieces


def _currency(tool: Described, name: str, names: dict[str, Any]) -> str:
    """The currency of an amount: what its schema says, else the call, else what the tool looked up."""
    described = _look_up(tool.input_schema, f"properties.{name}.x-currency") if "." not in name else None
    return str(described or _look_up(names, "currency") or _look_up(names, "snapshot.currency") or "USD")


def _look_up(names: dict[str, Any], path: str) -> Any:
    """Follow keys of plain objects only: a template cannot reach attributes."""
    value: Any = names
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _shown(value: Any, form: str) -> str:
    if value is None:
        return MISSING
    if form == "words":
        return str(value).replace("_", " ")
    return _shortened(_words(value))


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… ({len(text)} characters)"
