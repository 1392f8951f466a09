"""The code behind a tool's row, by the kind of its source."""

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from django.utils.module_loading import import_string

from agentapp import isolation
from agentapp.tools.base import Tool

# For each kind of source, the function that makes a tool from a row.
MAKERS: dict[str, str] = {
    "python": "agentapp.tools.python_source.of_row",
    "openapi": "agentapp.tools.openapi_source.make",
    "mcp": "agentapp.tools.mcp_source.make",
}


class ContractCalled(TypeError):
    """A contract read from a source was called. Call what `implementation_of` makes from its row instead."""


class Source(Protocol):
    """The parts of a source's row that its tools need to reach it."""

    name: str
    kind: str
    location: str
    schemes: Any
    credentials: Any
    hosts: Any
    approval_receipts: Any


class Row(Protocol):
    """The parts of a tool's row that its calls need."""

    name: str
    description: str
    input_schema: Any
    output_schema: Any
    wire: Any
    idempotency: str
    timeout_seconds: int
    version: str

    @property
    def source(self) -> Source: ...

    @property
    def consequential(self) -> bool: ...


def only_a_contract(*_: Any, **__: Any) -> NoReturn:
    """Stands in for the function of a contract that was read from a source outside our code. Raises ContractCalled."""
    raise ContractCalled("This is only a source's contract for a tool. Calls use what is made of the tool's row.")


def implementation_of(row: Row) -> Tool | None:
    """The code that runs for a call of this tool. None if there is none here, or none for a mocked run."""
    path = MAKERS.get(row.source.kind) if not isolation.is_on() else None
    if path is None:
        return None
    make: Callable[[Row], Tool | None] = import_string(path)
    return make(row)


def is_of_this_code(row: Row) -> bool:
    """Whether the code that would run here is what the row promises.

    Python code is as old as its process, but its row may have been synced since by a newer process, even with tools
    that do not exist here.
    """
    if row.source.kind != "python":
        return True
    implementation = implementation_of(row)
    return implementation is not None and implementation.version == row.version
