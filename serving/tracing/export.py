"""Sends traces to a collector by OTLP over HTTP. Where it is, and with which headers, say OpenTelemetry's own variables.

Such are OTEL_EXPORTER_OTLP_ENDPOINT (http://localhost:4318 by default), OTEL_EXPORTER_OTLP_HEADERS and
OTEL_RESOURCE_ATTRIBUTES. Spans wait in memory, 2,048 at most, for a thread that sends them; without a collector they are
lost, and no request waits.
"""

from __future__ import annotations

import asyncio
import os
from importlib.metadata import version
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

DISABLED = "OTEL_SDK_DISABLED"
FLUSH_SECONDS = 3.0  # for what is left when the service stops


def provider_of(system: str, share: float, exporter: SpanExporter | None = None) -> TracerProvider:
    """Return what makes a system's traces: of this share of the requests that come without a trace of their own."""
    resource = Resource.create(
        {
            "service.namespace": "pliant",
            "service.name": f"pliant-{system}",
            "service.version": version("pliant"),
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
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    return provider


async def close(provider: TracerProvider) -> None:
    """Send what waits, and end. A collector that does not answer holds this up for a few seconds at most."""
    try:
        await asyncio.wait_for(asyncio.to_thread(provider.shutdown), FLUSH_SECONDS)
    except TimeoutError:
        return
