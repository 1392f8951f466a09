"""The code behind a tool's row, by the kind of its source."""

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from django.utils.module_loading import import_string

from agentapp import isolation
from agentapp.tools.base import Tool

# For each kind of source what makes a tool of a row of it.
MAKERS: dict[str, str] = {
    "python": "agentapp.tools.python_source.of_row",
    "openapi": "agentapp.tools.openapi_source.make",
    "mcp": "agentapp.tools.mcp_source.make",
}


class ContractCalled(TypeError):
    """A contract was called that was read from a source: what is called is made of its row, by `implementation_of`."""


class Source(Protocol):
    """Of a source's row, what its tools need to reach it."""

    name: str
    kind: str
    location: str
    schemes: Any
    credentials: Any
    hosts: Any
    approval_receipts: Any


class Row(Protocol):
    """Of a tool's row, what calls of it need."""

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
    """Stands for the function in what was read from a source that is no code of ours. Raises ContractCalled."""
    raise ContractCalled("This is what a source promises of a tool. What is called is made of the tool's row.")


def implementation_of(row: Row) -> Tool | None:
    """What is run for a call of this tool. None: there is no code for it here, or none for a mocked run."""
    path = MAKERS.get(row.source.kind) if not isolation.is_on() else None
    if path is None:
        return None
    make: Callable[[Row], Tool | None] = import_string(path)
    return make(row)


def is_of_this_code(row: Row) -> bool:
    """Whether what would be run here is what the row promises.

    Python code is as it was when its process began, and its row as it was last synced: by a newer process, perhaps,
    which may have tools that are not here at all.
    """
    if row.source.kind != "python":
        return True
    implementation = implementation_of(row)
    return implementation is not None and implementation.version == row.version
