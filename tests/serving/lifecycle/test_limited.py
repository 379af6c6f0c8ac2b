"""What a device process says of its memory reaches the scheduler of its generation, where that can use it."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from pliant.fallbacks import Fallback
from pliant.protocol import Limited
from pliant.serving.driver import loop_clock
from pliant.serving.journal import read
from pliant.serving.lifecycle.endpoint import Blueprint, generation_maker
from pliant.serving.metrics import Metrics
from pliant.serving.tokens.settings import TokensSettings
from tests.fixtures.fakes import FakeWorker, FifoScheduler


@pytest.mark.parametrize("limited", [True, False])
def test_a_device_that_lacks_memory_limits_the_batches_of_its_generation(limited, tmp_path):
    async def main():
        worker = FakeWorker()
        settings = TokensSettings(journal=tmp_path / "journal.jsonl")
        plan = Blueprint(FifoScheduler, {}, [object()], lambda driver: 0, facts={"facts": 1}, limited=limited)
        metrics = Metrics("gamma", (), CollectorRegistry())
        make = generation_maker(settings, loop_clock(), metrics, lambda build: worker, lambda catalog: plan)
        generation = make(1, None)
        await generation.start()
        worker.on_fallback(Fallback("capture", "a graph is missing"))
        worker.on_fallback(Fallback("memory", "a batch at gamma -5 runs at most 16 at a time", -5, 16))
        await generation.stop()

    asyncio.run(main())
    (journal,) = tmp_path.iterdir()
    events = [entry.event for entry in read(journal)]
    assert [event for event in events if isinstance(event, Limited)] == ([Limited(-5, 16)] if limited else [])
