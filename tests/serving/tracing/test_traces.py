"""What a trace of a request holds, and that requests outside the share, copies and probes have none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pliant.protocol import Launch, Request
from pliant.serving.client import Client
from pliant.serving.driver import Completed, Dispatched, LaunchResult, add_launches
from pliant.serving.http.app import RequestIdMiddleware
from pliant.serving.request_context import current_trace
from pliant.serving.tracing.export import provider_of
from pliant.serving.tracing.middleware import TracingMiddleware, wants_traces
from tests.fixtures.clients import as_client

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{}"
TRACE = int("0af7651916cd43dd8448eb211c80319c", 16)
REQUEST = Request(7, 10.0, 20.0, "digit", 1.0)


class Traces:
    """The spans that an application leaves behind, with this share."""

    def __init__(self, share: float) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = provider_of("tokens", share, self._exporter)
        self.tracer = self._provider.get_tracer("test")

    def spans(self):
        self._provider.force_flush()
        return {span.name: span for span in self._exporter.get_finished_spans()}


def client(traces: Traces | None, answer, key: str = "k") -> TestClient:
    app = Starlette(routes=[Route("/v1/predict", answer), Route("/livez", answer)])
    traced = TracingMiddleware(app, SimpleNamespace(tracer=traces and traces.tracer))
    wrapped = RequestIdMiddleware(as_client(traced, Client("acme", key=key)))
    return TestClient(wrapped, raise_server_exceptions=False)


async def good(_request):
    return PlainTextResponse("yes")


def test_a_traced_request_has_a_span_with_its_status_and_id_and_the_answer_names_the_trace():
    traces = Traces(1.0)
    answer = client(traces, good).get("/v1/predict", headers={"x-request-id": "mine"})
    (span,) = traces.spans().values()
    assert span.name == "GET /v1/predict" and span.kind.name == "SERVER" and span.parent is None
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["pliant.request_id"] == "mine"
    version, trace, parent, flags = answer.headers["traceparent"].split("-")
    assert (version, trace, parent) == ("00", f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
    assert int(flags, 16) & 1, "it says that it was sampled"
    resource = dict(span.resource.attributes)
    assert (resource["service.name"], resource["service.namespace"]) == ("pliant-tokens", "pliant")


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_client_with_a_key_that_began_a_trace_decides_whether_it_is_kept(share, sampled):
    traces = Traces(share)
    header = PARENT.format("01" if sampled else "00")
    answer = client(traces, good).get("/v1/predict", headers={"traceparent": header})
    spans = list(traces.spans().values())
    assert len(spans) == sampled and ("traceparent" in answer.headers) is sampled
    for span in spans:
        assert span.context.trace_id == TRACE and span.parent.span_id == int("b7ad6b7169203331", 16)


@pytest.mark.parametrize("share", [1e-9, 1.0])
def test_without_a_key_neither_flag_nor_identifier_of_a_client_decides_what_is_traced(share):
    traces = Traces(share)
    ask = client(traces, good, key="")
    for number in range(50):  # the share is drawn by the identifier's last 64 bits: these would always be in it
        ask.get("/v1/predict", headers={"traceparent": f"00-{number + 1:016x}{0:016x}-b7ad6b7169203331-01"})
    traces.spans()
    spans = traces._exporter.get_finished_spans()
    assert len(spans) == (50 if share == 1.0 else 0)
    assert all(span.parent is None and span.context.trace_id & (2**64 - 1) for span in spans)


def test_probes_and_requests_outside_the_share_are_not_traced():
    for traces, path in ((Traces(1.0), "/livez"), (Traces(0.0), "/v1/predict")):
        seen = []

        async def answer(_request, seen=seen):
            seen.append(current_trace())
            return PlainTextResponse("yes")

        response = client(traces, answer).get(path)
        assert response.status_code == 200 and "traceparent" not in response.headers
        assert seen == [None] and traces.spans() == {}
    assert client(None, good).get("/v1/predict").status_code == 200  # before the service has started


def test_errors_are_marked_and_raised():
    async def broken(_request):
        raise ValueError("no")

    async def refused(_request):
        return PlainTextResponse("no", 503)

    for answer, error in ((broken, "ValueError"), (refused, "503")):
        traces = Traces(1.0)
        assert client(traces, answer).get("/v1/predict").status_code >= 500
        (span,) = traces.spans().values()
        assert span.attributes["error.type"] == error and span.status.status_code.name == "ERROR"


def test_a_request_with_two_launches_has_the_wait_and_the_device_of_each():
    traces = Traces(1.0)

    async def answer(_request):
        small = LaunchResult("small", Dispatched(Launch(1, 0, (7, 8), 4), 11.0), 0.5, 12.0)
        large = LaunchResult("large", Dispatched(Launch(2, 1, (7,), 5), 13.0), 1.0, 14.5)
        completed = Completed("large", 5, 1, 3.0, 1.0, -5.5, "", (small, large))
        add_launches(current_trace(), REQUEST, completed, 15.0)
        return PlainTextResponse("yes")

    client(traces, answer).get("/v1/predict")
    spans = sorted(traces._exporter.get_finished_spans() or _all(traces), key=lambda span: span.start_time)
    by_name = {name: [span for span in spans if span.name == name] for name in ("queue", "launch", "device")}
    seconds = {name: [round((s.end_time - s.start_time) / 1e9, 6) for s in each] for name, each in by_name.items()}
    assert seconds == {"queue": [1.0, 1.0], "launch": [1.0, 1.5], "device": [0.5, 1.0]}
    for launch, device in zip(by_name["launch"], by_name["device"], strict=True):
        assert device.parent.span_id == launch.context.span_id and device.end_time == launch.end_time
    assert [span.attributes["pliant.batch_size"] for span in by_name["launch"]] == [2, 1]
    assert [span.attributes["pliant.worker"] for span in by_name["launch"]] == [0, 1]


def _all(traces: Traces):
    traces.spans()
    return traces._exporter.get_finished_spans()


@pytest.mark.parametrize(
    ("share", "wanted"), [("0.0", False), ("", False), ("much", False), ("0.01", True), ("1", True)]
)
def test_a_service_without_a_share_has_nothing_of_tracing_in_the_way_of_requests(share, wanted):
    assert wants_traces({"PLIANT_TRACE_SHARE": share}) is wanted and not wants_traces({})
