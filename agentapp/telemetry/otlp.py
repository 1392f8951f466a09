"""Spans in OpenTelemetry's own classes and encodings. Only this module imports its SDK, which is large, so this module
is imported when the first span leaves.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import requests
from django.conf import settings
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from agentapp.telemetry.spans import Occurrence, Span

_SCOPE = InstrumentationScope("countersign")
_KINDS = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
# Bytes in the encoded message: hexadecimal in OTLP's JSON, base64 in protobuf's.
_IDS = ("traceId", "spanId", "parentSpanId")


# These statuses mean that the message is wrong, not who sends it, when, or where to.
_NOT_TAKEN = frozenset({400, 413, 422})
_GIVES_SESSIONS = ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
                   "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER")  # fmt: skip


class Session(requests.Session):
    """The HTTP session for messages. The exporter says only that one did not arrive, not whether it was refused."""

    def __init__(self) -> None:
        super().__init__()
        self._status: int | None = None
        self._tried = False

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        self._status, self._tried = None, True
        response = super().send(request, **kwargs)
        self._status = response.status_code
        return response

    def refusal(self) -> str:
        """Why the last message will never be accepted as it is. Empty if it may be."""
        status, tried = self._status, self._tried
        self._status, self._tried = None, False
        if not tried:
            return "it could not be encoded, or is too large to send"
        return f"it answered {status}" if status in _NOT_TAKEN else ""


def session() -> Session | None:
    """None if the environment names a provider of the exporter's sessions."""
    return None if any(os.environ.get(name) for name in _GIVES_SESSIONS) else Session()


@cache
def resource() -> Resource:
    """Who sends it. The standard variables override what is known here."""
    known = {"service.name": "countersign"}
    if settings.ENVIRONMENT:
        known["deployment.environment.name"] = settings.ENVIRONMENT
    return Resource(known).merge(OTELResourceDetector().detect())


def readable(span: Span) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource(),
        attributes=_attributes(span.attributes),
        events=[_event(occurrence) for occurrence in span.occurrences],
        links=[Link(_context(*link)) for link in span.links],
        kind=_KINDS[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=_nanoseconds(span.start),
        end_time=_nanoseconds(span.end),
        instrumentation_scope=_SCOPE,
    )


def document(batches: Iterable[Sequence[Span]]) -> Iterator[str]:
    """A whole trace as OTLP JSON, one piece per batch: what the collector's file receiver reads."""
    first = True
    for batch in batches:
        encoded = MessageToDict(encode_spans([readable(span) for span in batch]), use_integers_for_enums=True)
        [of_resource] = encoded["resourceSpans"]
        [of_scope] = of_resource["scopeSpans"]
        if first:
            yield (
                f'{{"resourceSpans": [{{"resource": {json.dumps(of_resource["resource"])}, '
                f'"scopeSpans": [{{"scope": {json.dumps(of_scope["scope"])}, "spans": ['
            )
        spans = ", ".join(json.dumps(_in_hexadecimal(span)) for span in of_scope["spans"])
        yield spans if first else f", {spans}"
        first = False
    yield '{"resourceSpans": []}' if first else "]}]}]}"


def _in_hexadecimal(encoded: dict[str, Any]) -> dict[str, Any]:
    for place in (encoded, *encoded.get("links", [])):
        place |= {name: base64.b64decode(place[name]).hex() for name in _IDS if name in place}
    return encoded


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _event(occurrence: Occurrence) -> Event:
    return Event(occurrence.name, _attributes(occurrence.attributes), _nanoseconds(occurrence.at))


def _attributes(attributes: Mapping[str, Any]) -> dict[str, Any]:
    # Not every server keeps the null character, and text that is not valid Unicode breaks the encoding of the whole
    # batch.
    return {name: _clean(value) for name, value in attributes.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return tuple(_clean(one) for one in value) if isinstance(value, list | tuple) else value


def _nanoseconds(moment: datetime) -> int:
    # Exact to the microsecond. A float of this size is not.
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000_000 + moment.microsecond * 1000
