"""Which trace a run belongs to, and the names of its spans, as W3C Trace Context has them. No rows.

The name of a span is worked out from the row it stands for: whichever process makes it, and however often, it is the
same span.
"""

import hashlib
import secrets
import uuid

from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_HEADER = "traceparent"


def new_trace_id() -> str:
    """32 hexadecimal digits, as random as the standard wants them."""
    return secrets.token_hex(16)


def span_id(kind: str, row: uuid.UUID) -> str:
    """16 hexadecimal digits for what one row stands for. `kind` tells apart several spans of a row."""
    return hashlib.sha256(f"{kind}:{row}".encode()).hexdigest()[:16]


def read_traceparent(text: str) -> str:
    """A `traceparent` as it is kept. Empty: it is none, which by the standard is no reason to refuse a request."""
    found = get_current_span(TraceContextTextMapPropagator().extract({_HEADER: text[:200]})).get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def linked(traceparent: str) -> tuple[str, str] | None:
    """Trace and span of a kept `traceparent`."""
    _, trace, span, *_ = [*traceparent.split("-"), "", "", ""]
    return (trace, span) if trace and span else None
