"""A collector of traces: it takes OTLP over HTTP on this machine, and keeps the spans that it got."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

HOST = "127.0.0.1"


class Collector:
    """`url`: the value of OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Any] = []  # in the form of OTLP

    def await_spans(self, name: str, count: int, seconds: float) -> list[Any]:
        """Return the spans of a name, once there are so many or the time is up."""
        until = time.monotonic() + seconds
        while True:
            spans = [span for span in list(self.spans) if span.name == name]
            if len(spans) >= count or time.monotonic() > until:
                return spans
            time.sleep(0.1)


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector while the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    collected.spans.extend(scope.spans)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer((HOST, 0), Handler)
    collected = Collector(f"http://{HOST}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, name="collector of traces", daemon=True)
    thread.start()
    try:
        yield collected
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
