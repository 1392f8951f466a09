"""Finds JSON in what a model wrote: the whole text, the contents of code fences, and every object in its prose."""

import json
import re
from collections.abc import Iterator
from typing import Any

from approvals.digest import MalformedJSON, parse

MAX_SCANS = 50
"""How many positions in a text are tried as the beginning of an object."""

_FENCE = re.compile(r"```[\w-]*[^\S\n]*+\n(.*?)```", re.DOTALL)


def candidates(text: str) -> Iterator[str]:
    """The parts of a text that may be JSON, the likeliest first."""
    yield text
    yield from _FENCE.findall(text)
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(MAX_SCANS):
        if start < 0:
            return
        try:
            found, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            # Empty braces in a sentence mean nothing.
            if found:
                yield text[start:end]
        start = text.find("{", end)


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Every candidate that is an object when parsed strictly."""
    for candidate in candidates(text):
        try:
            value = parse(candidate.strip())
        except MalformedJSON:
            continue
        if isinstance(value, dict):
            yield value
