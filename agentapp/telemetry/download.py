"""The trace of one run as a file: what a collector would have been sent, made again from the rows, piece by piece."""

from collections.abc import Iterator

from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
from django.utils import timezone

from agentapp.models import Run
from agentapp.streaming import attachment
from agentapp.telemetry import reading

CONTENT_TYPE = "application/json"


def pieces(run: Run) -> Iterator[str]:
    # The SDK is heavy, so it is imported only when somebody wants a trace.
    from agentapp.telemetry import otlp

    named = reading.run_with_what_it_names(run.pk)
    assert named is not None, "runs are not deleted while somebody looks"
    return otlp.document(reading.spans_of(named, timezone.now(), with_content=settings.OTEL_CONTENT))


def response(request: HttpRequest, run: Run) -> StreamingHttpResponse:
    """The response for somebody who may see the run, streamed as it is made."""
    return attachment(request, pieces(run), f"{run.reference}-otel.json", CONTENT_TYPE)
