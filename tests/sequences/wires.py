"""A history as each provider receives it: every call has its answer right behind it."""

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from agentapp import llm
from agentapp.llm import conversion
from agentapp.messages import ChatMessage
from tests.wire import DIALECTS, Answer, ProviderServer

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check(provider: ProviderServer, messages: Sequence[ChatMessage]) -> None:
    """Send a history to every provider, and check what arrived."""
    for name, dialect in DIALECTS.items():
        provider.answers.clear()
        provider.answer_with = None
        provider.answer(Answer(dialect.reply("Done.")))
        assert llm.complete(llm.Request(dialect.model, "Be exact.", tuple(messages), timeout=30)).text == "Done."
        _check_turns(name, _TURNS[name](provider.questions.pop().body))


def check_conversions(messages: Sequence[ChatMessage]) -> None:
    """The same without the wire, which takes time: what the client library is given for each provider."""
    for name, dialect in DIALECTS.items():
        _check_turns(name, _parts(conversion.history(llm.Request(dialect.model, "Be exact.", tuple(messages)))))


def _check_turns(name: str, turns: Sequence[tuple[str, Any]]) -> None:
    """Turns are ("call", (id, tool, arguments)), ("result", id) and ("said", who), in the order of the body."""
    seen: set[str] = set()
    unanswered: list[str] = []
    began = False
    for kind, what in turns:
        if kind == "call":
            call_id, tool, arguments = what
            assert not (began and unanswered), f"{name}: a call before the answers to others"
            assert call_id, f"{name}: a call without an id"
            assert call_id not in seen, f"{name}: two calls of one id"
            assert _NAME.fullmatch(tool), f"{name}: a tool named {tool!r}"
            assert isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, dict)
            seen.add(call_id)
            unanswered.append(call_id)
        elif kind == "result":
            assert what in unanswered, f"{name}: an answer without its call, or a second one"
            unanswered.remove(what)
            began = bool(unanswered)
        else:
            assert not unanswered, f"{name}: calls without answers: {unanswered}"
    assert not unanswered, f"{name}: calls without answers: {unanswered}"


def _parts(turns: Sequence[Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for part in (part for turn in turns for part in turn.parts):
        if part.part_kind == "tool-call":
            found.append(("call", (part.tool_call_id, part.tool_name, part.args)))
        elif part.part_kind == "tool-return":
            found.append(("result", part.tool_call_id))
        else:
            found.append(("said", part.part_kind))
    return found


def _openai(body: dict[str, Any]) -> list[tuple[str, Any]]:
    turns: list[tuple[str, Any]] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            turns.append(("result", message["tool_call_id"]))
            continue
        turns.append(("said", message["role"]))
        for call in message.get("tool_calls", ()):
            turns.append(("call", (call["id"], call["function"]["name"], call["function"]["arguments"])))
    return turns


def _anthropic(body: dict[str, Any]) -> list[tuple[str, Any]]:
    turns: list[tuple[str, Any]] = []
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(role != after for role, after in pairwise(roles)), "anthropic: two turns of one side"
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text"}]
        for block in blocks:
            if block["type"] == "tool_use":
                turns.append(("call", (block["id"], block["name"], block["input"])))
            elif block["type"] == "tool_result":
                turns.append(("result", block["tool_use_id"]))
            else:
                turns.append(("said", message["role"]))
    return turns


def _google(body: dict[str, Any]) -> list[tuple[str, Any]]:
    turns: list[tuple[str, Any]] = []
    for turn in body["contents"]:
        for part in turn["parts"]:
            if "functionCall" in part:
                call = part["functionCall"]
                turns.append(("call", (call["id"], call["name"], call["args"])))
            elif "functionResponse" in part:
                turns.append(("result", part["functionResponse"]["id"]))
            else:
                turns.append(("said", turn["role"]))
    return turns


_TURNS = {"openai": _openai, "anthropic": _anthropic, "google": _google}
