"""YAML whose plain values are those of JSON.

YAML of old has more: 1:30 is a number to the base of sixty there, which costs the square of its length to work out, 012
one to the base of eight, and 1_000 a thousand; no, on and NO are truth values, as where countries are listed. Here each
of them is a text.
"""

import re
from collections.abc import Iterable
from typing import Any

import yaml

TAG = "tag:yaml.org,2002:"
# By kind its pattern, and what a text of it begins with.
NUMBERS = (
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][-+]?[0-9]+)?", list("-+0123456789")),
)
WORDS = (("null", r"~|null|", ["~", "n", ""]), ("bool", r"true|false", ["t", "f"]))
_OLD = {f"{TAG}{kind}" for kind, _, _ in (*NUMBERS, *WORDS)}


def add_resolvers(reader: Any, kinds: Iterable[tuple[str, str, list[str]]]) -> None:
    """Have a reader or writer of YAML know these kinds by their patterns."""
    for kind, pattern, first in kinds:
        reader.add_implicit_resolver(f"{TAG}{kind}", re.compile(f"(?:{pattern})\\Z"), first)


class Loader(yaml.SafeLoader):
    """What people write by hand: YAML's plain types, and JSON's as JSON has them, also where they are called such."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag not in _OLD]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class Dumper(yaml.SafeDumper):
    """Writes what both `Loader` and every other reader take for the same: a text like 1e5 in quotes, and so 1:30."""


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
