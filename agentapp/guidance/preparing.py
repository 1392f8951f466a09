"""One look at the guidelines and their tools: what holds, what follows, which calls result."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentapp import isolation
from agentapp.considered import Evaluated, Matched
from agentapp.guidance import batching, candidates, evaluation, extensions, matching
from agentapp.guidance.batching import Batcher, Candidate
from agentapp.guidance.evaluation import Choices, Verdict
from agentapp.guidance.guidelines import Guideline
from agentapp.guidance.inference import Inference, Question
from agentapp.guidance.known import Context, Turn
from agentapp.guidance.planner import PassThrough, PlannedCall, Planner
from agentapp.guidance.relations import Resolved, resolve
from agentapp.tools.schema import plain_json
from approvals.digest import MalformedJSON, canonical, parse


@dataclass(frozen=True)
class Means:
    """What an agent's preparation works with."""

    inference: Inference
    planner: Planner = field(default_factory=PassThrough)
    batcher: Batcher = batching.batches
    is_open: bool = False


@dataclass(frozen=True)
class Prepared:
    """The outcome of an iteration, or of several within one step."""

    resolved: Resolved
    matches: tuple[Matched, ...] = ()
    evaluations: tuple[Evaluated, ...] = ()
    offered: tuple[str, ...] = ()
    calls: tuple[PlannedCall, ...] = ()

    @property
    def batches(self) -> int:
        return len({evaluation.batch for evaluation in self.evaluations})


def iterate(turn: Turn, means: Means) -> Prepared:
    """One iteration. Raises ModelError."""
    looked_at = matching.to_look_at(turn.guidelines, turn.known)
    asked = matching.left_to_model(looked_at)
    judged = means.inference.match(turn, asked) if asked else {}
    said = matching.match(turn, judged, looked_at)
    resolved = resolved_of(turn, said)
    context = Context.of(turn)
    means.planner.on_guidelines_resolved(context, tuple(resolved.matches.values()))
    asking = candidates.newly(resolved.guidelines, turn.guidelines, turn.known)
    found = candidates.candidates(asking, turn.guidelines, turn.known, is_open=means.is_open)
    evaluations, calls = evaluate(turn, means, found, resolved.guidelines)
    inferred = {call.id: call for call in calls}
    chosen = means.planner.on_tools_inferred(context, calls)
    return Prepared(
        resolved,
        matches=on_record(turn, said, resolved),
        evaluations=tuple(evaluations),
        offered=tuple(candidate.tool.name for candidate in found),
        # Each call once, however often a planner names it.
        calls=tuple(inferred[name] for name in dict.fromkeys(call.id for call in chosen) if name in inferred),
    )


def at_rest(turn: Turn) -> Prepared:
    """What counts now, without another look: guidelines may have come with results."""
    resolved = resolved_of(turn)
    return Prepared(resolved, matches=on_record(turn, (), resolved))


def resolved_of(turn: Turn, said: Sequence[Matched] = ()) -> Resolved:
    """What counts now: what was said in this iteration, and for the other guidelines what was said last."""
    before = matching.latest(turn.known.matches) | matching.latest(said)
    # Entailed guidelines hold only as long as what entails them, so they are found again.
    held = {name: match for name, match in before.items() if match.matched and match.origin not in _DERIVED}
    return resolve(turn.guidelines, held, matching.transient_of(turn.known))


_DERIVED = ("entailed", "transient")


def on_record(turn: Turn, said: Sequence[Matched], resolved: Resolved) -> tuple[Matched, ...]:
    """What an iteration said, and what it changed in what was said before."""
    before = matching.latest(turn.known.matches)
    recorded: dict[str, Matched] = {}
    for match in said:
        recorded[match.guideline] = resolved.matches.get(match.guideline, match)
    for name, match in resolved.matches.items():
        was = before.get(name)
        if was is None or not was.matched or was.suppressed_by != match.suppressed_by:
            recorded.setdefault(name, match)
    for name, was in before.items():
        if was.matched and name not in resolved.matches:
            recorded.setdefault(name, replace(was, matched=False, why="What it followed from no longer holds.", step=0))
    return tuple(recorded.values())


