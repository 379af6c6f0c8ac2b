"""What a device process falls back to reaches its worker, the log and the metrics."""

from __future__ import annotations

import asyncio

import pytest

from pliant.fallbacks import Fallback
from pliant.serving.workers.worker import CallingWorker, ModelError
from tests.fixtures.fakes import EchoModel


class Idle(CallingWorker):
    """A worker without a device, whose replies the test gives."""

    async def _call(self, verb, *arguments): ...
    async def start(self) -> None: ...
    def kill(self) -> None: ...
    async def stop(self) -> None: ...


def test_fallbacks_are_logged_passed_on_and_kept_until_the_device_is_restarted(caplog):
    async def main():
        worker, passed_on = Idle(EchoModel, 30.0), []
        worker.on_fallback = passed_on.append
        fallback = Fallback("memory", "batches of 64 do not fit")
        assert worker._result((True, "value", (fallback,))) == "value"
        assert passed_on == list(worker.fallbacks) == [fallback]
        assert "a device process falls back: batches of 64 do not fit" in caplog.messages
        with pytest.raises(ModelError, match="no such task"):
            worker._result((False, "no such task", (fallback,)))
        assert len(worker.fallbacks) == 2, "a failed call tells them too"
        await worker.restart()
        assert worker.fallbacks == ()

    asyncio.run(main())
