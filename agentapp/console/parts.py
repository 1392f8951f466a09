"""One template for a page and for the part of it that refreshes itself."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers


def wants_part(request: HttpRequest) -> bool:
    """Whether the page asks for a part of itself. A browser that opens the same address gets the whole page."""
    return request.headers.get("HX-Request-Type") == "partial"


def render_part(request: HttpRequest, template: str, part: str, context: dict[str, Any]) -> HttpResponse:
    """The whole page, or only its named part."""
    response = render(request, f"{template}#{part}" if wants_part(request) else template, context)
    patch_vary_headers(response, ["HX-Request-Type"])
    return response
