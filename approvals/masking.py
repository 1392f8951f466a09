"""Masks secret arguments for display, and puts them back where a person returned them masked."""

from collections.abc import Collection, Iterator
from typing import Any

from approvals.blots import MIN_BLOTTED_CHARS as MIN_BLOTTED_CHARS
from approvals.blots import blotting
from approvals.detectors import MASK as MASK
from approvals.detectors import without_secrets
from approvals.digest import MalformedJSON, parse

CHANGED_MASK = f"{MASK} (changed)"
STILL_MASKED = "This still has a masked part. Type the value again."
# The keys of a line that say what something was, is, or would be.
SAID_OF = ("before", "after", "predicted", "actual", "was", "now")


def masked(value: Any, secrets: Collection[str]) -> Any:
    """A copy of a JSON value with the values of keys in `secrets` replaced, at any depth, and anything that looks like
    a key.
    """
    if isinstance(value, dict):
        return {name: MASK if name in secrets else masked(item, secrets) for name, item in value.items()}
    if isinstance(value, str):
        return without_secrets(value)
    return [masked(item, secrets) for item in value] if isinstance(value, list) else value


def masked_lines(lines: Collection[dict[str, Any]], secrets: Collection[str]) -> list[dict[str, Any]]:
    """`masked`, for lines that say what something was, is or would be: those about a secret do not say it."""
    return [
        {
            key: MASK if key in SAID_OF and is_of(line["name"], secrets) else masked(said, secrets)
            for key, said in line.items()
        }
        for line in lines
    ]


def is_of(name: str, secrets: Collection[str]) -> bool:
    """Whether a line of this name is about one of these. In what was looked up for a plan, the name begins with its
    call.
    """
    return name in secrets or name.rpartition(", ")[2] in secrets


def masked_beside(value: Any, was: Any, secrets: Collection[str], same: str | None = MASK) -> Any:
    """`masked`, but a secret that differs from `was` is marked as changed. `same`: what to show for an unchanged one;
    None leaves it.
    """
    if isinstance(value, dict):
        before = was if isinstance(was, dict) else {}
        return {
            name: _beside(item, name in before and before[name] == item, same)
            if name in secrets
            else masked_beside(item, before.get(name), secrets, same)
            for name, item in value.items()
        }
    if isinstance(value, str):
        return without_secrets(value)
    if not isinstance(value, list):
        return value
    befores = was if isinstance(was, list) and len(was) == len(value) else [None] * len(value)
    return [masked_beside(item, before, secrets, same) for item, before in zip(value, befores, strict=True)]


def _beside(value: Any, is_same: bool, same: str | None) -> Any:
    if not is_same:
        return CHANGED_MASK
    return value if same is None else same


def changed_secrets(value: Any, was: Any, secrets: Collection[str]) -> list[tuple[str, ...]]:
    """Where secrets are that have changed or are gone. Within a list, all count as one."""
    found: list[tuple[str, ...]] = []
    if isinstance(value, dict) and isinstance(was, dict):
        for name in [*value, *(name for name in was if name not in value)]:
            if name in secrets:
                same = name in value and name in was and value[name] == was[name]
                found += [] if same else [(name,)]
            else:
                found += [(name, *path) for path in changed_secrets(value.get(name), was.get(name), secrets)]
    elif isinstance(value, list) and isinstance(was, list):
        hidden, before = masked_beside(value, was, secrets), masked(was, secrets)
        found += [()] if hidden != before and masked(value, secrets) == before else []
    return found


def unmasked(value: Any, current: Any, secrets: Collection[str]) -> Any:
    """An edited value with masked parts restored from the current one. A secret that was replaced stays replaced."""
    if isinstance(value, dict) and isinstance(current, dict):
        return {
            name: current[name]
            if item == MASK and name in secrets and name in current
            else unmasked(item, current.get(name), secrets)
            for name, item in value.items()
        }
    if isinstance(value, list) and isinstance(current, list) and len(value) == len(current):
        return [unmasked(item, was, secrets) for item, was in zip(value, current, strict=True)]
    if isinstance(value, str) and isinstance(current, str) and value == without_secrets(current):
        return current
    return value


def secret_texts(value: Any, secrets: Collection[str]) -> set[str]:
    """The texts, and the numbers as text, that keys in `secrets` have in a JSON value, at any depth."""
    if isinstance(value, dict):
        found = (set(_texts(item)) if name in secrets else secret_texts(item, secrets) for name, item in value.items())
        return set().union(*found)
    return set().union(*(secret_texts(item, secrets) for item in value)) if isinstance(value, list) else set()


def secrets_in(text: str, secrets: Collection[str]) -> set[str]:
    """The same for a JSON text. Empty if it is malformed: nobody can tell which argument is which."""
    try:
        return secret_texts(parse(text), secrets) if secrets and text else set()
    except MalformedJSON:
        return set()


def blotted(text: str, secrets: Collection[str]) -> str:
    """Free text with every mention of a secret replaced, however it is spelled."""
    return blotting(secrets, text)(text) if secrets else text


def blotted_within(value: Any, secrets: Collection[str]) -> Any:
    """A JSON value with every mention of a secret in its texts replaced, and every number that is one."""
    if isinstance(value, dict):
        return {blotted(name, secrets): blotted_within(item, secrets) for name, item in value.items()}
    if isinstance(value, list):
        return [blotted_within(item, secrets) for item in value]
    if isinstance(value, str):
        return blotted(value, secrets)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return MASK if is_number and blotted(str(value), secrets) == MASK else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value).strip()


def with_masks(value: Any) -> set[str]:
    """The texts and names in a JSON value that contain a mask: they are not values."""
    if isinstance(value, dict):
        return {name for name in value if MASK in name}.union(*map(with_masks, value.values()))
    if isinstance(value, list):
        return set().union(*map(with_masks, value))
    return {value} if isinstance(value, str) and MASK in value else set()
