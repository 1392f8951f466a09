"""Which trace a run belongs to, and the ids of its spans, as in W3C Trace Context. No rows.

The id of a span is computed from the row it stands for, so it is the same span whichever process makes it, and however
often.
"""

import hashlib
import secrets
import uuid

from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_HEADER = "traceparent"


def new_trace_id() -> str:
    """32 random hexadecimal digits, as the standard requires."""
    return secrets.token_hex(16)


def span_id(kind: str, row: uuid.UUID) -> str:
    """16 hexadecimal digits for what one row stands for. `kind` distinguishes several spans of a row."""
    return hashlib.sha256(f"{kind}:{row}".encode()).hexdigest()[:16]


def read_traceparent(text: str) -> str:
    """A `traceparent` in stored form. Empty: it is invalid, which by the standard is no reason to refuse a request."""
    found = get_current_span(TraceContextTextMapPropagator().extract({_HEADER: text[:200]})).get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def linked(traceparent: str) -> tuple[str, str] | None:
    """Trace and span of a kept `traceparent`."""
    _, trace, span, *_ = [*traceparent.split("-"), "", "", ""]
    return (trace, span) if trace and span else None
