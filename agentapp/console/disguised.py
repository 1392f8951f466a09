"""Texts of a call that are not what they look like, for people who read it: where, how, and what they say."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agentapp.console.fields import label_of
from approvals.disguises import ALIKE, BASE64, HIDDEN, MOST, Disguise, disguises
from approvals.masking import masked

MAX_TEXT = 4096
MOST_LETTERS = 4


@dataclass(frozen=True)
class Seen:
    """One of them. All of it may be from outside."""

    where: str
    how: str
    text: str = ""
    value: Any = None
    """What the text unpacks to, if that is JSON. Otherwise `text` says it."""
    letters: tuple[str, ...] = ()
    left: int = 0
    """How many characters more there are than `text` shows."""


@dataclass(frozen=True)
class Notes:
    items: list[Seen]
    places: list[str]
    """The arguments that have one, each once."""
    may_be_more: bool


def of(arguments: Mapping[str, Any], hidden: Collection[str], labels: Mapping[str, str]) -> Notes:
    """What is disguised in a call's arguments. Nothing within the fields in `hidden` is named."""
    # Where equal names were numbered, so are those of secrets.
    hidden = {*hidden, *(f"{name} ({number})" for name in hidden for number in range(2, MOST))}
    found = disguises(arguments, hidden)
    places = dict.fromkeys(_label(each.path[0], labels) for each in found)
    return Notes([_seen(each, hidden, labels) for each in found], list(places), may_be_more=len(found) >= MOST)


def _seen(found: Disguise, hidden: Collection[str], labels: Mapping[str, str]) -> Seen:
    top, *below = found.path
    where = ", ".join([_label(top, labels), *below])
    if found.kind == ALIKE:
        letters = found.letters[:MOST_LETTERS]
        return Seen(where, "has letters that look like others", text=found.text, letters=letters)
    how = "has characters that are not drawn" if found.kind == HIDDEN else "is JSON, written as a text"
    how = "holds base64" if found.kind == BASE64 else how
    if found.value is not None:
        return Seen(where, how, value=masked(found.value, hidden))
    text = masked(found.text, hidden)
    return Seen(where, how, text=text[:MAX_TEXT], left=max(0, len(text) - MAX_TEXT))


def _label(name: str, labels: Mapping[str, str]) -> str:
    return labels.get(name) or label_of(name, {})
