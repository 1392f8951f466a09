"""Bytes ↔ JSON: bodies are read as strictly as a model's arguments, answers are written for every client."""

from decimal import Decimal
from typing import Any

from django.http import HttpRequest
from ninja.renderers import BaseRenderer
from pydantic_core import to_json


def as_json(value: Any) -> bytes:
    """JSON bytes. What JSON cannot express (NaN or infinity in a tool's result) is written as text."""
    return to_json(value, inf_nan_mode="strings")


def money(amount: Decimal) -> str:
    """An amount that every client can read: as text, so that no digit is lost, and without an exponent."""
    return f"{amount:f}"


class Renderer(BaseRenderer):
    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return as_json(data)
