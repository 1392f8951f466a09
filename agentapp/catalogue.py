"""The tools as people read them: how often they are called, what stops that, and which versions there were."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.cache import caches
from django.db.models import Count, QuerySet
from django.utils import timezone

from agentapp import auth
from agentapp.breakers import Thing, of_tool
from agentapp.messages import FAILED
from agentapp.models import Breaker, KillSwitch, SourceHealth, Tool, ToolExecution
from agentapp.tools import sample
from agentapp.tools.schema import InvalidSchema, check_arguments
from approvals import changes, lens
from approvals.digest import MalformedJSON, canonical, parse, sha256
from approvals.masking import masked
from approvals.models import Rule

COUNTED = timedelta(days=14)
COUNTED_FOR_SECONDS = 60
# How many of a contract's versions are compared.
MAX_VERSIONS = 10
# Columns of a contract that read better as text than as JSON.
_TEMPLATES = {
    "description": "Description",
    "title_template": "Title",
    "sentence_template": "Sentence",
    "button_template": "Button",
    "confirm_template": "Typed to approve",
    "effects_template": "Effects",
    "input_schema": "Arguments",
    "output_schema": "Result",
    "wire": "Request",
    "declared_effect_class": "Declared effect class",
    "business_key_template": "Business key",
}


@dataclass(frozen=True)
class Calls:
    """How often a tool was called in the last days, and how often it failed."""

    calls: int = 0
    errors: int = 0

    @property
    def share(self) -> float:
        return self.errors / self.calls if self.calls else 0.0


@dataclass(frozen=True)
class State:
    """Something that prevents calls of a tool, or soon may. `stops`: no call of it runs now."""

    word: str
    sentence: str
    stops: bool = True
    at: datetime | None = None


@dataclass(frozen=True)
class Version:
    """What one sync changed in a contract: its parts, each as JSON before and after."""

    at: Any
    who: str
    version: str
    parts: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Stops:
    """What is stopped now, automatically or by people: breakers that are not closed, and kill switches. Two queries."""

    breakers: Mapping[Thing, Breaker]
    switches: Sequence[KillSwitch]

    @classmethod
    def read(cls) -> "Stops":
        opened = Breaker.objects.exclude(state=Breaker.State.CLOSED)
        switches = KillSwitch.objects.exclude(scope=KillSwitch.Scope.AGENT)
        return cls({Thing(breaker.scope, breaker.key): breaker for breaker in opened}, list(switches))


def call_counts(tools: Iterable[Tool]) -> dict[Any, Calls]:
    """Calls and errors of each tool in the last days, at most a minute old.

    One query, answered by the index `execution_of_tool` alone. Counting a million calls takes half a second, so each
    process keeps its counts for a while.
    """
    keys = sorted(tool.pk for tool in tools)
    name = f"calls:{sha256(canonical([str(key) for key in keys]))}"
    known: dict[Any, Calls] | None = caches["process"].get(name)
    if known is None:
        known = _counted(keys)
        caches["process"].set(name, known, COUNTED_FOR_SECONDS)
    return known


def _counted(keys: Sequence[Any]) -> dict[Any, Calls]:
    recent = ToolExecution.objects.filter(tool__in=keys, mocked=False, proposed_at__gte=timezone.now() - COUNTED)
    found: dict[Any, Calls] = {}
    for tool, status, number in recent.order_by().values_list("tool", "result_status").annotate(number=Count("*")):
        before = found.get(tool, Calls())
        found[tool] = Calls(before.calls + number, before.errors + (number if status in FAILED else 0))
    return found


def states_of(tool: Tool, stops: Stops) -> list[State]:
    """Whether a tool can be called, in words, the worst first. The tool comes with its source and its health."""
    return [*_contract_states(tool), *_source_states(tool), *_stopped_states(tool, stops), *_claimed_states(tool)]


def is_valid(schema: dict[str, Any]) -> bool:
    """Whether a schema can be used to check arguments at all."""
    try:
        check_arguments(schema, {})
    except InvalidSchema:
        return False
    return True


def _contract_states(tool: Tool) -> Iterable[State]:
    if tool.missing_since is not None:
        yield State("Gone", f"{tool.source.name} no longer lists it.", at=tool.missing_since)
    if tool.waiting_contract is not None:
        yield State("Changed", f"{tool.source.name} now promises something else. A person must look at it first.")
    if not tool.enabled:
        yield State("Off", "An administrator has switched it off.")
    if not is_valid(tool.input_schema):
        yield State("Schema invalid", "Its arguments cannot be checked, so no call of it runs.")


def _source_states(tool: Tool) -> Iterable[State]:
    if not tool.source.enabled:
        yield State("Source off", f"{tool.source.name} is switched off, and all its tools with it.")
    health: SourceHealth | None = getattr(tool.source, "health", None)
    if health is not None and not health.ok:
        yield State("Unreachable", f"{tool.source.name} does not answer: {health.problem}", False, health.seen_at)


def _stopped_states(tool: Tool, stops: Stops) -> Iterable[State]:
    for switch in stops.switches:
        if switch.scope == KillSwitch.Scope.ALL or switch.key == tool.name:
            yield State("Stopped", f"A kill switch is engaged: {switch.reason}", at=switch.engaged_at)
    for thing in of_tool(tool):
        breaker = stops.breakers.get(thing)
        if breaker is not None:
            probing = breaker.state == Breaker.State.HALF_OPEN
            said = "One call probes whether it works again." if probing else "It is not called for a while."
            whose = "" if thing.scope == Breaker.Scope.TOOL else f" of {thing.key}"
            word = "Breaker probing" if probing else "Breaker open"
            times = f"{breaker.failures} failure{'s' if breaker.failures != 1 else ''} in a row{whose}"
            yield State(word, f"{times}. {said} Last: {breaker.last_error}", not probing, breaker.opened_at)


def _claimed_states(tool: Tool) -> Iterable[State]:
    if tool.claims.get("deprecated"):
        yield State("Deprecated", f"The document of {tool.source.name} says it should no longer be used.", False)


def rules_for(tool: Tool) -> QuerySet[Rule]:
    """The rules in force that may apply to a call of this tool, in their order."""
    return Rule.objects.filter(active=True, tool__in=["", tool.name], effect_class__in=["", tool.effect_class])


def example(tool: Tool, user: User) -> tuple[dict[str, Any], bool]:
    """Arguments for a card, and whether they are from a real call of a run this person may see. Secrets are masked."""
    found: dict[str, Any] = sample.arguments(tool.input_schema)
    real = False
    if user.has_perm("agentapp.view_toolexecution"):
        real_calls = ToolExecution.objects.filter(tool=tool, mocked=False)
        seen_by = real_calls.filter(run__in=auth.visible_runs(user)).exclude(arguments_text="")
        latest = seen_by.order_by("-proposed_at").first()
        try:
            last = parse(latest.arguments_text) if latest else None
        except MalformedJSON:
            last = None
        if isinstance(last, dict):
            found, real = last, True
    shown = masked(found, lens.hidden(tool.secret_fields, tool.pii_fields))
    seen: dict[str, Any] = lens.seen(shown, (), is_open=not lens.hidden((), ("any",)))
    return seen, real


def versions(tool: Tool) -> list[Version]:
    """What each sync that made a new version changed, latest first."""
    found = []
    for change in changes.of(tool):
        new = change.of("version")
        if change.what != "changed" or new is None:
            continue
        parts = [
            (label, _as_json(field.before), _as_json(field.after))
            for name, label in _TEMPLATES.items()
            if (field := change.of(name)) is not None
        ]
        found.append(Version(change.at, change.who, str(new.after)[:12], parts))
    return found[:MAX_VERSIONS]


def as_text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, indent=2)


def _as_json(value: Any) -> str:
    return canonical("" if value is None else value)
