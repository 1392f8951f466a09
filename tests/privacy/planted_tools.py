"""Tools that receive, return, and fail with values that nobody without the right may see."""

from typing import Any

from agentapp.tools.base import EffectLine, ToolError, tool

PERSON: dict[str, Any] = {}
"""What a search for a person returns; the test plants it."""
SEEN: dict[str, str] = {}
"""What a request looks up about a person; the test plants it."""
FAILURE: list[str] = []
"""What the failing tool says."""

MARKED = ("name", "street", "city", "born", "employer", "nickname", "school", "allergy", "doctor", "pet")


def looked_up(memo: str) -> dict[str, Any]:
    return {"known": [{name: SEEN[name]} for name in MARKED[:2]], **{name: SEEN[name] for name in MARKED[2:6]}}


def foreseen(memo: str) -> list[dict[str, Any]]:
    return [{"name": name, "before": SEEN[name], "after": None} for name in MARKED[6:]]


@tool(
    effect="irreversible",
    title="Enroll {name} of {city}, of {snapshot.city} before",
    sentence="The agent will enroll {name}, who lives in {street}, {city}, and works for {employer}.",
    effects=(EffectLine("{snapshot.employer} is told", "As is {snapshot.nickname}", "mail"),),
    snapshot=looked_up,
    preview=foreseen,
    button="Enroll {name}",
    pii=MARKED,
    secret=("pin", "passphrase"),
)
def enroll(
    name: str,
    street: str,
    city: str,
    born: str,
    employer: str,
    nickname: str,
    school: str,
    allergy: str,
    doctor: str,
    pet: str,
    pin: str,
    passphrase: str,
    memo: str,
) -> dict[str, Any]:
    """Enroll a person."""
    return {"name": name, "card": memo}


@tool(effect="read", pii=MARKED)
def find_person(nickname: str) -> dict[str, Any]:
    """Find a person."""
    return {**PERSON, "asked": nickname}


@tool(effect="read", max_attempts=1, pii=("name",))
def fail_for(name: str) -> str:
    """Fail, and say so at length."""
    raise ToolError(f"{name} was refused: {', '.join(FAILURE)}")


@tool(effect="read", max_attempts=1, pii=("name",))
def crash_for(name: str) -> str:
    """Fail as code does that has a bug."""
    raise RuntimeError(f"{name}: {', '.join(FAILURE)}")
