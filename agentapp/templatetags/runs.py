"""What only the run pages show: JSON trees, the axis of a timeline, events in words."""

from collections.abc import Collection
from typing import Any

from django import template
from django.utils.safestring import SafeString

from agentapp.console import json_tree as trees
from agentapp.console import words

register = template.Library()


@register.simple_tag
def json_tree(value: Any, secrets: Collection[str] = ()) -> SafeString:
    return trees.json_tree(value, secrets)


@register.filter
def grouped(number: int) -> str:
    """A whole number with separators between its thousands."""
    return f"{number:,}"


@register.filter
def percent(share: float) -> str:
    return f"{share:.0%}"


@register.filter
def scale(seconds: float) -> str:
    """A mark on an axis: "3 s", "0.2 s", "2 min", "1 h"."""
    return words.scale(seconds)


@register.filter
def about(seconds: float) -> str:
    """A length of time in its largest unit, for example on a folded wait: "9 min"."""
    return words.about(seconds)


@register.filter
def fill(kind: str) -> str:
    """The class that fills a bar of this kind."""
    return {"failed": "f-bad", "people": "f-hatch", "idle": "f-gray"}.get(kind, f"f-{kind}")


@register.filter
def actor(name: str) -> str:
    """The actor of an event, in words for people."""
    return words.actor(name)


@register.filter
def at(values: dict[Any, Any], key: object) -> Any:
    """The value of a key, or nothing if there is none."""
    return values.get(key, "")
