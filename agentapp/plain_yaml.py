"""YAML whose plain values are those of JSON.

YAML 1.1 has more: 1:30 is a base-60 number, which takes quadratic time to read, 012 is octal and 1_000 a thousand; no,
on and NO are booleans, even in a list of countries. Here each of these is text.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
# Each kind with its pattern, and the characters that such text can begin with.
NUMBERS = (
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?", list("-+0123456789")),
)
WORDS = (("null", r"~|null|", ["~", "n", ""]), ("bool", r"true|false", ["t", "f"]))
_OLD = {f"{TAG}{kind}" for kind, _, _ in (*NUMBERS, *WORDS)}


def add_resolvers(reader: Any, kinds: Iterable[tuple[str, str, list[str]]]) -> None:
    """Teach a YAML loader or dumper to recognise these kinds by their patterns."""
    for kind, pattern, first in kinds:
        reader.add_implicit_resolver(f"{TAG}{kind}", re.compile(f"(?:{pattern})\\Z"), first)


class Loader(yaml.SafeLoader):
    """Reads what people write by hand: YAML's plain types, with JSON's types as in JSON, even if tagged explicitly."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in _OLD]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class Dumper(yaml.SafeDumper):
    """Writes what `Loader` and every other reader understand alike: text such as 1e5 or 1:30 is quoted."""


def _text(loader: Any, node: Any) -> str:
    return str(loader.construct_scalar(node))


def _bool(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{text} is neither true nor false.")
    return text == "true"


add_resolvers(Loader, (*NUMBERS, *WORDS))
add_resolvers(Dumper, NUMBERS)
Loader.add_constructor(f"{TAG}int", lambda loader, node: int(_text(loader, node)))
Loader.add_constructor(f"{TAG}float", lambda loader, node: float(_text(loader, node)))
Loader.add_constructor(f"{TAG}bool", lambda loader, node: _bool(_text(loader, node)))
