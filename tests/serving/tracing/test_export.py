"""A collector that is gone or hangs: the log says so once a minute, the end of the service waits for seconds at most."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import time

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from pliant.serving.tracing.export import FLUSH_SECONDS, SAY_SECONDS, QuietExporter, close, provider_of
from tests.fixtures.collector import collector
from tests.fixtures.places import ROOT


class Flaky(SpanExporter):
    """Fails while it is `away`."""

    def __init__(self) -> None:
        self.away = True

    def export(self, spans):
        return SpanExportResult.FAILURE if self.away else SpanExportResult.SUCCESS


def test_the_log_says_once_a_minute_that_spans_are_lost_and_once_that_they_are_not(caplog):
    now, inner = 0.0, Flaky()
    exporter = QuietExporter(inner, lambda: now)
    for _ in range(1 + 2 * round(SAY_SECONDS)):
        exporter.export([None])
        now += 1.0
    inner.away = False
    for _ in range(3):
        exporter.export([None])
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(":")[0] for line in lines[:3]] == [
        "no collector takes the traces (OTEL_EXPORTER_OTLP_ENDPOINT)"
    ] * 3
    assert [" 1 spans or more" in lines[0], " 61 spans" in lines[1], " 121 spans" in lines[2]] == [True] * 3
    assert lines[3:] == ["a collector takes the traces again; 121 spans or more were lost"]
    assert logging.getLogger("opentelemetry.sdk").getEffectiveLevel() == logging.CRITICAL


ENDING = """
import asyncio, os, sys
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = sys.argv[1]
from pliant.serving.tracing.export import close, provider_of
provider = provider_of("tokens", 1.0)
tracer = provider.get_tracer("test")
for _ in range(2000):
    tracer.start_span("queue").end()
print("begins", flush=True)
asyncio.run(close(provider))
"""


@pytest.mark.parametrize("listening", [True, False])
def test_a_collector_that_hangs_or_is_gone_holds_up_the_end_for_seconds_at_most(listening):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listening:
            taken.listen(50)  # connections are taken, and nobody answers
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        command = [sys.executable, "-c", ENDING, address]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "begins\n"
        begun = time.monotonic()
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 0
    assert time.monotonic() - begun < 5 * FLUSH_SECONDS, "OpenTelemetry alone takes 30 s"
    assert len(errors.splitlines()) <= 1


def test_what_waits_is_sent_at_the_end(monkeypatch):
    with collector() as given:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", given.url)
        provider = provider_of("tokens", 1.0)
        provider.get_tracer("test").start_span("queue").end()
        asyncio.run(close(provider))
        assert [span.name for span in given.spans] == ["queue"]
