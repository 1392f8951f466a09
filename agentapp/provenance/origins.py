"""The origin of every value in a call's arguments, and what people and rules are told about it."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agentapp.provenance import spelling
from agentapp.provenance.paths import Part, leaves, parts_of, path_of
from agentapp.provenance.sources import (
    CHANGED,
    CUSTOMER,
    DEFAULT,
    MODEL,
    OUTSIDE,
    STAFF,
    TRUSTED,
    UNMARKED,
    Found,
    Sources,
)
from approvals.digest import canonical
from approvals.masking import blotted, secret_texts

# If an argument has several values, rules are told the origin that comes last here.
WORST_LAST = (UNMARKED, DEFAULT, STAFF, TRUSTED, CUSTOMER, MODEL, OUTSIDE)
MAX_VALUES = 300
MAX_PIECES = 40
MAX_TOLD = 5
MAX_QUOTE = 120
SHORT_TEXT = 200
NOT_LOOKED_THROUGH = "Too much to look through"

# Lengths are bounded: without that, restarting within a long word would take quadratic time.
_PIECE = re.compile(
    r"[\w.+-]{1,64}+@[\w-]++(?:\.[\w-]++)+"  # an e-mail address
    r"|https?://[^\s\"'<>)\]]+"
    r"|\b[A-Za-z]{2}\d{2}[ -]?[A-Za-z0-9]{4}(?:[ -]?(?=[A-Za-z]{0,3}\d)[A-Za-z0-9]{4}){1,6}(?:[ -]?\d{1,4})?\b"
    r"|[$€£¥]\s?\d[\d.,']*"
    r"|\d[\d.,']*\d(?:[ -]\d{2,})*"
    r"|\b[\w-]{1,63}+(?:\.[\w-]++){0,8}\.[A-Za-z]{2,}+\b"  # a host
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_PART_OF_ADDRESS = re.compile(r"[,;\n]")


@dataclass(frozen=True)
class Origin:
    """Where one value came from. `part`: the piece of a longer text that this concerns."""

    path: str
    origin: str
    source: str = ""
    step: int | None = None
    call: str = ""
    ref: str = ""
    quote: str = ""
    part: str = ""

    def as_json(self) -> dict[str, Any]:
        """Without empty fields."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


def origins_of(
    sources: Sources,
    arguments: Mapping[str, Any],
    *,
    schema: Mapping[str, Any],
    was: Mapping[str, Any] | None = None,
    secret: Collection[str] = (),
) -> list[Origin]:
    """The origin of each value, in order. `was`: the arguments before a person changed them.

    A secret value has an origin but no quote, and appears in no other quote.
    """
    before = _stood(was) if was is not None else None
    hidden = secret_texts(dict(arguments), secret) if secret else set()
    found: list[Origin] = []
    for count, (parts, value) in enumerate(leaves(dict(arguments))):
        path = path_of(parts)
        if not parts:
            break
        if before is not None and (parts[0], canonical(value)) not in before:
            found.append(Origin(path, STAFF, CHANGED))
        elif _is_default(schema, parts[0], arguments):
            found.append(Origin(path, DEFAULT))
        elif not spelling.is_marked(value) or _is_choice(schema, parts, value):
            found.append(Origin(path, UNMARKED))
        elif count >= MAX_VALUES:
            found.append(Origin(path, OUTSIDE, NOT_LOOKED_THROUGH))
        else:
            told = _of_value(sources, path, value)
            is_secret = any(part in secret for part in parts)
            found += [_quoted(each, hidden, is_secret) for each in told]
    return found


def _of_value(sources: Sources, path: str, value: Any) -> list[Origin]:
    whole = sources.find(value)
    if whole is not None:
        return [_origin(path, whole)]
    if not isinstance(value, str):
        return [Origin(path, MODEL)]
    if spelling.is_identifier(spelling.folded(value)):
        split = sources.find_split(value)
        return [_origin(path, split) if split is not None else Origin(path, MODEL)]
    return _of_pieces(sources, path, value)


def _of_pieces(sources: Sources, path: str, text: str) -> list[Origin]:
    """The origins of the pieces that a text by the model took from others: an account, an address, an amount."""
    told: list[Origin] = []
    for count, piece in enumerate(pieces_of(text)):
        if count >= MAX_PIECES:
            return [*told, Origin(path, OUTSIDE, NOT_LOOKED_THROUGH)]
        found = sources.find(piece)
        if found is None and spelling.is_identifier(spelling.folded(piece)):
            found = sources.find_split(piece)
        if found is not None and found.source.origin == OUTSIDE:
            told.append(_origin(path, found, piece))
    return told[:MAX_TOLD] or [Origin(path, MODEL)]