def evaluate(
    turn: Turn, means: Means, found: Sequence[Candidate], counting: Mapping[str, Guideline]
) -> tuple[list[Evaluated], list[PlannedCall]]:
    """Look at the candidates, batch by batch. Without candidates, no model is asked."""
    if not found:
        return [], []
    made = means.batcher(found, turn.guidelines.overlaps)
    modes = {batch.number: evaluation.mode_of(batch, turn.known.calls) for batch in made}
    choices = choices_now(turn, found)
    asked = [
        Question(batch, modes[batch.number] == "full", counting, choices)
        for batch in made
        if modes[batch.number] != "auto_approved"
    ]
    answers = means.inference.evaluate(turn, asked) if asked else []
    verdicts = {question.batch.number: answer for question, answer in zip(asked, answers, strict=True)}
    evaluations: list[Evaluated] = []
    calls: list[PlannedCall] = []
    for batch in made:
        for candidate in batch.candidates:
            verdict = verdicts.get(batch.number, {}).get(candidate.tool.name)
            mode = modes[batch.number]
            verdict = verdict or (_APPROVED if mode == "auto_approved" else _NOT_NAMED)
            checked = evaluation.check(candidate, verdict, turn.known.calls, choices)
            proposed = [
                PlannedCall(f"call_{uuid.uuid4().hex}", candidate.tool.name, arguments, candidate.guidelines)
                for arguments in checked.calls
            ]
            calls += proposed
            ids = [call.id for call in proposed]
            evaluations.append(evaluation.evaluated(batch, candidate, mode, checked, ids))
    return evaluations, calls


_APPROVED = Verdict("needs_to_run", "It reads, takes nothing, and was not called yet.")
_NOT_NAMED = Verdict("not_applicable", "The model did not name it.")


def choices_now(turn: Turn, found: Sequence[Candidate]) -> Choices:
    """What choice providers allow for this customer. They look at the real world, which a mocked run must not do."""
    if isolation.is_on():
        return {}
    context = Context.of(turn)
    allowed = {}
    for candidate in found:
        for name, declared in candidate.tool.parameters.items():
            if path := declared.get("choice_provider"):
                what = f"The choices of {name} of {candidate.tool.name}"
                allowed[candidate.tool.name, name] = _values(path, what, extensions.call(path, what, context))
    return allowed


def _values(path: str, what: str, found: Any) -> list[Any]:
    """Choices as values that a call can carry. Raises ModelError."""
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Iterable):
        raise extensions.unusable(path, what, f"returned a {type(found).__name__} instead of a list of values")
    values: list[Any] = plain_json(extensions.ask(list, path, what, found))
    for value in values:
        try:
            parse(canonical(value))
        except MalformedJSON as error:
            raise extensions.unusable(path, what, f"returned a value that no call can carry ({error})") from error
    return values


def merged(first: Prepared, second: Prepared) -> Prepared:
    """Two iterations of one step as one. The second has the last word."""
    matches = matching.latest([*first.matches, *second.matches])
    later = (replace(each, batch=each.batch + first.batches) for each in second.evaluations)
    return Prepared(
        second.resolved,
        tuple(matches.values()),
        (*first.evaluations, *later),
        tuple(dict.fromkeys([*first.offered, *second.offered])),
        second.calls,
    )


def seen_by(turn: Turn, prepared: Prepared) -> Turn:
    """The turn of the next iteration of the same step."""
    known = turn.known
    matches = tuple(replace(match, step=turn.known.step) for match in prepared.matches)
    evaluations = tuple(replace(each, step=turn.known.step) for each in prepared.evaluations)
    return replace(
        turn,
        known=replace(
            known,
            iteration=known.iteration + 1,
            matches=(*known.matches, *matches),
            evaluations=(*known.evaluations, *evaluations),
        ),
    )
