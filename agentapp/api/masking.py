"""Secret arguments never leave through the API, and come back unchanged with an edit."""

from typing import Any

from approvals.digest import MalformedJSON, parse

MASK = "••••••"


def masked(value: Any, secret_fields: list[str]) -> Any:
    """Arguments as they may be shown: the secret ones are replaced by MASK."""
    if not isinstance(value, dict) or not secret_fields:
        return value
    return {name: MASK if name in secret_fields else item for name, item in value.items()}


def masked_text(text: str, secret_fields: list[str]) -> Any:
    """The arguments of a JSON text, masked. A text that is not JSON is shown as it is, if nothing in it is secret."""
    try:
        return masked(parse(text), secret_fields)
    except MalformedJSON:
        return MASK if secret_fields else text


def unmasked(arguments: dict[str, Any], current_text: str, secret_fields: list[str]) -> dict[str, Any]:
    """Edited arguments with what was masked put back. A secret the person replaced stays replaced."""
    current = parse(current_text)
    kept = {name: current[name] for name in secret_fields if arguments.get(name) == MASK and name in current}
    return {**arguments, **kept}
