"""How sure one must be of who approves: the levels, what a call requires, and the words for it. Reads no row."""

from collections.abc import Iterable, Mapping

from django.conf import settings

# From weakest to strongest; each satisfies those before it.
LEVELS = ("", "password", "totp", "passkey", "signed")
SIGNED = "signed"
_RISKS = ("low", "medium", "high", "critical")
_EFFECT_CLASSES = ("read", "reversible", "compensable", "irreversible")
# The minimum at critical risk, whatever rules and settings say.
_AT_CRITICAL = "password"

NEEDS: dict[str, str] = {
    "password": "a sign-in within the last five minutes",
    "totp": "a second step within the last five minutes: a code or a passkey",
    "passkey": "a passkey, used within the last five minutes",
    "signed": "a passkey that signs this very decision",
}
# As in "Dana approved, with a passkey".
SHOWN: dict[str, str] = {
    "password": "with a recent sign-in",
    "totp": "with a second step",
    "passkey": "with a passkey",
    "signed": "signed with a passkey",
}


def strictest(levels: Iterable[str]) -> str:
    return max(levels, key=LEVELS.index, default="")


def is_enough(shown: str, needed: str) -> bool:
    """Whether what somebody has shown is as strong as what is needed. An unknown level counts as none."""
    return LEVELS.index(shown if shown in LEVELS else "") >= LEVELS.index(needed)


def is_claimable(level: str) -> bool:
    """Whether a caller can claim that a level was shown. Only a signature proves that something was signed."""
    return level in LEVELS and level != SIGNED


def enough_for(needed: str) -> tuple[str, ...]:
    """This level and all stronger ones."""
    return LEVELS[LEVELS.index(needed) :]


def needed(asked: str, risk: str, effect_class: str) -> str:
    """What an approval of a call requires: what the rules ask, and at least the minimum here.

    A minimum for a risk holds for higher risks too. One for an effect class holds for that class.
    """
    minima: Mapping[str, str] = settings.STEP_UP
    by_risk = (minima.get(lower, "") for lower in _RISKS[: _RISKS.index(risk) + 1])
    least = _AT_CRITICAL if risk == "critical" else ""
    return strictest((asked, least, minima.get(effect_class, ""), *by_risk))


def parse(raw: str) -> dict[str, str]:
    """Minima by risk and effect class, as in high=password,irreversible=signed. Raises ValueError."""
    minima: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in raw.split(","))):
        name, _, level = (word.strip() for word in part.partition("="))
        if name not in (*_RISKS, *_EFFECT_CLASSES):
            raise ValueError(f"{name!r} is neither a risk nor an effect class.")
        if name in minima:
            raise ValueError(f"{name} appears twice.")
        if level not in LEVELS[1:]:
            raise ValueError(f"{name} must be one of {', '.join(LEVELS[1:])}.")
        minima[name] = level
    return minima
