"""Secret arguments never leave through the API; an edit that sends the mask back keeps their values."""

import json
from typing import Any

from approvals import masking
from approvals.digest import MalformedJSON, parse


def masked_text(text: str, secret_fields: list[str]) -> Any:
    """The arguments of a JSON text, masked. Text that is not JSON is shown as it is, unless the tool has secrets."""
    try:
        return masking.masked(parse(text), secret_fields)
    except MalformedJSON:
        return masking.MASK if secret_fields else text


def unmasked(arguments: dict[str, Any], current_text: str, secret_fields: list[str]) -> dict[str, Any]:
    """Edited arguments, with the masked values put back."""
    kept: dict[str, Any] = masking.unmasked(arguments, json.loads(current_text), secret_fields)
    return kept
