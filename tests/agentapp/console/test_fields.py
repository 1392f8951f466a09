"""The controls of a call's arguments as HTML: each is named, and what is wrong with it is said with it."""

import re
from typing import Any

import pytest
from django.template.loader import render_to_string

from .test_schema_form import form

CHOICES = {"type": "string", "enum": ["a", "b"]}
LINES = {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}}
SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "boolean"}, True),
    ({"type": "array", "items": CHOICES}, ["a"]),
    (CHOICES, "a"),
    ({"type": "array", "items": {"type": "string"}}, ["a"]),
    (LINES, [{"sku": "a"}]),
    ({"enum": ["a", "b", "c", "d", "e"]}, "a"),
    ({"type": "string", "maxLength": 500}, "a"),
    ({"type": "number", "format": "money", "x-currency": "USD"}, 2),
    ({"type": "string"}, "a"),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "a"),
]


def controls(schema: dict[str, Any], value: Any, error: str = "") -> tuple[str, list[dict[str, str]]]:
    """One argument called "what" as HTML, and the attributes of what in it has a role or can be typed into."""
    [field] = form({"what": schema}, {"what": value}).fields
    field.error = error
    html = render_to_string("console/_fields.html", {"fields": [field], "draft_url": "/"})
    tags = re.findall(r"<(?:input|select|textarea|div)\b[^>]*>", html)
    found = [dict(re.findall(r' ([a-z-]+)="([^"]*)"', tag)) for tag in tags]
    return html, [one for one in found if one.get("type") != "hidden" and ("role" in one or "name" in one)]


def text_of(html: str, ids: str) -> str:
    """What the elements with these ids say together, as a screen reader puts them together."""
    parts = [re.search(rf'id="{one}"[^>]*>(.*?)</(?:span|label)>\s*(?:<|$)', html, re.DOTALL) for one in ids.split()]
    return " ".join(re.sub(r"<[^>]*>", "", part[1]).strip() for part in parts if part is not None).strip()


@pytest.mark.parametrize(("schema", "value"), SCHEMAS)
def test_what_is_wrong_is_said_with_the_control_it_is_about(schema: dict[str, Any], value: Any) -> None:
    html, found = controls(schema, value, "Cannot be so.")
    said = [one for one in found if "Cannot be so." in text_of(html, one.get("aria-describedby", ""))]
    assert said
    # A list of objects has no control of its own that could be called wrong.
    assert any(one.get("aria-invalid") == "true" for one in found) or "sku" in html

    html, found = controls(schema, value)
    assert [one for one in found if "aria-invalid" in one] == []
    assert 'id="e-' not in html
    assert all(name in html for one in found for name in one.get("aria-describedby", "").split())


@pytest.mark.parametrize(("hint", "said"), [("", "What Yes"), ("Tells the customer", "What Tells the customer")])
def test_a_checkbox_is_named_after_its_argument(hint: str, said: str) -> None:
    html, [box] = controls({"type": "boolean", "description": hint}, True)
    assert text_of(html, box["aria-labelledby"]) == said
