"""What a model without function calling reads: the tools and the decision format as text, and the run as dialogue."""

import json
import re
from collections.abc import Sequence

from agentapp.drivers.react_decision import callable_tools, must_call
from agentapp.messages import AssistantMessage, ChatMessage, ToolMessage, ToolSpec, UserMessage

AGAIN = "Reply again with one JSON object in the decision format and nothing else."
FINAL_ONLY = "Return only the final answer as plain text."
GIVE_IT = "Give the final answer now, as plain text."

# Words that open a line of the dialogue. If a person writes one, it must not pass for a tool's or the agent's line.
_OURS = re.compile(r"^([^\S\n]*)(Observation|Thought|Action Input|Action)(?=[^\S\n]*:)", re.MULTILINE | re.IGNORECASE)

_CALL = '{"thought": "why", "type": "call_tool", "tool": "the name of a tool", "args": {"argument": "value"}}'
_ANSWER = '{"thought": "why", "type": "final_answer", "answer": "what you say in the end"}'
_HOW = """\
Reply with exactly one JSON object and nothing else, in {forms}:

{examples}

Your earlier decisions are shown as Thought, Action and Action Input, and what came of each as Observation. \
Never write an Observation yourself."""


def instructions_for(instructions: str, tools: Sequence[ToolSpec], choice: str) -> str:
    """An agent's instructions, the tools it may call now, and how to write a decision."""
    offered = callable_tools(tools, choice)
    may_answer = not must_call(offered, choice)
    examples = [_CALL] * bool(offered) + [_ANSWER] * may_answer
    parts = [instructions.strip()]
    if offered:
        parts.append("You can call these tools, one at a time:\n\n" + "\n\n".join(map(_described, offered)))
    if not may_answer:
        parts.append("Call one of them now; an answer comes later.")
    forms = "one of these two forms" if len(examples) == 2 else "this form"
    parts.append(_HOW.format(forms=forms, examples="\n".join(examples)))
    return "\n\n".join(filter(None, parts))


def history(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The run as a dialogue of two sides, turn by turn: calls and their results are text like the rest."""
    turns: list[UserMessage | AssistantMessage] = []
    for message in messages:
        turn = _turn(message)
        if turns and type(turns[-1]) is type(turn):
            # Some chat templates refuse two consecutive turns of one side.
            turns[-1] = type(turn)(f"{turns[-1].text}\n\n{turn.text}")
        elif turn.text:
            turns.append(turn)
    return tuple(turns)


def said_of(thought: str, answer: str) -> str:
    """An answer as it appears in the dialogue."""
    return f"Thought: {thought}\nAnswer: {answer}" if thought else f"Answer: {answer}"


def _described(tool: ToolSpec) -> str:
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return f"{tool.name}: {tool.description}\nArguments, as JSON Schema: {schema}"


def _turn(message: ChatMessage) -> UserMessage | AssistantMessage:
    if isinstance(message, ToolMessage):
        return UserMessage(f"Observation: {message.text}" if message.ok else f"Observation: ERROR - {message.text}")
    if isinstance(message, AssistantMessage) and message.tool_calls:
        lines = [f"Thought: {message.text}"] if message.text else []
        for call in message.tool_calls:
            lines += [f"Action: {call.name}", f"Action Input: {call.arguments_text}"]
        return AssistantMessage("\n".join(lines))
    if isinstance(message, AssistantMessage):
        return AssistantMessage(message.text)
    return UserMessage(_OURS.sub(r'\1"\2"', message.text))
