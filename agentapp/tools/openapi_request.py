"""Arguments of an operation → its request. Pure: nothing is sent, and no credential is known here.

Every value is written so that it stays in its place: its path segment, its parameter or its header.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from agentapp.tools.openapi import Place
from agentapp.tools.results import InvalidArguments

# What may appear in a path outside its arguments.
_LITERAL = "/:@!$&'()*+,;=-._~%"
_DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}

type Pairs = list[tuple[str, str]]
type Part = tuple[str, tuple[str | None, bytes, str]]


@dataclass
class Outgoing:
    """A request, before credentials. Paths, names and values of queries and cookies are percent-encoded already."""

    method: str
    url: str
    query: Pairs = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    cookies: Pairs = field(default_factory=list)
    content: bytes | None = None
    parts: list[Part] | None = None
    """The parts of a multipart body, each as (name, (file name, content, content type))."""

    @property
    def full_url(self) -> str:
        if not self.query:
            return self.url
        return f"{self.url}?{'&'.join(f'{name}={value}' for name, value in self.query)}"


def made(wire: Mapping[str, Any], arguments: Mapping[str, Any]) -> Outgoing:
    """The request of one call; `wire` is as `openapi_contract.wire_of` makes it.

    Raises InvalidArguments for arguments that cannot be written.
    """
    places = {own: Place(**place) for own, place in wire["places"].items()}
    given = [(places[own], value) for own, value in arguments.items() if own in places]
    path, _, fixed = str(wire["path"]).partition("#")[0].partition("?")
    found = Outgoing(str(wire["method"]).upper(), f"{str(wire['server']).rstrip('/')}{_path(path, given)}")
    found.query = [(name, value) for name, _, value in (pair.partition("=") for pair in fixed.split("&")) if name]
    names = {place.name for place in places.values() if place.where == "query"} | {name for name, _ in found.query}
    for place, value in given:
        if place.where == "query":
            found.query += _query(place, value, names)
        elif place.where == "cookie":
            found.cookies += _query(place, value, names)
        elif place.where == "header" and value is not None:
            found.headers[place.name] = _header(place, value)
        elif place.where == "body":
            _body(found, place, value)
    return found


def plain(value: Any) -> str:
    """One value that is neither a list nor an object, as text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# --- The path ----------------------------------------------------------------------------------


