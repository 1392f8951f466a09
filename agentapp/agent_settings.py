"""What is wrong with an agent's settings, in words. The admin form and the configuration file check before saving."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentapp import agent_tools, hooks
from agentapp.compilers import SECTIONS
from agentapp.drivers import DRIVERS
from agentapp.drivers import settings_problems as driver_problems
from agentapp.llm import providers
from agentapp.llm import settings as model_settings
from agentapp.messages import FINISH_REASONS
from agentapp.models import Agent
from agentapp.tools.schema import InvalidSchema, validator

TOOL_CHOICES = ("auto", "required", "none")
# The message compiler that reads each setting.
COMPILER_SETTINGS = {"sections": Agent.Compiler.SECTIONS, "observations": Agent.Compiler.LAST_OBSERVATIONS}


@dataclass(frozen=True)
class Names:
    """What an agent's settings may name."""

    agents: Collection[str]
    tools: Collection[str]
    """The tools it is given. The tools by which it asks other agents follow from its settings."""


def problems(agent: Agent, names: Names, columns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(column, what is wrong) for some columns of an agent, saved or not."""
    for column in columns:
        for problem in _CHECKS[column][1](agent, names):
            yield column, problem


def whole(given: Collection[str]) -> list[str]:
    """The columns that can be checked when only these, and "tools", are known."""
    return [column for column, (rests_on, _) in _CHECKS.items() if rests_on <= set(given)]


def touched(given: Collection[str], but: Collection[str] = ()) -> list[str]:
    """The columns whose meaning changes with any of these and "tools", except those that depend on one in `but`."""
    unknown = set(but) - {"tools"}
    return [column for column, (rests_on, _) in _CHECKS.items() if rests_on & set(given) and not rests_on & unknown]


def tools_to_call(agent: Agent, names: Names) -> set[str]:
    """The tools an agent is given, and those by which it may ask other agents."""
    asked = {
        agent_tools.tool_name(other)
        for other in names.agents
        if agent_tools.may_ask(agent.name, agent.subagents, agent.denied_subagents, other)
    }
    return {*names.tools, *asked}


def own_tools(agent: Agent) -> set[str]:
    """`tools_to_call` for an agent as it is stored."""
    names = Names(list(Agent.objects.values_list("name", flat=True)), list(agent.tools.values_list("name", flat=True)))
    return tools_to_call(agent, names)


def input_schema_problem(schema: Any) -> str:
    """Why no form can be made from the schema of a run's input. Empty if one can, or if there is no schema."""
    if not isinstance(schema, dict):
        return 'An input schema is an object, as in {"properties": {"order": {"type": "string"}}}.'
    types = schema.get("type", "object")
    if "object" not in (types if isinstance(types, list) else [types]):
        return "A run's input is an object: type is object, or left out."
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "properties is an object of objects, one for each field."
    if wrong := [name for name, described in properties.items() if not isinstance(described, dict)]:
        return f"properties is an object of objects, one for each field; {wrong[0]} is not."
    try:
        validator(schema)
    except InvalidSchema as error:
        return str(error)
    if lacking := [name for name in schema.get("required", []) if name not in properties]:
        return f"required names {lacking[0]}, which is not among the properties: no form could have it filled in."
    return ""


def _input_schema(agent: Agent, names: Names) -> Iterator[str]:
    if problem := input_schema_problem(agent.input_schema):
        yield problem


def _driver_settings(agent: Agent, names: Names) -> list[str]:
    return driver_problems(agent.driver, agent.driver_settings) if agent.driver in DRIVERS else []


def _model(agent: Agent, names: Names) -> Iterator[str]:
    if agent.model and (problem := providers.name_problem(agent.model)):
        yield problem


def _model_settings(agent: Agent, names: Names) -> list[str]:
    return model_settings.problems(agent.model_settings)


def _compiler_settings(agent: Agent, names: Names) -> Iterator[str]:
    settings = agent.compiler_settings
    if not isinstance(settings, dict):
        yield 'Compiler settings are an object, as in {"observations": 5}.'
        return
    for name in settings:
        reader = COMPILER_SETTINGS.get(name)
        if reader is None:
            yield f"{name!r} is not a compiler setting. The settings are {', '.join(COMPILER_SETTINGS)}."
        elif reader != agent.message_compiler:
            yield f"Only the compiler {reader} reads {name}; this agent has {agent.message_compiler}."
    chosen, number = settings.get("sections", SECTIONS), settings.get("observations", 0)
    if not isinstance(chosen, list | tuple) or not chosen or any(name not in SECTIONS for name in chosen):
        yield f"sections is a list of one or more of {', '.join(SECTIONS)}."
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        yield "observations is a whole number, 0 or more."


def _tool_choice(agent: Agent, names: Names) -> Iterator[str]:
    if not (_are_texts(agent.subagents) and _are_texts(agent.denied_subagents)):
        return  # their own checks report this
    tools = sorted(tools_to_call(agent, names))
    if agent.tool_choice not in (*TOOL_CHOICES, *tools):
        listed = f"its tools: {', '.join(tools)}" if tools else "its tools, of which it has none"
        yield f"{agent.tool_choice!r} is neither {', '.join(TOOL_CHOICES)} nor one of {listed}."


def _finish_reasons(agent: Agent, names: Names) -> Iterator[str]:
    if not _are_texts(agent.finish_reasons):
        yield 'Give a list of finish reasons, as in ["length"].'
        return
    for reason in agent.finish_reasons:
        if reason not in FINISH_REASONS:
            yield f"{reason!r} is not a finish reason. The reasons are {', '.join(FINISH_REASONS)}."


def _hooks(agent: Agent, names: Names) -> list[str]:
    return hooks.check(agent.hooks)


def _agents(column: str) -> Callable[[Agent, Names], Iterator[str]]:
    def check(agent: Agent, names: Names) -> Iterator[str]:
        listed = getattr(agent, column)
        if not _are_texts(listed):
            yield 'Give a list of agent names, as in ["refunds"].'
            return
        for name in listed:
            if name not in names.agents and name != agent_tools.EVERY_AGENT:
                yield f"There is no agent {name!r}."

    return check


def _at_least_one(column: str) -> Callable[[Agent, Names], Iterator[str]]:
    def check(agent: Agent, names: Names) -> Iterator[str]:
        if getattr(agent, column) == 0:
            yield "At least 1: with 0, a run stops before its agent does anything."

    return check


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


type _Check = Callable[[Agent, Names], Iterable[str]]

# For each column: the columns it is checked together with, and the check.
_CHECKS: dict[str, tuple[frozenset[str], _Check]] = {
    "driver_settings": (frozenset({"driver", "driver_settings"}), _driver_settings),
    "model": (frozenset({"model"}), _model),
    "model_settings": (frozenset({"model_settings"}), _model_settings),
    "compiler_settings": (frozenset({"message_compiler", "compiler_settings"}), _compiler_settings),
    "tool_choice": (frozenset({"tool_choice", "tools", "subagents", "denied_subagents"}), _tool_choice),
    "finish_reasons": (frozenset({"finish_reasons"}), _finish_reasons),
    "subagents": (frozenset({"subagents"}), _agents("subagents")),
    "denied_subagents": (frozenset({"denied_subagents"}), _agents("denied_subagents")),
    "hooks": (frozenset({"hooks"}), _hooks),
    "input_schema": (frozenset({"input_schema"}), _input_schema),
    **{
        column: (frozenset({column}), _at_least_one(column))
        for column in ("max_steps", "max_iterations", "max_tokens", "max_seconds")
    },
}
