"""What providers accept as a history. Every history is checked against this before it is sent."""

from collections.abc import Iterable, Sequence

from agentapp.messages import AssistantMessage, ChatMessage, ToolMessage


class BrokenHistory(ValueError):
    """A history that no provider would accept; the message names the calls at fault."""


def check(messages: Iterable[ChatMessage], *, adjacent: bool = True) -> None:
    """Every call has its own id, and one answer right after the message that declares it. Raises BrokenHistory.

    Without `adjacent`, a person's words may stand between the two, for the caller to put in order.
    """
    declared: set[str] = set()
    unanswered: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in unanswered:
                raise BrokenHistory(f"The answer to {_named([message.call_id])} follows no message that declares it.")
            unanswered.remove(message.call_id)
            continue
        if adjacent or isinstance(message, AssistantMessage):
            _all_answered(unanswered)
        if isinstance(message, AssistantMessage):
            unanswered = [call.id for call in message.tool_calls]
            twice = [call_id for place, call_id in enumerate(unanswered) if call_id in {*declared, *unanswered[:place]}]
            if twice:
                raise BrokenHistory(f"The history declares {_named(twice)} more than once.")
            declared.update(unanswered)
    _all_answered(unanswered)


def _all_answered(unanswered: Sequence[str]) -> None:
    if unanswered:
        raise BrokenHistory(f"The history has no answer to {_named(unanswered)}.")


def _named(call_ids: Sequence[str]) -> str:
    return ("the call " if len(call_ids) == 1 else "the calls ") + ", ".join(repr(call_id[:80]) for call_id in call_ids)
