"""What is drawn: replies of models, results of calls, deeds of hooks, kinds of agents, actions of people.

Hypothesis draws a seed and everything follows from it: if it drew piece by piece, most sequences would be short and
much alike, and a hundred sequences should be a hundred different ones.
"""

import json
from random import Random
from typing import Any

from hypothesis import strategies as st

from agentapp.agent_tools import tool_name
from tests.sequences import hooks
from tests.sequences import world as the_world
from tests.sequences.scene import TEAM

type Deed = tuple[str, int]

FORMS = (
    ("no_such_tool", "{}"),
    ("ask_nobody", '{"input": "?"}'),
    (" ", "{}"),
    ("pay now!", '{"account": "ana", "amount": 5}'),
    ("pay", "{not json"),
    ("pay", '{"account": "ana", "amount": NaN}'),
    ("pay", '{"account": "ana", "account": "bo", "amount": 5}'),
    ("pay", '{"account": "ana"}'),
    ("pay", '{"account": "ana", "amount": 5, "approved": true}'),
    ("pay", '{"account": "ana", "amount": "five"}'),
    ("look", '["x"]'),
    ("look", "[" * 500),
    ("look", json.dumps({"what": "x" * 400_000})),
    ("look", '{"what": "\\ud800"}'),
)
"""Calls that cannot run."""

DONE = {"text": "done"}

ON_CARDS = (
    "edit", "edit", "reject", "reject_and_stop", "respond", "expire", "undo", "twice", "stale", "by_starter", "wait",
)  # fmt: skip
OTHERWISE = (
    "pause", "resume", "cancel", "raise_budget", "resolve", "resolve", "resolve", "nudge", "balance_changes",
    "switch_all", "switch_agent", "switch_tool", "release", "release", "disable", "enable", "raise_effect", "deny",
    "allow", "ask_two", "hold", "drop_rule", "starter_leaves", "decider_leaves",
)  # fmt: skip
BEFORE = ("allow", "allow", "allow", "ask_two", "hold", "deny", "raise_effect", "switch_all", "switch_agent")

# One thing at a time: each of these ends many runs.
AGENTS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {}, {}, {"on_reject": "stop"}, {"max_cost": "0.015", "on_budget": "ask"}, {"max_iterations": 1},
    {"max_iterations": 2, "on_limit": "stop"}, {"max_calls": 2}, {"raise_on_tool_failure": True},
    {"fail_run_on_tool_error": True}, {"stop_on_tool_block": True}, {"max_cost": "0.015", "on_budget": "stop"},
)  # fmt: skip
LISTS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {}, {"subagents": []}, {"subagents": ["anna", "ben"]}, {"denied_subagents": ["*"]},
    {"denied_subagents": ["ben", "clerk"]}, {"max_depth": 0}, {"max_depth": 1}, {"max_depth": 2},
    {"on_reject": "stop"}, {"raise_on_tool_failure": True},
)  # fmt: skip
"""Which agents an agent may ask, and how deep agents may ask agents."""

ANSWER = json.dumps({"thought": "Done.", "type": "final_answer", "answer": "done"})
NO_DECISIONS: tuple[str | int, ...] = (
    "{bad json", "", "I would rather not.", '{"type": "call_tool"}', '{"type": "final_answer", "answer": ""}',
    '{"type": "call_tool", "tool": "no_such_tool", "args": {}}', '{"type": "call_tool", "tool": "pay", "args": {}}',
    '{"type": "call_tool", "tool": "pay", "args": {"account": "ana", "amount": NaN}}', "[" * 500, "{}" * 30,
    '{"type": "call_tool", "tool": "pay", "args": [1]}', "Observation: it is paid. " + ANSWER[:20], 500, 429, 400,
)  # fmt: skip
"""Replies without a decision; a number is the provider's status instead of a reply."""


seeds = st.integers(0, 2**32)


# --- Common to all -----------------------------------------------------------------------------------


def good_call(random: Random, hows: tuple[str, ...] = the_world.HOWS) -> tuple[str, dict[str, Any]]:
    # Writes are listed twice: things go wrong with what must run once.
    name = random.choice([*the_world.ARGUMENTS, *the_world.WRITES])
    how = "well" if random.random() < 0.4 else random.choice(hows)
    return name, {**random.choice(the_world.ARGUMENTS[name]), "how": how}


def call(random: Random, asks: float = 0) -> dict[str, Any]:
    if random.random() < asks:
        of: tuple[str, Any] = (tool_name(random.choice(TEAM[1:])), {"input": "Help me."})
    else:
        of = random.choice(FORMS) if random.random() < 0.1 else good_call(random)
    return {"id": random.choice("abc"), "name": of[0], "arguments": of[1]}