def _path(template: str, given: list[tuple[Place, Any]]) -> str:
    values = {place.name: _segment(place, value) for place, value in given if place.where == "path"}

    def filled(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise InvalidArguments(f"{match[1]} is missing, but it is part of the path.")
        return values[match[1]]

    found = re.sub(r"\{([^}]+)\}|[^{]+", lambda m: filled(m) if m[1] else quote(m[0], safe=_LITERAL), template)
    if _leads_away(found):
        raise InvalidArguments("Part of the path would lead away from the operation.")
    return found if found.startswith("/") else f"/{found}"


def _segment(place: Place, value: Any) -> str:
    texts = _flat(_json(value) if place.media else value, place.explode)
    if not texts or any(text == "" for _, text in texts):
        raise InvalidArguments(f"{place.name} is empty, but it is part of the path.")
    if any(_leads_away(text) for _, text in texts):
        raise InvalidArguments(f"{place.name} would lead out of its place in the path.")
    written = [_paired(key, text) for key, text in texts]
    if place.style == "simple":
        return ",".join(written)
    if place.style == "label":
        return "." + ("." if place.explode else ",").join(written)
    name = quote(place.name, safe="")
    if not place.explode:
        return f";{name}={','.join(written)}"
    return "".join(f";{text}" if key else f";{name}={text}" for (key, _), text in zip(texts, written, strict=True))


def _leads_away(text: str) -> bool:
    """Whether it contains a segment that a server, or a proxy before it, would read as a way up."""
    for _ in range(4):
        text, before = unquote(text), text
        parts = (re.sub(r"[\t\r\n\x00]|;.*", "", part).strip() for part in re.split(r"[/\\]", text))
        if any(part in (".", "..") for part in parts):
            return True
        if text == before:
            return False
    return True  # no honest name is encoded so many times


# --- Queries, cookies, headers ------------------------------------------------------------------


def _query(place: Place, value: Any, names: set[str]) -> Pairs:
    """A query parameter as names and values. Missing values are not sent."""
    if value is None or value == [] or value == {}:
        return []
    own = quote(place.name, safe="")
    if place.media:
        return [(own, quote(_json(value), safe=""))]
    if place.style == "deepObject":
        return _deep(own, value)
    if isinstance(value, dict) and place.explode:
        taken = sorted(set(value) & (names - {place.name}))
        if taken:
            raise InvalidArguments(f"{place.name} names {taken[0]!r}, which is another parameter.")
        return [(quote(key, safe=""), text) for key, text in _encoded(value)]
    if isinstance(value, list) and place.explode:
        return [(own, text) for _, text in _encoded(value)]
    between = _DELIMITERS.get(place.style, ",")
    return [(own, between.join(_paired(key, text) for key, text in _flat(value, False)))]


def _deep(name: str, value: Any) -> Pairs:
    """Objects in objects, as in name[key][0]=value."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = ((str(index), item) for index, item in enumerate(value))  # type: ignore[assignment]
    else:
        return [] if value is None else [(name, quote(plain(value), safe=""))]
    return [pair for key, item in inner for pair in _deep(f"{name}%5B{quote(key, safe='')}%5D", item)]


def _header(place: Place, value: Any) -> str:
    texts = _flat(_json(value) if place.media else value, place.explode)
    text = ",".join(f"{key}={text}" if key else text for key, text in texts)
    if not text.isascii() or not text.isprintable():
        raise InvalidArguments(f"{place.name} is a header: it must be one line of plain letters.")
    return text


def _flat(value: Any, explode: bool) -> list[tuple[str, str]]:
    """A value's texts, each with its key if it has one. If objects are not exploded, their keys are texts too."""
    if isinstance(value, list):
        return [("", _single(item)) for item in value if item is not None]
    if isinstance(value, dict):
        pairs = [(key, _single(item)) for key, item in value.items() if item is not None]
        return pairs if explode else [("", text) for pair in pairs for text in pair]
    return [] if value is None else [("", plain(value))]


def _encoded(value: Any) -> list[tuple[str, str]]:
    return [(key, quote(text, safe="")) for key, text in _flat(value, True)]


def _paired(key: str, text: str) -> str:
    return f"{quote(key, safe='')}={quote(text, safe='')}" if key else quote(text, safe="")


def _single(value: Any) -> str:
    """A value inside a list or an object. What no style can express is written as JSON."""
    return _json(value) if isinstance(value, list | dict) else plain(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# --- Bodies ------------------------------------------------------------------------------------


def _body(found: Outgoing, place: Place, value: Any) -> None:
    if place.media == "multipart/form-data":
        found.parts = _parts(place, value)
        return
    if place.media == "application/x-www-form-urlencoded":
        pairs = _form(place, value)
        found.content = "&".join(f"{name}={text}" for name, text in pairs).encode()
    elif place.media == "text/plain":
        found.content = _single(value).encode()
    else:
        found.content = _json(value).encode()
    found.headers["Content-Type"] = f"{place.media}; charset=utf-8" if place.media == "text/plain" else place.media


def _form(place: Place, value: Any) -> Pairs:
    pairs: Pairs = []
    for name, item in _object(value).items():
        said = place.parts.get(name, {})
        style, explode = said.get("style", "form"), said.get("explode", True)
        media = said.get("contentType", "")
        if isinstance(item, dict) and style == "form" and not media:
            media = "application/json"  # the style does not cover objects, whose keys are not those of the form
        pairs += _query(Place("query", name, style, explode, media if "json" in media else ""), item, set())
    return pairs


def _parts(place: Place, value: Any) -> list[Part]:
    parts: list[Part] = []
    for name, item in _object(value).items():
        said = place.parts.get(name, {})
        for one in item if isinstance(item, list) else [item]:
            if one is None:
                continue
            is_json = isinstance(one, dict | list)
            media = said.get("contentType") or ("application/json" if is_json else "")
            text = _json(one) if is_json or "json" in media else plain(one)
            if said.get("file"):
                parts.append((name, (name, text.encode(), media or "application/octet-stream")))
            else:
                parts.append((name, (None, text.encode(), media or "text/plain; charset=utf-8")))
    return parts


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArguments("The body is a form: it must be an object with its fields.")
    return value
