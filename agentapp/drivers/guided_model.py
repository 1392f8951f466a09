"""Guidance by a model: structured questions with JSON answers, without any provider's function calling."""

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from agentapp import llm
from agentapp.considered import Asked
from agentapp.drivers.base import ModelError, Runtime
from agentapp.drivers.json_in_text import objects
from agentapp.drivers.react_text import history
from agentapp.drivers.timeouts import timeout_of
from agentapp.guidance import prompts
from agentapp.guidance.evaluation import MISSING, Guess, Verdict
from agentapp.guidance.guidelines import Guideline
from agentapp.guidance.inference import Brief, Question
from agentapp.guidance.known import ToolFacts, Turn
from agentapp.guidance.matching import Judged
from agentapp.messages import ChatMessage, Note, Reply, Usage, UserMessage
from agentapp.tools.parameters import CUSTOMER
from agentapp.tools.schema import problems_of
from approvals.digest import MalformedJSON, parse

TEMPERATURES = (0.15, 0.3, 0.1)
"""For the successive attempts at one structured answer."""
MATCHED_AT_ONCE = 12
"""How many guidelines one question covers."""


class ModelInference:
    """Asks through a runtime, and keeps count of the usage."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.asked: list[Asked] = []
        self.usage = Usage()
        self.notes: tuple[Note, ...] = ()

    def match(self, turn: Turn, guidelines: Sequence[Guideline]) -> Mapping[str, Judged]:
        groups = [guidelines[at : at + MATCHED_AT_ONCE] for at in range(0, len(guidelines), MATCHED_AT_ONCE)]
        requests = [_request(turn, prompts.match(group)) for group in groups]
        schemas = [prompts.match_schema(group) for group in groups]
        answers = self._structured("match_guidelines", requests, schemas)
        return {
            name: Judged(said["holds"], said.get("why", ""))
            for group, answer in zip(groups, answers, strict=True)
            for name, said in answer["guidelines"].items()
            if name in {guideline.name for guideline in group}
        }

    def evaluate(self, turn: Turn, questions: Sequence[Question]) -> Sequence[Mapping[str, Verdict]]:
        requests = [_request(turn, prompts.evaluate(question)) for question in questions]
        schemas = [prompts.evaluate_schema(question) for question in questions]
        batches = [question.batch.number for question in questions]
        answers = self._structured("infer_tools", requests, schemas, batches)
        others = turn.known.tools
        return [
            {
                candidate.tool.name: _verdict(
                    candidate.tool, answer["tools"][candidate.tool.name], question.is_full, others
                )
                for candidate in question.batch.candidates
            }
            for question, answer in zip(questions, answers, strict=True)
        ]

    def compose(self, turn: Turn, brief: Brief, *, seen: bool) -> Reply:
        began = time.monotonic()
        reply = self.runtime.complete(_request(turn, prompts.compose(turn.agent["instructions"], brief)), seen=seen)
        self._count("compose", [reply], began)
        # Only text is asked for here: drop anything else that the model makes up.
        return dataclasses.replace(reply, tool_calls=(), notes=())

    def claims(self, turn: Turn, text: str, tools: Sequence[str]) -> Sequence[str]:
        described = [turn.known.tools[name] for name in tools]
        question = dataclasses.replace(_request(turn, ""), messages=(UserMessage(prompts.claims(text, described)),))
        [answer] = self._structured("check_reply", [question], [prompts.CLAIMS_SCHEMA])
        claimed: list[str] = answer["claims"]
        return claimed

    def _structured(
        self,
        purpose: str,
        requests: Sequence[llm.Request],
        schemas: Sequence[dict[str, Any]],
        batches: Sequence[int] = (),
    ) -> list[dict[str, Any]]:
        """The answers to questions asked at once. A question whose answer cannot be read is asked again, a few times.

        Raises ModelError.
        """
        answers: dict[int, dict[str, Any]] = {}
        heard: dict[int, list[Reply]] = {at: [] for at in range(len(requests))}
        began = time.monotonic()
        try:
            for temperature in TEMPERATURES:
                left = [at for at in range(len(requests)) if at not in answers]
                replies = self.runtime.complete_all([_tempered(requests[at], temperature) for at in left])
                for at, reply in zip(left, replies, strict=True):
                    if isinstance(reply, ModelError):
                        raise reply
                    heard[at].append(reply)
                    if (found := _read(reply.text, schemas[at])) is not None:
                        answers[at] = found
                if len(answers) == len(requests):
                    return [answers[at] for at in range(len(requests))]
        finally:
            for at, replies_of in heard.items():
                self._count(purpose, replies_of, began, batches[at] if batches else None)
        raise ModelError(
            f"The model gave no readable answer to a question for {purpose} in {len(TEMPERATURES)} attempts.",
            code="unreadable_answer",
        )

    def _count(self, purpose: str, replies: Sequence[Reply], began: float, batch: int | None = None) -> None:
        if not replies:
            return
        usage = sum((reply.usage for reply in replies), Usage())
        self.usage += usage
        self.notes += tuple(note for reply in replies for note in reply.notes)
        cost: Decimal | None = usage.cost
        seconds = round(time.monotonic() - began, 3)
        self.asked.append(Asked(purpose, len(replies), usage.input_tokens, usage.output_tokens, cost, seconds, batch))


def _request(turn: Turn, instructions: str) -> llm.Request:
    settings: dict[str, Any] = turn.agent["model_settings"]
    messages: tuple[ChatMessage, ...] = history(turn.messages)
    return llm.Request(
        model=turn.agent["model"],
        instructions=instructions,
        messages=messages,
        settings=settings,
        timeout=timeout_of(settings),
    )


def _tempered(request: llm.Request, temperature: float) -> llm.Request:
    if request.settings.get("thinking"):  # thinking takes no temperature
        return request
    return dataclasses.replace(request, settings={**request.settings, "temperature": temperature})


def _read(text: str, schema: dict[str, Any]) -> dict[str, Any] | None:
    """The answer in a text. None if there is none, or if there are several that differ.

    A model may quote an answer that a customer or a result has planted. That answer must not be taken as the model's.
    """
    with suppress(MalformedJSON):
        whole = parse(text.strip())
        if isinstance(whole, dict) and not problems_of(schema, whole):
            return whole
    found = [each for each in objects(text) if not problems_of(schema, each)]
    return found[0] if found and all(each == found[0] for each in found) else None


def _verdict(tool: ToolFacts, said: Mapping[str, Any], is_full: bool, others: Collection[str]) -> Verdict:
    """What a model said about one tool. If it said that the tool should not run, that counts whatever calls it listed.
    The calls are kept only for their secrets, which a reason may name.

    A better tool must be an existing one: models write "none" if there is nothing better.
    """
    why, better = str(said.get("why", "")), said.get("better_tool")
    calls = tuple(_arguments(tool, call) if is_full else call for call in said.get("calls", ()))
    if said.get("already_known") or said.get("same_call_was_made"):
        return Verdict("data_already_in_context", why, calls)
    if better in others and better != tool.name:
        return Verdict("not_applicable", f"{why} {better} serves better.".strip(), calls)
    return Verdict("needs_to_run" if said["should_run"] else "not_applicable", why, calls)


def _arguments(tool: ToolFacts, call: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The arguments of a call that changes the world. A guess counts as unknown, and so does a value that should come
    from the customer but does not.
    """
    arguments: dict[str, Any] = {}
    for name, said in call.items():
        must_be_theirs = tool.parameters.get(name, {}).get("source") == CUSTOMER
        source, value = said.get("source"), said.get("value", MISSING)
        if said["state"] != "valid":
            arguments[name] = Guess(value, said["state"])
        elif source == "guess" or (must_be_theirs and source != CUSTOMER):
            arguments[name] = Guess(value, "missing")
        else:
            arguments[name] = value
    return arguments
