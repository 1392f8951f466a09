"""From a model's verdict on a tool to the calls that may be proposed: the checks that no model is trusted with."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentapp.considered import Evaluated, EvaluationState, Insight, Mode
from agentapp.guidance.batching import Batch, Candidate
from agentapp.guidance.known import Done, ToolFacts
from agentapp.tools.arguments import with_defaults
from agentapp.tools.parameters import choices_of, takes_null
from agentapp.tools.schema import unknown_names
from approvals.digest import MalformedJSON, canonical
from approvals.masking import blotted, masked, secret_texts

MISSING = "<<__missing__>>"
"""What a model writes for a value it does not know."""
STAGED = "The same call has been made in this run."

MAX_SHOWN_CHOICES = 100
"""A value may be any of the choices, but models and people are told only this many."""

type Choices = Mapping[tuple[str, str], Sequence[Any]]
"""For each (tool, argument), the values that a choice provider allows now."""


@dataclass(frozen=True)
class Guess:
    """A value that a model doubts, so it is not used."""

    value: Any
    state: str
    """invalid, or missing."""


@dataclass(frozen=True)
class Verdict:
    """A model's verdict on one candidate. Values of calls may be MISSING or a Guess."""

    state: EvaluationState
    why: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Checked:
    """What is left of a verdict after code has checked it."""

    state: EvaluationState
    why: str
    calls: tuple[dict[str, Any], ...] = ()
    insights: tuple[Insight, ...] = ()


def mode_of(batch: Batch, calls: Sequence[Done]) -> Mode:
    """How a batch is looked at.

    A read without parameters that a guideline asks for, and that was not called yet, is called without asking a model.
    """
    if any(candidate.tool.consequential for candidate in batch.candidates):
        return "full"
    alone = batch.candidates[0] if len(batch.candidates) == 1 else None
    if alone is None or not alone.guidelines or alone.tool.names:
        return "short"
    return "short" if any(call.tool == alone.tool.name and call.stands for call in calls) else "auto_approved"


def check(candidate: Candidate, verdict: Verdict, calls: Sequence[Done], choices: Choices) -> Checked:
    """Check a verdict against the tool's schema, its parameters and the earlier calls."""
    verdict = dataclasses.replace(verdict, why=_without_secrets(candidate.tool, verdict))
    if verdict.state in ("not_applicable", "data_already_in_context"):
        return Checked(verdict.state, verdict.why)
    tool = candidate.tool
    before = [call for call in calls if call.tool == tool.name and call.stands]
    made = {_key(tool, call.arguments) for call in before if call.arguments is not None}
    complete: list[dict[str, Any]] = []
    insights: dict[tuple[str, str], Insight] = {}
    was_staged = False
    for proposed in verdict.calls or ({},):
        arguments, found = _arguments(tool, proposed, choices)
        if found:
            insights |= {(insight.kind, insight.parameter): insight for insight in found}
        elif (key := _key(tool, arguments)) in made:
            was_staged = True
        else:
            made.add(key)
            complete.append(arguments)
    blocked = tuple(insights.values())
    if verdict.state == "cannot_run":
        return Checked("cannot_run", verdict.why, insights=blocked)
    if complete:
        return Checked("needs_to_run", verdict.why, tuple(complete), blocked)
    if was_staged and not blocked:
        return Checked("data_already_in_context", f"{verdict.why} {STAGED}".strip())
    return Checked("cannot_run", verdict.why, insights=blocked)


def evaluated(batch: Batch, candidate: Candidate, mode: Mode, checked: Checked, calls: Sequence[str]) -> Evaluated:
    return Evaluated(
        candidate.tool.name,
        batch.number,
        checked.state,
        mode,
        candidate.guidelines,
        checked.why,
        checked.insights,
        tuple(calls),
    )


def _without_secrets(tool: ToolFacts, verdict: Verdict) -> str:
    """What a model says about a call, without the secrets it would send, even if no call with them comes of it."""
    plain = [
        {name: value.value if isinstance(value, Guess) else value for name, value in call.items()}
        for call in verdict.calls
    ]
    return blotted(verdict.why, secret_texts(plain, tool.secret_fields) - {MISSING})


def _arguments(tool: ToolFacts, proposed: Mapping[str, Any], choices: Choices) -> tuple[dict[str, Any], list[Insight]]:
    """The arguments that may be sent, and what prevents the call."""
    schema = dict(tool.input_schema)
    extra = set(unknown_names(schema, proposed))
    required, defaults = set(schema.get("required", ())), with_defaults(schema, {})
    given = {name: value for name, value in proposed.items() if name not in extra}
    arguments: dict[str, Any] = {}
    insights: list[Insight] = []
    for name in dict.fromkeys([*tool.names, *given]):
        allowed = choices.get((tool.name, name), choices_of(schema, name))
        value = given.get(name, MISSING)
        null = takes_null(schema, name)
        if isinstance(value, Guess) and value.state == "invalid":
            insights.append(_insight("invalid", tool, name, allowed, value.value))
        elif isinstance(value, Guess) or _is_unknown(value) or (value is None and not null):
            if name in required:
                insights.append(_insight("missing", tool, name, allowed))
            elif null and defaults.get(name) is None:
                arguments[name] = None
        elif not _is_among(value, allowed):
            insights.append(_insight("invalid", tool, name, allowed, value))
        else:
            arguments[name] = value
    return arguments, insights


def _is_unknown(value: Any) -> bool:
    """Whether a model did not know a value, or part of it: the marker must not reach a tool as text."""
    if isinstance(value, Mapping):
        return any(map(_is_unknown, value.values()))
    return any(map(_is_unknown, value)) if isinstance(value, list) else value == MISSING


def _is_among(value: Any, allowed: Sequence[Any] | None) -> bool:
    """Whether a value, or each item of a list, can be chosen. To JSON true is not 1."""
    if allowed is None or value is None:
        return True
    known = {_text(each) for each in allowed}
    return all(_text(each) in known for each in (value if isinstance(value, list) else [value]))


def _key(tool: ToolFacts, arguments: Mapping[str, Any] | None) -> str:
    """One text for all spellings of the same call."""
    return _text(with_defaults(dict(tool.input_schema), dict(arguments or {})))


def _text(value: Any) -> str:
    """One text for all spellings of a value. A schema's own numbers may be too large for a call."""
    try:
        return canonical(value)
    except MalformedJSON:
        return json.dumps(value, sort_keys=True, default=str)


def shown(allowed: Sequence[Any]) -> list[Any]:
    """Choices as told and kept: the first ones, and how many more there are."""
    more = len(allowed) - MAX_SHOWN_CHOICES
    return [*allowed[:MAX_SHOWN_CHOICES], *([f"… and {more} more"] if more > 0 else [])]


def _insight(kind: Any, tool: ToolFacts, name: str, allowed: Sequence[Any] | None, value: Any = None) -> Insight:
    declared = tool.parameters.get(name, {})
    described = tool.input_schema.get("properties", {}).get(name)
    said = described.get("description") if isinstance(described, Mapping) else None
    return Insight(
        kind=kind,
        tool=tool.name,
        parameter=name,
        display_name=declared.get("display_name") or name.replace("_", " "),
        significance=declared.get("significance", ""),
        description=declared.get("description") or str(said or ""),
        examples=tuple(declared.get("examples", ())),
        choices=None if allowed is None or name in tool.secret_fields else tuple(shown(allowed)),
        precedence=declared.get("precedence"),
        invalid_value=masked({name: value}, tool.secret_fields)[name] if kind == "invalid" else None,
        hidden=bool(declared.get("hidden")),
    )
