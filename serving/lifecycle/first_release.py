"""Waits for a system's first release, so that a service may be started before there is anything to serve."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pliant.errors import RefusedError, RegistryError
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.releases import released

POLL_SECONDS = 5.0

logger = logging.getLogger("pliant.serving")


async def wait_for_release(
    registry: Registry, alias: str, prefix: str, seconds: float, end: Callable[[], None]
) -> None:
    """Return as soon as the alias names something, or after `seconds`: loading then says what is missing.

    A registry that is not there yet, or does not answer, is waited for, too. `end` is called by a signal that would end
    the process: uvicorn heeds none before a service has started. Raises `RefusedError` where the registry lets nobody in.
    """
    clock = asyncio.get_running_loop()
    until, logged = clock.time() + seconds, ""
    with _ended_by_signals(end):
        while reason := await asyncio.to_thread(_lacking, registry, alias, prefix):
            if (left := until - clock.time()) <= 0:
                return
            if reason != logged:
                logger.warning("nothing to serve yet (%s): the service waits, at most %d s", reason, math.ceil(left))
                logged = reason
            await asyncio.sleep(min(POLL_SECONDS, left))


def _lacking(registry: Registry, alias: str, prefix: str) -> str:
    """Return why there is nothing to serve yet; empty if there is something. Raises `RefusedError`."""
    try:
        if released(registry, alias, prefix) is not None or registry.aliases(prefix, alias):
            return ""
    except RefusedError:
        raise
    except RegistryError as error:
        return str(error)
    return f"no model {prefix}* has a version under the alias {alias}"


@contextmanager
def _ended_by_signals(end: Callable[[], None]) -> Iterator[None]:
    def ended(_number: int, _frame: FrameType | None) -> None:
        end()

    previous = {number: signal.signal(number, ended) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
