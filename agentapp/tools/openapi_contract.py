"""An operation of a document → a tool's contract: what a model is told, what people read, how a call is sent."""

import dataclasses
import re
from typing import Any
from urllib.parse import urljoin

import httpx2

from agentapp.tools.base import Effect, Tool
from agentapp.tools.openapi import BODY, Operation
from agentapp.tools.sources import only_a_contract

# The shortest limit of any model provider.
MAX_DESCRIPTION_CHARS = 1024
_MAX_TITLE_CHARS = 140
# Names that a template can say.
_SAYABLE = re.compile(r"(?!snapshot$)[A-Za-z_][\w-]*")


def tool_of(operation: Operation, name: str, effect: Effect, base: str, servers: tuple[str, ...]) -> Tool:
    """The contract of one operation. `base` is the address of the service, `servers` are the document's own."""
    wire = wire_of(operation, base, servers)
    return Tool(
        name=name,
        description=_described(operation),
        input_schema=operation.input_schema,
        output_schema=operation.output_schema,
        function=only_a_contract,
        contract=None,
        effect=effect,
        title=_title(operation),
        sentence=_sentence(operation, str(httpx2.URL(wire["server"]).host)),
        wire=wire,
        claims={"summary": operation.summary, "tags": list(operation.tags), "deprecated": operation.deprecated},
    )


def wire_of(operation: Operation, base: str, servers: tuple[str, ...]) -> dict[str, Any]:
    """How a call reaches its server. It is part of the contract: people approve which server is asked."""
    own = operation.servers if operation.servers != servers else ()
    return {
        "method": operation.method,
        "server": urljoin(f"{base.rstrip('/')}/", own[0]) if own else base,
        "path": operation.path,
        "places": {name: _spare(dataclasses.asdict(place)) for name, place in operation.places.items()},
        "security": [sorted(one) for one in operation.security],
    }


def _spare(place: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in place.items() if value or name in ("where", "name")}


def _described(operation: Operation) -> str:
    said, summary = operation.description.strip(), operation.summary.strip()
    text = said if not summary or said.startswith(summary) else f"{summary}\n\n{said}"
    text = text or f"{operation.method.upper()} {operation.path}"
    return text if len(text) <= MAX_DESCRIPTION_CHARS else f"{text[: MAX_DESCRIPTION_CHARS - 1]}…"


# --- What people read --------------------------------------------------------------------------


def _title(operation: Operation) -> str:
    title = _literal(_line(operation.summary)[:_MAX_TITLE_CHARS])
    title = title or f"{operation.method.upper()} {_path(operation)}"
    return title if len(title) <= 2 * _MAX_TITLE_CHARS else ""  # people then read the tool's name


def _sentence(operation: Operation, host: str) -> str:
    needed = [
        name
        for name in operation.input_schema["required"]
        if operation.places[name].where not in ("path", BODY) and _SAYABLE.fullmatch(name)
    ]
    others = [f"{name} {{{name}}}" for name in needed]
    others += ["the body below"] if any(place.where == BODY for place in operation.places.values()) else []
    rest = f", with {', '.join(others)}" if others else ""
    return f"The agent will send {operation.method.upper()} {_path(operation)} to {_literal(host)}{rest}."


def _path(operation: Operation) -> str:
    """The path as a template over the arguments."""
    own = {place.name: name for name, place in operation.places.items() if place.where == "path"}
    found = ""
    for piece in re.split(r"(\{[^}]+\})", operation.path):
        name = own.get(piece[1:-1], "") if piece.startswith("{") else ""
        found += f"{{{name}}}" if _SAYABLE.fullmatch(name) else _literal(piece)
    return found


def _literal(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _line(text: str) -> str:
    return " ".join(text.split())
