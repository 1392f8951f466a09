"""Everything a model had been told when it proposed a call, by whose words they are, in searchable form."""

import json
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agentapp.guidance.guidelines import Guidelines
from agentapp.models import Agent, Message, Run, Tool, ToolExecution
from agentapp.provenance import spelling
from agentapp.provenance.paths import leaves
from agentapp.reasons import Reason
from agentapp.transcript import StepRows
from approvals.masking import blotted

STAFF, TRUSTED, CUSTOMER, OUTSIDE = "staff", "trusted", "customer", "outside"
DEFAULT, MODEL, UNMARKED = "default", "model", "unmarked"

# If a value occurs in several places, the first of these counts.
MOST_TRUSTED = (STAFF, TRUSTED, CUSTOMER, OUTSIDE)

GIVEN = "What the run was given"
CHANGED = "Changed by a person"
QUOTE_AROUND = 30


@dataclass(frozen=True)
class Source:
    """One thing the model was told, and whose words they are."""

    origin: str
    title: str
    lines: tuple[str, ...]
    step: int | None = None
    call: str = ""
    ref: str = ""
    own: str = ""
    """For a result: what the call itself said, and what this run had written anywhere before. It proves nothing."""
    within: str = ""
    """For what another run had been told: the words that were handed on. Anything else was not handed on."""
    request: uuid.UUID | None = None
    """For what people said when they decided: about which request."""

    def proves(self, value: Any) -> bool:
        """Whether a value that occurs in this source came from it."""
        return not stands_in(self.own, value) and (not self.within or stands_in(self.within, value))

    def quote(self, spelled: str) -> str:
        """The passage with this spelling, as written there; empty if the value is written differently there."""
        for line in self.lines:
            at = line.lower().find(spelled)
            if at >= 0:
                start, end = max(0, at - QUOTE_AROUND), at + len(spelled) + QUOTE_AROUND
                return f"{'…' * (start > 0)}{' '.join(line[start:end].split())}{'…' * (end < len(line))}"
        return ""


@dataclass(frozen=True)
class Past:
    """What a run's rows contain from before a call was proposed. Of a step, only answered calls count."""

    run: Run
    steps: Sequence[StepRows] = ()
    messages: Sequence[Message] = ()
    handed: Sequence[Source] = ()
    """What another run had been told before this one began for it."""
    summary: str = ""
    """The summary that replaces earlier messages. It reports what others said."""


@dataclass(frozen=True)
class Found:
    source: Source
    spelled: str


class Sources:
    """All sources of one call as one text, so that looking for a value costs one search however many there are."""

    def __init__(self, items: Sequence[Source]) -> None:
        self.items = items
        texts = [spelling.folded_lines(item.lines) for item in items]
        self.text = "\n".join(texts)
        self._starts = _starts(texts)
        self._texts = texts

    @cached_property
    def _compact(self) -> tuple[str, list[int]]:
        texts = [spelling.compact(text) for text in self._texts]
        return "\n".join(texts), _starts(texts)

    def find(self, value: Any) -> Found | None:
        """The most trusted source that a value came from; the earliest of several."""
        best: Found | None = None
        for found in self._everywhere(value):
            if best is None or MOST_TRUSTED.index(found.source.origin) < MOST_TRUSTED.index(best.source.origin):
                if found.source.proves(value):
                    best = found
                if best is not None and best.source.origin == STAFF:
                    break
        return best

    def find_split(self, value: str) -> Found | None:
        """The source of the least trusted piece of an identifier that was put together from pieces."""
        bare, at = spelling.compact(spelling.folded(value)), 0
        worst: Found | None = None
        while at < len(bare):
            piece = self._longest(bare[at:])
            if piece is None:
                return None
            if worst is None or MOST_TRUSTED.index(piece.source.origin) > MOST_TRUSTED.index(worst.source.origin):
                worst = piece
            at += len(piece.spelled)
        return worst

    def _longest(self, rest: str) -> Found | None:
        if rest[: spelling.MIN_TEXT] not in self._compact[0] and len(rest) > spelling.MIN_TEXT:
            return None
        for length in range(len(rest), min(spelling.MIN_TEXT, len(rest)) - 1, -1):
            found = self._first(self.text, self._starts, rest[:length])
            if found is not None:
                return found
        return None

    def _first(self, text: str, starts: list[int], wanted: str) -> Found | None:
        for source in self._each(text, starts, wanted, _WORDS):
            if wanted in source.own or wanted in spelling.compact(source.own):
                continue
            if not source.within or wanted in spelling.compact(source.within):
                return Found(source, wanted)
        return None

    def _everywhere(self, value: Any) -> Iterator[Found]:
        """Each source that contains a value, once for each way of writing it."""
        absent: list[str] = []
        for wanted, how in _ways(value):
            text, starts = self._compact if how == _COMPACT else (self.text, self._starts)
            if how != _COMPACT and wanted.startswith(tuple(absent)):
                continue  # without 1250 there is no 1250.00
            if wanted not in text:
                absent += [wanted] * (how != _COMPACT)
                continue
            for source in self._each(text, starts, wanted, how):
                yield Found(source, wanted)

    def _each(self, text: str, starts: list[int], wanted: str, how: str) -> Iterator[Source]:
        """The sources that contain it, each once however often it occurs there."""
        begin = 0
        while (at := next(_HOW[how](text, wanted, begin), None)) is not None:
            index = bisect_right(starts, at) - 1
            yield self.items[index]
            if index + 1 == len(starts):
                return
            begin = starts[index + 1]


_WORDS, _NUMBER, _COMPACT = "words", "number", "compact"


