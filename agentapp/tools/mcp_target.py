"""Where an MCP server is: a command that the settings name, or a web address. Not how it is reached."""

import os
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
from django.conf import settings

from agentapp.tools import credentials
from agentapp.tools.outbound import Outside
from agentapp.tools.results import ToolError

STDIO = "stdio:"


class NotSetUp(Exception):
    """A source cannot be reached as configured. The message tells the person who configured it why."""


class Source(Protocol):
    """The parts of a source's row that say where its server is."""

    name: str
    location: str
    credentials: Any
    hosts: Any


@dataclass(frozen=True)
class Command:
    """A server started here, with only this environment."""

    words: tuple[str, ...]
    folder: str
    environment: tuple[tuple[str, str], ...] = field(repr=False)
    secrets: frozenset[str] = field(repr=False)


@dataclass(frozen=True)
class Target:
    """One server, with the credentials it is given. Equal targets share a connection."""

    source: str
    command: Command | None = None
    url: str = ""
    bearer: str = field(default="", repr=False)
    outside: Outside = field(default_factory=Outside)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """What is removed from every answer."""


def of_source(source: Source) -> Target:
    """Where a source's server is, and the credentials it is given. Raises NotSetUp."""
    problem = problem_of(source.location)
    if problem:
        raise NotSetUp(problem)
    if source.location.startswith(STDIO):
        return _of_command(source.name, settings.MCP_COMMANDS[source.location.removeprefix(STDIO)])
    hosts = frozenset(source.hosts or [_host(source.location)])
    outside = Outside(hosts, tuple(settings.OUTBOUND_NETWORKS))
    name = source.credentials.get("bearer", "") if isinstance(source.credentials, dict) else ""
    bearer = _credential(name) if name else ""
    secrets = frozenset({bearer} - {""})
    return Target(source.name, url=source.location, bearer=bearer, outside=outside, secrets=secrets)


def problem_of(location: str) -> str:
    """What is wrong with the location of an MCP server. Empty if nothing is wrong."""
    if location.startswith(STDIO):
        name = location.removeprefix(STDIO)
        return "" if name in settings.MCP_COMMANDS else f"MCP_COMMANDS has no command {name!r}."
    wanted = "Give an address that starts with https://, or a command of MCP_COMMANDS."
    try:
        parts = urlsplit(location)
        _ = parts.port, httpx2.URL(location)  # each refuses what the other accepts as a host or port
    except (ValueError, httpx2.InvalidURL):
        return wanted
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return wanted
    if parts.username or parts.password:
        return "The address contains a user name or password: give them as a credential."
    return ""


def _of_command(source: str, configured: dict[str, Any]) -> Target:
    inherited = {variable: os.environ[variable] for variable in configured["inherit"] if variable in os.environ}
    secrets = {variable: _credential(name) for variable, name in configured["credentials"].items()}
    environment = inherited | configured["environment"] | secrets
    shown = frozenset(secrets.values())
    words = tuple(configured["command"])
    command = Command(words, configured["cwd"], tuple(sorted(environment.items())), shown)
    return Target(source, command=command, secrets=shown)


def _credential(name: str) -> str:
    """The credential of this name, only ever from the environment. Raises NotSetUp."""
    try:
        return credentials.named(name)
    except ToolError as error:
        raise NotSetUp(str(error)) from error


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".").lower()
