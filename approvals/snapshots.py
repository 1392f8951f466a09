"""The state that a decision depends on, as it is kept with a request: canonical JSON of what the tool looked up."""

from typing import Any

from approvals.digest import canonical, load

UNAVAILABLE = "unavailable"


def unseen(why: str) -> str:
    """What is kept if a state could not be looked up."""
    return canonical({UNAVAILABLE: why})


def unseen_in(snapshot_text: str) -> list[str]:
    """Why a state could not be looked up; for a plan, for each of its calls of which that is true."""
    found: Any = load(snapshot_text) if snapshot_text else {}
    if not isinstance(found, dict):
        return []
    if set(found) == {UNAVAILABLE}:
        return [str(found[UNAVAILABLE])]
    inner = ((place, each.get("state")) for place, each in found.items() if isinstance(each, dict))
    return [f"{place}: {why}" for place, text in inner if isinstance(text, str) and text for why in _of_call(text)]


def _of_call(text: str) -> list[str]:
    try:
        return unseen_in(text)
    except ValueError:  # the tool's own state has a field of that name
        return []