def _anywhere(text: str, wanted: str, begin: int = 0) -> Iterator[int]:
    at = text.find(wanted, begin)
    if at >= 0:
        yield at


_HOW = {_WORDS: spelling.occurrences, _NUMBER: spelling.occurrences_of_number, _COMPACT: _anywhere}


def _ways(value: Any) -> Iterator[tuple[str, str]]:
    """The ways in which a value may be written in a text, and how to look for each."""
    text = "" if isinstance(value, int | float) else spelling.folded(str(value))
    number = spelling.number_in(value)
    if number is not None:
        for written in spelling.spellings_of_number(number):
            yield written, _NUMBER
    if text and not text.isdigit():
        yield text, _WORDS
        for written in spelling.spellings_of_date(text):
            yield written, _WORDS
    if text and spelling.is_identifier(text):
        yield spelling.compact(text), _COMPACT


def stands_in(text: str, value: Any) -> bool:
    """Whether a folded text contains a value, however it is written."""
    if not text:
        return False
    return any(
        next(_HOW[how](spelling.compact(text) if how == _COMPACT else text, wanted), None) is not None
        for wanted, how in _ways(value)
    )


def _starts(texts: Sequence[str]) -> list[int]:
    starts, at = [], 0
    for text in texts:
        starts.append(at)
        at += len(text) + 1
    return starts


# --- The sources of a run ----------------------------------------------------------------------


def sources_of(past: Past) -> Sources:
    return Sources([*_configured(past.run), *_said(past), *past.handed, *_called(past)])


def _configured(run: Run) -> Iterator[Source]:
    """What admins wrote: the agent's instructions and guidelines, as they were when the run began."""
    instructions = run.agent_snapshot.get("instructions")
    if isinstance(instructions, str) and instructions:
        yield Source(STAFF, "The agent’s instructions", (instructions,))
    for guideline in Guidelines.read(run.agent_snapshot.get("guidance", {})).by_name.values():
        yield Source(STAFF, f"Guideline {guideline.name}", (guideline.words,))


def _said(past: Past) -> Iterator[Source]:
    """What people wrote. A run in a conversation is given what the customer said; a run alone, what its starter said.

    A run that another agent asked for was given that agent's words, which are a model's. What that agent had been told
    shows whose they are. A run that takes a call back was given the reason of the person who asked for it.
    """
    run = past.run
    for message in past.messages:
        if message.role == Message.Role.USER:
            yield Source(CUSTOMER, "What the customer wrote", tuple(spelling.lines_of(message.content)))
        elif message.author_id is not None:
            yield Source(STAFF, "What one of our team wrote", (message.content,))
    if past.summary and run.agent_snapshot.get("message_compiler") == Agent.Compiler.SECTIONS:
        yield Source(OUTSIDE, "The summary of the conversation", tuple(spelling.lines_of(past.summary)))
    if run.parent_id is None:
        from_customer = run.conversation_id is not None or run.asked_in_id is not None
        whose = CUSTOMER if from_customer else STAFF
        yield Source(whose, GIVEN, tuple(spelling.lines_of(run.input)))


def _called(past: Past) -> Iterator[Source]:
    """What calls returned, and what people said about them."""
    written = ""
    for rows in past.steps:
        for execution in rows.executions:
            if not execution.is_answered:
                continue
            number, call = rows.step.number, execution.call_id
            changed = changed_by_person(execution)
            if changed:
                yield Source(STAFF, CHANGED, changed, number, call)
            own = spelling.folded_lines(spelling.lines_of(execution.args))
            yield said_about(execution, number, own) or result_of(execution, number, f"{own}\n{written}")
            if execution.consequential:
                written += f"{own}\n"


def said_about(execution: ToolExecution, number: int, own: str) -> Source | None:
    """What people said about a call instead of letting it run. None: it ran, or nobody said anything.

    `own`: what the call itself said. People who name that have only repeated it.
    """
    if not execution.approval_id or execution.started_at is not None:
        return None
    if execution.reason == Reason.APPROVAL_REJECTED:
        said = Source(STAFF, "What a person said about a call", (execution.message,))
    elif execution.result_status == ToolExecution.ResultStatus.OK:
        said = Source(STAFF, "A person’s answer", _lines_of_result(execution))
    else:
        return None
    return replace(said, step=number, call=execution.call_id, own=own, request=execution.approval_id)


def result_of(execution: ToolExecution, number: int, own: str) -> Source:
    lines = _lines_of_result(execution)
    origin = TRUSTED if execution.trust == Tool.Trust.TRUSTED else OUTSIDE
    if execution.message:
        lines = (*lines, *spelling.lines_of(execution.message))
    secrets = execution.secret_values
    if secrets:  # what a call itself said proves nothing, and nobody should read it in a quote
        lines = tuple(blotted(line, secrets) for line in lines)
    return Source(origin, execution.name, lines, number, execution.call_id, execution.evidence_ref, own)


def _lines_of_result(execution: ToolExecution) -> tuple[str, ...]:
    return tuple(spelling.lines_of(read(execution.result_text))) if execution.result_text else ()


def changed_by_person(execution: ToolExecution) -> tuple[str, ...]:
    """The values that a person put into a call before it ran."""
    if not execution.approval_id or not execution.executed_text or execution.executed_text == execution.arguments_text:
        return ()
    was = {str(value) for _, value in leaves(read(execution.arguments_text))}
    now = (value for _, value in leaves(read(execution.executed_text)) if str(value) not in was)
    return tuple(line for value in now for line in spelling.lines_of(value))


def read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
