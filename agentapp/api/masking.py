"""Secret arguments never leave through the API, and come back unchanged with an edit."""

import json
from typing import Any

from approvals import masking
from approvals.digest import MalformedJSON, parse


def masked_text(text: str, secret_fields: list[str]) -> Any:
    """The arguments of a JSON text, masked. A text that is not JSON is shown as it is, if nothing in it is secret."""
    try:
        return masking.masked(parse(text), secret_fields)
    except MalformedJSON:
        return masking.MASK if secret_fields else text


def unmasked(arguments: dict[str, Any], current_text: str, secret_fields: list[str]) -> dict[str, Any]:
    """Edited arguments with what was masked put back."""
    kept: dict[str, Any] = masking.unmasked(arguments, json.loads(current_text), secret_fields)
    return kept
