"""Which fields hold personal data according to the schema itself."""

from collections.abc import Iterator
from typing import Any

FORMATS = frozenset({"email", "idn-email", "phone", "tel", "iban", "credit-card"})
MAX_DEPTH = 12


def personal_names(schema: Any) -> list[str]:
    """The names of fields marked `x-pii`, or with a format that only personal data has, at any depth."""
    return list(dict.fromkeys(_names(schema, 0)))


def _names(schema: Any, depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return
    fields = schema.get("properties")
    for name, field in fields.items() if isinstance(fields, dict) else ():
        if isinstance(field, dict) and (field.get("x-pii") is True or str(field.get("format")) in FORMATS):
            yield str(name)
        yield from _names(field, depth + 1)
    yield from _names(schema.get("items"), depth + 1)
    for word in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(word)
        for each in choices if isinstance(choices, list) else ():
            yield from _names(each, depth + 1)
