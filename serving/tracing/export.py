"""Sends traces to a collector by OTLP over HTTP. Where it is, and with which headers, say OpenTelemetry's own variables.

Such are OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318 by default), OTEL_EXPORTER_OTLP_HEADERS and
OTEL_RESOURCE_ATTRIBUTES. Spans wait in memory, 2,048 at most, for a thread that sends them; without a collector they are
lost, and no request waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from pliant.version import VERSION

DISABLED = "OTEL_SDK_DISABLED"
FLUSH_SECONDS = 3.0  # for what is left when the service stops
SAY_SECONDS = 60.0  # between two lines of the log that say that spans are lost

logger = logging.getLogger("pliant.serving")


class QuietExporter(SpanExporter):
    """Passes spans on to another exporter, and says at most once a minute that they are lost, and once that they are not."""

    def __init__(self, exporter: SpanExporter, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds. OpenTelemetry's own loggers, which write some 35 lines a minute, are silent from now on."""
        self._exporter, self._clock = exporter, clock
        self._lost, self._said = 0, float("-inf")
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
            if self._clock() - self._said >= SAY_SECONDS:
                self._said = self._clock()
                text = "no collector takes the traces (OTEL_EXPORTER_OTLP_ENDPOINT): %d spans or more are lost, "
                logger.warning(text + "no request waits", self._lost)
        elif self._lost:
            logger.warning("a collector takes the traces again; %d spans or more were lost", self._lost)
            self._lost, self._said = 0, float("-inf")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def provider_of(system: str, share: float, exporter: SpanExporter | None = None) -> TracerProvider:
    """Return what makes a system's traces: of this share of the requests that come without a trace of their own."""
    resource = Resource.create(
        {
            "service.namespace": "pliant",
            "service.name": f"pliant-{system}",
            "service.version": VERSION,
            "service.instance.id": uuid4().hex,
        }
    )
    # BentoML's own tracing is switched off by a variable that would switch off ours.
    disabled = os.environ.pop(DISABLED, None)
    try:
        provider = TracerProvider(ParentBased(TraceIdRatioBased(share)), resource, shutdown_on_exit=False)
    finally:
        if disabled is not None:
            os.environ[DISABLED] = disabled
    provider.add_span_processor(BatchSpanProcessor(exporter or QuietExporter(OTLPSpanExporter())))
    return provider


async def close(provider: TracerProvider) -> None:
    """Send what waits, and end. A collector that does not answer holds this up for `FLUSH_SECONDS` at most.

    The thread is none that the process would wait for at its end: OpenTelemetry goes on for half a minute.
    """
    thread = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    thread.start()
    until = time.monotonic() + FLUSH_SECONDS
    while thread.is_alive() and time.monotonic() < until:
        await asyncio.sleep(0.02)
