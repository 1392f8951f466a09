"""What a tool's result asks of the conversation: who speaks next, how long the result is shown, what to heed now.

A value that is not valid is left out and listed under `ignored`: the call has run, and its result stands.
"""

import json
from typing import Any

MODE, LIFESPAN, GUIDELINES, IGNORED = "session_mode", "response_lifespan", "transient_guidelines", "ignored"
MODES = ("auto", "manual")
LIFESPANS = ("response", "session")
MAX_GUIDELINES = 20
MAX_GUIDELINE_CHARS = 4_000
# Short names and the full names they stand for.
_ALIASES = {"mode": MODE, "lifespan": LIFESPAN}
_TEXTS = ("condition", "criticality", "description")
_GUIDELINE = {"action", "priority", *_TEXTS}


def checked_control(given: dict[str, Any]) -> dict[str, Any]:
    """The control options of a result under their full names. Unknown options stay as they are."""
    made: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in given.items():
        option = _ALIASES.get(name, name)
        if name in _ALIASES and option in given:
            continue  # the full name takes precedence
        problem = _problem(option, value)
        if problem:
            ignored.append(f"{name}: {problem}")
        elif option == GUIDELINES:
            meant, problems = _guidelines(value)
            if meant:
                made[option] = meant
            ignored += [f"{name}: {problem}" for problem in problems]
        else:
            made[option] = value
    if ignored:
        made[IGNORED] = ignored
    return made


def _problem(option: str, value: Any) -> str:
    if option == MODE and value not in MODES:
        return f"it must be one of {', '.join(MODES)}."
    if option == LIFESPAN and value not in LIFESPANS:
        return f"it must be one of {', '.join(LIFESPANS)}."
    if option == GUIDELINES and not isinstance(value, list):
        return "it must be a list of objects."
    return ""


def _guidelines(given: list[Any]) -> tuple[list[Any], list[str]]:
    """The valid guidelines, and what is wrong with the others, each problem once."""
    found = [(one, _guideline_problem(one)) for one in given]
    meant = [one for one, problem in found if not problem]
    problems = list(dict.fromkeys(problem for _, problem in found if problem))
    if len(meant) > MAX_GUIDELINES:
        problems.append(f"only the first {MAX_GUIDELINES} count.")
    return meant[:MAX_GUIDELINES], problems


def _guideline_problem(one: Any) -> str:
    if not isinstance(one, dict) or not isinstance(one.get("action"), str) or not one["action"].strip():
        return "each must be an object with an action."
    unknown = sorted(set(one) - _GUIDELINE)
    if unknown:
        return f"{unknown[0]} is not part of a guideline."
    if any(name in one and not isinstance(one[name], str) for name in _TEXTS):
        return f"{', '.join(_TEXTS)} must be text."
    priority = one.get("priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        return "priority must be a whole number."
    if len(json.dumps(one)) > MAX_GUIDELINE_CHARS:
        return f"one is longer than {MAX_GUIDELINE_CHARS} characters."
    return ""
