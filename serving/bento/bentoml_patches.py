"""What is changed in a service's process before it serves: patches of BentoML 1.4.39, and settings of Python and glibc.

The patches use private parts of BentoML, hence its exact pin in pyproject.toml. A test notices when one is needed no more.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
from contextlib import suppress
from typing import Any

import prometheus_client
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.server.http.instruments import RunnerTrafficMetricsMiddleware
from bentoml._internal.server.http.traffic import TimeoutMiddleware
from bentoml._internal.server.metrics.prometheus import PrometheusClient
from prometheus_client import values
from starlette.responses import JSONResponse

SWITCH_SECONDS = 0.0005
M_ARENA_MAX = -8  # of glibc's malloc.h
COUNTERS = "PROMETHEUS_MULTIPROC_DIR"
"""Variable by which BentoML has counters kept in mapped files, for any number of processes."""


def patch_timeouts() -> None:
    """Make the timeout middleware cancel its timer when a response begins.

    As shipped, each request leaves a timer, and with it a future, a context and a span, alive for `traffic.timeout`
    seconds; at some hundred requests per second, garbage collection then pauses the process for 50 to 800 ms. A client
    also waits that long when a mounted app raises. Remove this when test_bentoml_patches.py says so.
    """
    TimeoutMiddleware.__call__ = _call_within_timeout


def switch_off_tracing() -> None:
    """Switch off OpenTelemetry: BentoML makes a span per request, which nobody reads, in a fifth of the request's time."""
    os.environ.setdefault("OTEL_SDK_DISABLED", "true")


def leave_out_path_metrics() -> None:
    """Switch off BentoML's metrics by path: anybody may ask for any path, and each takes memory for good."""
    RunnerTrafficMetricsMiddleware.__call__ = _pass_on


def count_in_memory() -> None:
    """Keep counters in the memory of the one process that serves, not in mapped files. Called before there are any.

    A mapped file grows without taking room on the disk. Where the disk is full, the first write to a new page of it ends
    the process by SIGBUS, which no code can catch. Also what this process starts, such as vLLM, maps none from now on.
    """
    os.environ.pop(COUNTERS, None)
    values.ValueClass = values.MutexValue  # prometheus_client may have been imported, and has then chosen
    BentoMLContainer.metrics_client.set(PrometheusClient(multiproc=False))
    # As with files: no time of creation beside each counter, and nothing of Python and the process.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    for name in ("GC", "PLATFORM", "PROCESS"):
        with suppress(KeyError):  # taken out before
            prometheus_client.REGISTRY.unregister(getattr(prometheus_client, f"{name}_COLLECTOR"))


async def _pass_on(self: Any, scope: Any, receive: Any, send: Any) -> None:
    await self.app(scope, receive, send)


def share_one_arena() -> None:
    """Let all threads of this process allocate from one arena, where the system's allocator is glibc's.

    By default each thread has an arena of its own, and none can use what is free in another: polls of the registry, in
    one of several threads each time, let all of them grow for hours. Called before there are threads.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def freeze_gc() -> None:
    """Exempt all present objects from later garbage collections. Called after start-up."""
    gc.collect()
    gc.freeze()


def share_the_interpreter() -> None:
    """Let a thread that runs Python code keep the interpreter's lock for `SWITCH_SECONDS`, in place of Python's 5 ms.

    The event loop gives the lock up with each look at its sockets and with each answer that it sends, and then waits for
    it that long, several times a request, while a thread checks the texts of a large body.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


async def _call_within_timeout(self: Any, scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] not in ("http", "websocket"):
        await self.app(scope, receive, send)
        return
    started = False
    try:
        async with asyncio.timeout(self.timeout) as timer:

            async def send_and_stop_timer(message: Any) -> None:
                nonlocal started
                if not started:
                    started = True
                    timer.reschedule(None)  # a stream that has begun is not cut
                await send(message)

            await self.app(scope, receive, send_and_stop_timer)
    except TimeoutError:
        if started or not timer.expired():
            raise
        body = {"error": f"Not able to process the request in {self.timeout} seconds"}
        await JSONResponse(body, status_code=504)(scope, receive, send)
