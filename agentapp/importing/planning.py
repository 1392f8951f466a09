"""A document and the existing rows → what an import would do. Nothing is stored."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal
from urllib.parse import urljoin, urlsplit

import httpx2
from django.conf import settings
from django.utils.text import slugify

from agentapp import contracts
from agentapp.contracts import is_weaker
from agentapp.models import Tool, ToolSource
from agentapp.refused import Refused
from agentapp.tools import base, credentials, openapi, outbound
from agentapp.tools.openapi import Document, Operation
from agentapp.tools.openapi_contract import tool_of
from approvals.digest import canonical
from approvals.models import EffectClass
from approvals.policy import DEFAULT_RISK

KIND = ToolSource.Kind.OPENAPI
FETCH_SECONDS = 30.0
MAX_LOCATION = 500
State = Literal["new", "changed", "same"]
# The parts of a contract that people compare, with their labels.
_PARTS = {
    "description": "Description", "input_schema": "Arguments", "output_schema": "Result", "wire": "Request",
    "title_template": "Title", "sentence_template": "Sentence", "declared_effect_class": "Effect as guessed",
}  # fmt: skip


@dataclass(frozen=True)
class Given:
    """A document, and what a person says about it. What is left empty is taken from the document."""

    text: str | bytes
    name: str = ""
    """Of the source."""
    location: str = ""
    """The address of the service."""
    origin: str = ""
    """Where the document was read from."""
    prefix: str = ""
    """What the name of each tool begins with."""
    checks_answers: bool | None = None
    """Whether an answer that differs from the document is a failure. None: as before, and at first it is not."""


@dataclass(frozen=True)
class Choice:
    """What a person chose for one operation: the name of its tool, and its effect class or a stronger one."""

    name: str
    effect_class: str


@dataclass(frozen=True)
class Proposed:
    """One operation, the tool that could be made from it, and the tool that already exists, if any."""

    operation: Operation
    tool: base.Tool
    effect_class: str
    row: Tool | None = None

    @property
    def key(self) -> str:
        """Identifies an operation from one reading of the document to the next."""
        return f"{self.operation.method.upper()} {self.operation.path}"

    @property
    def state(self) -> State:
        if self.row is None:
            return "new"
        return "same" if self.row.version == self.tool.version and self.row.missing_since is None else "changed"

    @property
    def risk(self) -> str:
        return str(DEFAULT_RISK[EffectClass(self.effect_class)])

    @property
    def choice(self) -> Choice:
        return Choice(self.tool.name, self.effect_class)

    @cached_property
    def parts(self) -> list[tuple[str, str, str]]:
        """What has changed in a contract, each part as (name, before, after) in JSON."""
        if self.row is None or self.state == "same":
            return []
        after = contracts.contract_columns(self.tool)
        pairs = [(label, getattr(self.row, column), after[column]) for column, label in _PARTS.items()]
        return [(label, canonical(was), canonical(now)) for label, was, now in pairs if was != now]


@dataclass(frozen=True)
class Plan:
    """What an import would do. A new `source` is not stored yet."""

    source: ToolSource
    document: Document
    proposed: list[Proposed]
    gone: list[Tool]
    """Tools of the source whose operation the document no longer has."""

    @cached_property
    def by_key(self) -> dict[str, Proposed]:
        return {one.key: one for one in self.proposed}

    @property
    def is_new(self) -> bool:
        return self.source._state.adding

    @property
    def schemes(self) -> list[str]:
        """The security schemes for which a credential can be named."""
        return list(self.source.schemes or credentials.WELL_KNOWN)


def fetch(url: str) -> bytes:
    """A document from an address, through the guard. Raises Refused."""
    try:
        return outbound.fetch(url, outbound.Outside(networks=tuple(settings.OUTBOUND_NETWORKS)), openapi.MAX_BYTES,
                              FETCH_SECONDS)  # fmt: skip
    except outbound.OutboundRefused as refused:
        raise Refused("document_unreachable", str(refused), "url") from refused


# --- The plan ----------------------------------------------------------------------------------


def plan(given: Given) -> Plan:
    """What importing a document would do. Raises Refused for one that cannot be read, or has no address."""
    document = _read(given, given.prefix, given.checks_answers or False)
    name = given.name or slugify(document.title)[:80] or "api"
    source = ToolSource.objects.filter(name=name).first()
    if source is not None and source.kind != KIND:
        raise Refused("name_taken", f"Another source is named {name}: give this one a different name.", "name")
    source = source or ToolSource(name=name, kind=KIND)
    prefix = given.prefix or str(source.details.get("prefix", ""))
    checks = given.checks_answers
    checks = bool(source.details.get("checks_answers")) if checks is None else checks
    if prefix != given.prefix or checks != bool(given.checks_answers):
        document = _read(given, prefix, checks)
    source.location = _location(given, source, document)
    source.origin = given.origin or source.origin
    said = {"title": document.title, "version": document.version}
    source.details = {**said, "prefix": prefix, "checks_answers": checks}
    source.schemes = document.schemes
    rows = list(source.tools.all()) if not source._state.adding else []
    proposed = _proposed(document, source, rows)
    kept = {one.row.pk for one in proposed if one.row is not None}
    return Plan(source, document, proposed, [row for row in rows if row.pk not in kept and row.missing_since is None])


def _read(given: Given, prefix: str, answers: bool) -> Document:
    try:
        return openapi.read(given.text, prefix, answers)
    except openapi.DocumentRefused as refused:
        raise Refused("document_refused", str(refused), "document") from refused


def _location(given: Given, source: ToolSource, document: Document) -> str:
    """The address of the service: what is given, what it was, or what the document says. Raises Refused."""
    said = _said(given, document)
    location = (given.location or source.location or said).strip().rstrip("/")
    try:
        url = httpx2.URL(location)
        _ = urlsplit(location).port  # refuses what the other takes for a host or a port
    except (ValueError, httpx2.InvalidURL):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host or len(location) > MAX_LOCATION:
        found = f"{location[:100]!r} is not one" if location else "the document names none"
        raise Refused("invalid_location", f"Give the service's address, starting with https://: {found}.", "location")
    if url.userinfo or url.query or url.fragment or "{" in location:
        message = "The service's address must have no password, no question mark and no placeholder in it."
        raise Refused("invalid_location", message, "location")
    return location


def _said(given: Given, document: Document) -> str:
    """The address that the document names, made absolute if possible."""
    said = document.servers[0] if document.servers else ""
    try:
        return urljoin(given.origin, said) if said else ""
    except ValueError:
        return said


def _proposed(document: Document, source: ToolSource, rows: list[Tool]) -> list[Proposed]:
    places = {(row.wire.get("method"), row.wire.get("path")): row for row in rows}
    found = {id(one): places.get((one.method, one.path)) for one in document.operations}
    # An operation that has moved keeps its tool, if it keeps its name.
    left = {row.name: row for row in rows if row.pk not in {known.pk for known in found.values() if known}}
    taken = set(Tool.objects.values_list("name", flat=True))
    proposed = []
    for operation in document.operations:
        row = found[id(operation)] or left.pop(operation.name, None)
        name = row.name if row is not None else openapi.unused_name(operation.name, taken)
        taken.add(name)
        declared, effect = _effects(operation, row)
        tool = tool_of(operation, name, declared, source.location, document.servers)  # type: ignore[arg-type]
        proposed.append(Proposed(operation, tool, effect, row))
    return proposed


def _effects(operation: Operation, row: Tool | None) -> tuple[str, str]:
    """The effect class as guessed, and as proposed: neither is weaker than before."""
    guessed = str(operation.effect_class)
    if row is None or not row.declared_effect_class:
        return guessed, guessed
    if is_weaker(row.declared_effect_class, guessed):
        return guessed, stronger(guessed, row.effect_class)
    if (row.wire.get("method"), row.wire.get("path")) != (operation.method, operation.path):
        # What somebody set for one place does not apply to another.
        return row.declared_effect_class, stronger(row.declared_effect_class, row.effect_class)
    return row.declared_effect_class, row.effect_class


def stronger(one: str, other: str) -> str:
    """The more harmful of two effect classes."""
    return other if is_weaker(one, other) else one


def preset(planned: Plan) -> dict[str, Choice]:
    """What is chosen at first: the tools that an existing source already has."""
    return {one.key: one.choice for one in planned.proposed if one.row is not None and one.row.missing_since is None}
