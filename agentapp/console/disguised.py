"""Texts of a call that are not what they look like, for people who read it: where, how, and what they say."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from agentapp.console.fields import label_of
from approvals.disguises import ALIKE, HIDDEN, MOST, Disguise, disguises
from approvals.masking import blotted, blotted_within, masked, secret_texts
from approvals.packed import BASE64, CODES, HEX, JSON

# Of a longer text the beginning and the end are shown: what an order is hidden behind may be long.
MAX_TEXT, MAX_END = 3000, 1000
MOST_LETTERS = 4
_HOW = {
    ALIKE: "has letters that look like others",
    HIDDEN: "has characters that are not drawn",
    JSON: "is JSON, written as a text",
    BASE64: "holds base64",
    HEX: "holds hex codes",
    CODES: "has codes in place of letters",
}


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
    """How many characters between `text` and `end` are left out."""
    end: str = ""


@dataclass(frozen=True)
class Notes:
    items: list[Seen]
    places: str
    """The arguments that have one, each once."""
    may_be_more: bool


def of(arguments: Mapping[str, Any], hidden: Collection[str], labels: Mapping[str, str]) -> Notes:
    """What is disguised in a call's arguments. Nothing of the fields in `hidden` is named, wherever it is repeated."""
    found = disguises(arguments, hidden)
    secrets = secret_texts(arguments, hidden).union(*(secret_texts(each.value, hidden) for each in found))
    places = dict.fromkeys(_label(each.path[0], labels) for each in found)
    eye = sum(each.kind in (HIDDEN, ALIKE) for each in found)
    return Notes(
        [_seen(each, hidden, secrets, labels) for each in found],
        ", ".join(places),
        may_be_more=max(eye, len(found) - eye) >= MOST,
    )


def _seen(found: Disguise, hidden: Collection[str], secrets: Collection[str], labels: Mapping[str, str]) -> Seen:
    top, *below = found.path
    where = ", ".join([_label(top, labels), *below])
    how = _HOW[found.kind]
    if found.kind == ALIKE:
        letters = found.letters[:MOST_LETTERS]
        text = blotted(found.text, secrets)
        return Seen(where, how, text=text, letters=letters)
    if found.value is not None:
        return Seen(where, how, value=blotted_within(masked(found.value, hidden), secrets))
    text = blotted(masked(found.text, hidden), secrets)
    if len(text) <= MAX_TEXT + MAX_END:
        return Seen(where, how, text=text)
    return Seen(where, how, text=text[:MAX_TEXT], left=len(text) - MAX_TEXT - MAX_END, end=text[-MAX_END:])


def _label(name: str, labels: Mapping[str, str]) -> str:
    return labels.get(name) or label_of(name, {})
