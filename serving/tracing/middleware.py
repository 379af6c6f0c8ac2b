"""Makes the span of a whole request, for a share of them, and goes on with the trace that a client with a key began.

It runs after access control, so a request that is turned away makes no span. Without a key a client's `traceparent` counts
for nothing: neither its flag nor its identifier, by which the share is drawn, may decide what is traced.

Names are those of OpenTelemetry's conventions for HTTP servers. A traced answer has the header `traceparent` (W3C Trace
Context), by which whoever asked finds the trace. What only asks whether the service lives, or counts, is never traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import NonRecordingSpan, Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.access.access import CLIENT
from pliant.serving.request_context import TRACED, request_fields
from pliant.serving.tracing.traced import Traced

PARENT = "traceparent"
UNTRACED = ("/livez", "/readyz", "/healthz", "/metrics")
SERVER_ERROR = 500
Headers = Iterable[tuple[bytes, bytes]]


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Return whether the variables of a service ask for traces. What is no number the settings refuse later."""
    try:
        return float(environment.get("PLIANT_TRACE_SHARE", "0")) > 0
    except ValueError:
        return False


class _Headers(Getter[Headers]):
    """Reads the headers of an ASGI scope."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        name = key.encode()
        return [value.decode("latin-1") for header, value in carrier if header == name] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [header.decode("latin-1") for header, _ in carrier]


PROPAGATOR, HEADERS = TraceContextTextMapPropagator(), _Headers()


class TracingMiddleware:
    """Traces requests once `state.tracer` is there. Its sampler decides which; that of a client with a key goes first."""

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tracer: Tracer | None = getattr(self._state, "tracer", None)
        if scope["type"] != "http" or tracer is None or scope["path"] in UNTRACED:
            await self._app(scope, receive, send)
            return
        client: Client = scope.get(CLIENT, ANYBODY)
        context = PROPAGATOR.extract(scope["headers"], Context(), HEADERS) if client.key else Context()
        method = scope["method"]
        values = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope.get("scheme", "http")}
        values["pliant.request_id"] = request_fields().get("request_id", "")
        span = tracer.start_span(f"{method} {scope['path']}", context, SpanKind.SERVER, values)
        if isinstance(span, NonRecordingSpan):
            await self._app(scope, receive, send)
            return
        TRACED.set(Traced(tracer, set_span_in_context(span, context)))
        try:
            await self._app(scope, receive, _noting(span, send))
        except BaseException as error:  # the client that left, too
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()


def _noting(span: Span, send: Send) -> Send:
    """Return a `send` that notes how the request ended, and gives the answer the trace's header."""

    async def note_and_send(message: Message) -> None:
        if message["type"] == "http.response.start":
            status, headers = message["status"], list(message.get("headers", ()))
            span.set_attribute("http.response.status_code", status)
            if status >= SERVER_ERROR:
                span.set_attribute("error.type", str(status))
                span.set_status(StatusCode.ERROR)
            carrier: dict[str, str] = {}
            PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
            message = {**message, "headers": [*headers, (PARENT.encode(), carrier[PARENT].encode())]}
        await send(message)

    return note_and_send