def reply(random: Random, most: int, asks: float = 0) -> dict[str, Any]:
    said: dict[str, Any] = {"text": random.choice(["", "Let me see.", "<<< end >>>"])}
    if random.random() < 0.95:
        said["tool_calls"] = [call(random, asks) for _ in range(random.randint(1, most))]
    if random.random() < 0.3:
        said["usage"] = {"input_tokens": 10, "output_tokens": 5, "cost": 0.01}
    return said


def script(random: Random, most: int = 3) -> list[dict[str, Any]]:
    return [*(reply(random, 3) for _ in range(random.randint(1, most))), DONE]


def deeds(random: Random, most: int = 7) -> list[Deed]:
    """Mostly approvals: things go wrong in calls that run."""
    kinds = random.choices([("approve",), ON_CARDS, OTHERWISE], [5, 3, 3], k=random.randint(2, most))
    return [(random.choice(kind), random.randint(0, 7)) for kind in kinds]


def before(random: Random) -> list[Deed]:
    return [(random.choice(BEFORE), random.randint(0, 7)) for _ in range(random.choice([0, 0, 1, 2]))]


def plan(random: Random, most: int) -> dict[tuple[str, str], str]:
    found = {}
    for _ in range(random.randint(0, most)):
        # Mostly at calls, where a hook could let something run.
        at_calls = random.random() < 0.6
        point = random.choice(
            ["before_tool_use", "before_tool_use", "after_tool_use"] if at_calls else list(hooks.DEEDS)
        )
        tool = random.choice(["*", *the_world.ARGUMENTS]) if point.endswith("tool_use") else ""
        # Deeds that end the run at once are drawn less often.
        found[point, tool] = random.choice(hooks.DEEDS[point][0 if random.random() < 0.25 else 2 :])
    return found


# --- The four kinds of run ---------------------------------------------------------------------------


def plain(random: Random) -> dict[str, Any]:
    return {
        "agent": random.choice(AGENTS), "before": before(random), "script": script(random), "deeds": deeds(random),
        "nudges": random.choice([1, 1, 2]),
    }  # fmt: skip


def hooked(random: Random) -> dict[str, Any]:
    return {
        "plan": plan(random, 5), "contract": random.choice(["off", "diagnostics", "strict"]),
        "agent": random.choice(AGENTS), "before": before(random), "script": script(random, 2),
        "deeds": deeds(random, 5),
    }  # fmt: skip


def _decided(of: tuple[str, Any]) -> str:
    return json.dumps({"thought": "So.", "type": "call_tool", "tool": of[0], "args": of[1]})


def _thought(random: Random) -> str | int:
    kind = random.random()
    if kind < 0.25:
        return random.choice(NO_DECISIONS)
    said = _decided(good_call(random))
    if kind < 0.4:
        return f"I think {{so}}.\n```json\n{said}\n```\nObservation: done"
    return said + _decided(good_call(random)) if kind < 0.5 else said


def thinking(random: Random) -> dict[str, Any]:
    settings = ({}, {}, {"max_retries": 0}, {"max_retries": 1, "final_via_inference": True})
    return {
        "thoughts": [_thought(random) for _ in range(random.randint(1, 5))], "settings": random.choice(settings),
        "agent": random.choice(AGENTS), "plan": plan(random, 2), "deeds": deeds(random, 5),
    }  # fmt: skip


def family(random: Random) -> dict[str, Any]:
    agents = {}
    for name in TEAM:
        # The first agent asks most: an agent that is not asked has nothing to do.
        asks = 0.7 if name == "clerk" else 0.4
        said = [reply(random, 2, asks) for _ in range(random.randint(1, 2))]
        agents[name] = {"driver_settings": {"script": [*said, DONE]}, **random.choice(LISTS)}
    did = deeds(random)
    if random.random() < 0.3:  # the first to ask ends while others work for it
        did.insert(random.randint(0, len(did)), ("cancel", 0))
    return {"agents": agents, "before": before(random), "deeds": did}


# Written as an expression, so that a failure prints `plain(Random(7))`, ready for use as an `@example`.
any_plain = seeds.map(lambda seed: plain(Random(seed)))
any_hooked = seeds.map(lambda seed: hooked(Random(seed)))
any_thinking = seeds.map(lambda seed: thinking(Random(seed)))
any_family = seeds.map(lambda seed: family(Random(seed)))
