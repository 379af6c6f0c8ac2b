"""All that runs for one generation of the packing service: an engine and a forecaster a model. Knows when each starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from serving.packing.engine.engine import EngineDriver
from serving.packing.engine.forecaster import Forecaster
from serving.packing.engine.observed import ObservedLengths


@dataclass(frozen=True, slots=True)
class EnginePool:
    engines: Sequence[EngineDriver]
    forecasters: Sequence[Forecaster]
    observed: Sequence[ObservedLengths]

    async def start(self) -> None:
        """Raises `PliantError`, when all have started or failed."""
        starts = [engine.start() for engine in self.engines] + [one.start() for one in self.forecasters]
        for error in await asyncio.gather(*starts, return_exceptions=True):
            if error is not None:
                raise error

    async def stop(self) -> None:
        """After the last output's end."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        for forecaster in self.forecasters:
            await forecaster.stop()
        for file in self.observed:
            file.close()
