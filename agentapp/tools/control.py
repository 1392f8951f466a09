"""What a tool's result asks of the conversation: who speaks next, how long the result is shown, what to heed now.

A value that means nothing is left out and named under `ignored`: the call has run, and its result stands.
"""

import json
from typing import Any

MODE, LIFESPAN, GUIDELINES, IGNORED = "session_mode", "response_lifespan", "transient_guidelines", "ignored"
MODES = ("auto", "manual")
LIFESPANS = ("response", "session")
MAX_GUIDELINES = 20
MAX_GUIDELINE_CHARS = 4_000
# The shorter names stand for the others.
_ALIASES = {"mode": MODE, "lifespan": LIFESPAN}
_TEXTS = ("condition", "criticality", "description")
_GUIDELINE = {"action", "priority", *_TEXTS}


def checked_control(given: dict[str, Any]) -> dict[str, Any]:
    """The control options of a result under their full names. What is no option of ours stays as it is."""
    made: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in given.items():
        option = _ALIASES.get(name, name)
        if name in _ALIASES and option in given:
            continue  # the full name counts
        problem = _problem(option, value)
        if problem:
            ignored.append(f"{name}: {problem}")
        elif option == GUIDELINES:
            made[option] = value[:MAX_GUIDELINES]
            if len(value) > MAX_GUIDELINES:
                ignored.append(f"{name}: only the first {MAX_GUIDELINES} count.")
        else:
            made[option] = value
    if ignored:
        made[IGNORED] = ignored
    return made


def _problem(option: str, value: Any) -> str:
    if option == MODE and value not in MODES:
        return f"it is one of {', '.join(MODES)}."
    if option == LIFESPAN and value not in LIFESPANS:
        return f"it is one of {', '.join(LIFESPANS)}."
    if option == GUIDELINES:
        if not isinstance(value, list):
            return "it is a list of objects."
        return next((problem for one in value if (problem := _guideline_problem(one))), "")
    return ""


def _guideline_problem(one: Any) -> str:
    if not isinstance(one, dict) or not isinstance(one.get("action"), str) or not one["action"].strip():
        return "each is an object with an action."
    unknown = sorted(set(one) - _GUIDELINE)
    if unknown:
        return f"{unknown[0]} is no part of a guideline."
    if any(name in one and not isinstance(one[name], str) for name in _TEXTS):
        return f"{', '.join(_TEXTS)} are texts."
    priority = one.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        return "priority is a whole number."
    if len(json.dumps(one)) > MAX_GUIDELINE_CHARS:
        return f"one is longer than {MAX_GUIDELINE_CHARS} characters."
    return ""
