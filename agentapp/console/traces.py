"""The trace of a run, for anybody who may see the run."""

import uuid

from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from agentapp import auth
from agentapp.console.shell import signed_in
from agentapp.telemetry import download


@never_cache
@require_safe
def run_trace(request: HttpRequest, run_id: uuid.UUID) -> StreamingHttpResponse:
    """The trace as a file in OTLP's JSON."""
    run = get_object_or_404(auth.visible_runs(signed_in(request)).only("pk"), pk=run_id)
    return download.response(request, run)
