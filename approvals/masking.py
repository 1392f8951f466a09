"""Secret arguments as they may be shown, and put back where a person sent them back as shown."""

from collections.abc import Collection
from typing import Any

MASK = "••••••"


def masked(value: Any, secrets: Collection[str]) -> Any:
    """A copy of a JSON value with the values of keys in `secrets` replaced, at any depth."""
    if isinstance(value, dict):
        return {name: MASK if name in secrets else masked(item, secrets) for name, item in value.items()}
    return [masked(item, secrets) for item in value] if isinstance(value, list) else value


def unmasked(value: Any, current: Any, secrets: Collection[str]) -> Any:
    """An edited value with what was masked put back from the current one. A secret that was replaced stays replaced."""
    if isinstance(value, dict) and isinstance(current, dict):
        return {
            name: current[name]
            if item == MASK and name in secrets and name in current
            else unmasked(item, current.get(name), secrets)
            for name, item in value.items()
        }
    if isinstance(value, list) and isinstance(current, list) and len(value) == len(current):
        return [unmasked(item, was, secrets) for item, was in zip(value, current, strict=True)]
    return value
