"""What a collector would have received of a run, in the SDK's own classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentapp.models import Run
from agentapp.telemetry import otlp
from agentapp.telemetry.exporting import export_run
from agentapp.telemetry.spans import Span


@dataclass
class Collected:
    """The spans that were sent, in order."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    def send(self, spans: Sequence[Span]) -> bool:
        return self.exporter.export([otlp.readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def export(self, *runs: Run) -> "Collected":
        for run in runs:
            assert export_run(run.pk, self.send)
        return self

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> dict[str, list[str]]:
        """The names of the spans below each, in the order they began."""
        by_id = {span.context.span_id: span.name for span in self.spans}
        assert len(by_id) == len(self.spans)
        found: dict[str, list[str]] = {}
        for span in sorted(self.spans, key=lambda span: span.start_time):
            above = by_id[span.parent.span_id] if span.parent else ""
            found.setdefault(above, []).append(span.name)
        return found

    def said(self) -> str:
        """Everything that was sent, as text."""
        return "\n".join(span.to_json() for span in self.spans)


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def traced(collected: Collected) -> Callable[[Run], Collected]:
    """What is sent of one run."""
    return lambda run: collected.export(run)
