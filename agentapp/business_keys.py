"""What makes two calls one act, whichever run proposes them: "refund {order_id}" is done once.

The key stands in a unique column, so two workers cannot both take it. An attempt that is known to have
done nothing keeps its key and frees the act: the next attempt has the next number.
"""

import string
from dataclasses import dataclass
from typing import Any

from agentapp.models import Run, Tool, ToolExecution
from agentapp.models.executions import MOCKED_KEY
from approvals.digest import canonical, sha256

State = ToolExecution.State
# The characters that the mark leaves in the column.
MOCKED_CHARS = 64 - len(MOCKED_KEY)


@dataclass(frozen=True)
class Key:
    """The key a call would run under, and the other call that has already taken it, if any."""

    digest: str
    taken_by: ToolExecution | None = None


def act_of(tool: Tool, arguments: dict[str, Any]) -> str:
    """What a call does, by its tool's template, as one text. Empty: an argument is missing, or there is no text."""
    pieces: list[str] = []
    for literal, name, _, _ in string.Formatter().parse(tool.business_key_template):
        pieces.append(literal)
        if name is not None:
            value = _look_up(arguments, name)
            if value is None or value == "" or value == [] or value == {}:
                return ""
            pieces.append(value.strip() if isinstance(value, str) else canonical(value))
            if not pieces[-1]:
                return ""
    # As a list, so that 12 and 3 differ from 1 and 23.
    return canonical([tool.name, *pieces]) if any(piece.strip() for piece in pieces) else ""


def key_of(run: Run, act: str, execution: ToolExecution | None = None) -> Key:
    """The key for an act, unless it is done, under way, or in doubt. `execution` itself does not count as taking it.

    An act of a mocked run counts only for that run.
    """
    number = 0
    while True:
        digest = digest_for(run, f"business|{act}|{number}")
        holder = ToolExecution.objects.select_related("tool").filter(idempotency_key=digest).first()
        if holder is None or (execution is not None and holder.pk == execution.pk):
            return Key(digest)
        if not _came_to_nothing(holder):
            return Key(digest, holder)
        number += 1


def digest_for(run: Run, text: str) -> str:
    """The key made from a text for the calls of a run. A mocked run's keys are marked, and its own."""
    return f"{MOCKED_KEY}{sha256(f'{run.pk}|{text}')[:MOCKED_CHARS]}" if run.is_mocked else sha256(text)


def told(done: ToolExecution) -> str:
    """What the model reads instead of a second call: that the act was done. `answers` adds the result."""
    if done.is_in_doubt:
        return "It was called before, and nobody knows yet whether it happened. It did not run again."
    if not done.is_answered:
        return "Another call is doing the same right now. It did not run again."
    return f"This was done before (call {done.call_id}); it did not run again."


def _came_to_nothing(holder: ToolExecution) -> bool:
    """Whether an earlier call is known to have done nothing."""
    return holder.is_answered and not holder.took_effect and not holder.was_left_unknown


def _look_up(arguments: dict[str, Any], path: str) -> Any:
    value: Any = arguments
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
