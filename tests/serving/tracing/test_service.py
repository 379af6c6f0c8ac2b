"""Traces of a real service arrive at a real collector, by OTLP, and belong to the trace of the client that asked."""

from __future__ import annotations

import platform
import urllib.request

import pytest

from tests.fixtures.clients import PATIENCE, ask
from tests.fixtures.collector import collector
from tests.fixtures.live import running
from tests.fixtures.tokens.published import publish_all, settings_for

pytestmark = pytest.mark.slow


def test_a_client_finds_the_wait_the_launch_and_the_device_of_its_request_in_its_own_trace(tmp_path, monkeypatch):
    publish_all(tmp_path, f"cpu-{platform.machine()}-1t")
    with collector() as traces:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", traces.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")  # milliseconds
        with running(settings_for(tmp_path, trace_share=1.0), tmp_path) as service:
            assert ask(service)[0] == 200
            urllib.request.urlopen(f"{service.url}/livez", timeout=PATIENCE).close()
            spans = {name: traces.await_spans(name, 1, PATIENCE) for name in ("device", "launch", "queue")}
            (whole,) = traces.await_spans("POST /v1/predict", 1, PATIENCE)
    (device,), (launch,), (queue,) = spans.values()
    assert {span.trace_id for span in (device, launch, queue)} == {whole.trace_id}
    assert device.parent_span_id == launch.span_id
    assert launch.parent_span_id == queue.parent_span_id == whole.span_id
    assert whole.start_time_unix_nano <= queue.start_time_unix_nano <= launch.start_time_unix_nano
    assert launch.end_time_unix_nano <= whole.end_time_unix_nano
    assert not [span for span in traces.spans if "livez" in span.name]
