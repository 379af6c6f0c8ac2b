"""The clock of a service begins at 0 and goes with the event loop."""

from __future__ import annotations

import asyncio

from pliant.serving.clock import loop_clock
from tests.fixtures.fakes import run_virtually


def test_it_counts_the_seconds_since_it_was_made():
    async def main():
        await asyncio.sleep(3)
        clock = loop_clock()
        assert clock() == 0.0
        await asyncio.sleep(2)
        assert clock() == 2.0

    run_virtually(main())
