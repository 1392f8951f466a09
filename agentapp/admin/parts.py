"""Parts of admin pages that are more than a field: made by the server, updated as the form changes.

A part is a template. On a form it stands in an element with `data-preview`; `admin.js` posts the form to that address
when something changes and puts the answer in its place. Without script a button opens the same in a page of its own.
"""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString, mark_safe


def part(template: str, context: dict[str, Any]) -> SafeString:
    """A rendered template as the value of a read-only field."""
    return mark_safe(render_to_string(f"admin/parts/{template}.html", context))  # noqa: S308  (the template escapes)


def answer(request: HttpRequest, title: str, template: str, context: dict[str, Any]) -> HttpResponse:
    """The part alone for `admin.js`, or a page around it for a browser without script."""
    name = f"admin/parts/{template}.html"
    if request.headers.get("X-Part"):
        return TemplateResponse(request, name, context)
    around = {**admin.site.each_context(request), "title": title, "shown": part(template, context)}
    return TemplateResponse(request, "admin/part_page.html", around)