def pieces_of(text: str) -> list[str]:
    """The pieces of a text that name something: accounts, addresses, amounts."""
    plain = spelling.folded(text) if not text.isascii() else text
    pieces = [piece.strip(" .,'") for piece in _PIECE.findall(plain)]
    if len(plain) <= SHORT_TEXT:
        segments = (segment.strip() for segment in _PART_OF_ADDRESS.split(plain))
        pieces += [s for s in segments if len(s) >= spelling.MIN_COMPACT and any(c.isdigit() for c in s)]
    return [p for p in dict.fromkeys(pieces) if _says_something(p)]


def _says_something(piece: str) -> bool:
    digits = sum(c.isdigit() for c in piece)
    alone = piece.isdigit() and (digits < 3 or _YEAR.fullmatch(piece))
    return bool(piece) and not alone and (digits >= 2 or not piece.replace(".", "").isdigit())


def _origin(path: str, found: Found, part: str = "") -> Origin:
    source = found.source
    quote = source.quote(found.spelled)[:MAX_QUOTE]
    return Origin(path, source.origin, source.title, source.step, source.call, source.ref, quote, part)


def _quoted(origin: Origin, hidden: Collection[str], is_secret: bool) -> Origin:
    if not hidden:
        return origin
    quote, part = ("", "") if is_secret else (blotted(origin.quote, hidden), blotted(origin.part, hidden))
    return Origin(origin.path, origin.origin, origin.source, origin.step, origin.call, origin.ref, quote, part)


def _is_default(schema: Mapping[str, Any], name: Part, arguments: Mapping[str, Any]) -> bool:
    described = schema.get("properties", {}).get(name)
    return isinstance(described, dict) and "default" in described and described["default"] == arguments[str(name)]


def _is_choice(schema: Mapping[str, Any], parts: Sequence[Part], value: Any) -> bool:
    """Whether the schema itself offers a value, so that the model need not have it from anybody."""
    return any(value in described.get("enum", ()) or described.get("const") == value
               for described in _described([schema], parts, schema.get("$defs", {})))  # fmt: skip


def _described(schemas: Iterable[Any], parts: Sequence[Part], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    here = [each for schema in schemas for each in _ways(schema, definitions)]
    if not parts:
        return here
    below = [
        each.get("items") if isinstance(parts[0], int) else (each.get("properties") or {}).get(parts[0])
        for each in here
    ]
    return _described([each for each in below if isinstance(each, dict)], parts[1:], definitions)


def _ways(schema: Any, definitions: Mapping[str, Any], depth: int = 4) -> list[dict[str, Any]]:
    """A schema with its reference followed, and each of its alternatives."""
    if not isinstance(schema, dict) or depth == 0:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _ways(definitions.get(reference.removeprefix("#/$defs/")), definitions, depth - 1)
    others = [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ()), *(schema.get("allOf") or ())]
    return [schema, *(way for other in others for way in _ways(other, definitions, depth - 1))]


# --- What rules and people are told ------------------------------------------------------------


def by_argument(origins: Iterable[Mapping[str, Any]], schema: Mapping[str, Any]) -> dict[str, str]:
    """What rules see: for each argument the worst origin of its values, and for each path that value's own."""
    told = dict.fromkeys(schema.get("properties", {}), UNMARKED)
    for row in origins:
        path, origin = str(row.get("path", "")), str(row.get("origin", MODEL))
        if not path:  # about the call as a whole
            continue
        for name in {path, str(next(iter(parts_of(path)), path))}:
            told[name] = max(told.get(name, UNMARKED), origin, key=WORST_LAST.index)
    return told


def after_edit(
    origins: Sequence[Mapping[str, Any]], was: Mapping[str, Any], now: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The origins of arguments that a person has changed: what they changed is theirs, the rest keeps its origin.

    A value that was elsewhere in the same argument keeps its origin too: removing an entry from a list moves the
    entries after it.
    """
    by_path: dict[str, list[dict[str, Any]]] = {}
    for row in origins:
        by_path.setdefault(str(row.get("path", "")), []).append(dict(row))
    before = _stood(was)
    found: list[dict[str, Any]] = []
    for parts, value in leaves(dict(now)):
        if not parts:
            continue
        path, stood = path_of(parts), before.get((parts[0], canonical(value)), [])
        rows = [row for place in ([path] if path in stood else stood) for row in by_path.get(place, [])]
        if not stood:
            rows = [Origin(path, STAFF, CHANGED).as_json()]
        found += [{**row, "path": path} for row in rows]
    return found


def _stood(arguments: Mapping[str, Any]) -> dict[tuple[Part, str], list[str]]:
    """For each argument and value, the paths at which the value occurs."""
    found: dict[tuple[Part, str], list[str]] = {}
    for parts, value in leaves(dict(arguments)):
        if parts:
            found.setdefault((parts[0], canonical(value)), []).append(path_of(parts))
    return found


def from_outside(origins: Iterable[Mapping[str, Any]]) -> list[str]:
    """The arguments that contain anything from outside, each once."""
    paths = [str(row.get("path", "")) for row in origins if row.get("origin") == OUTSIDE]
    return list(dict.fromkeys(str(next(iter(parts_of(path)), path)) for path in paths))
