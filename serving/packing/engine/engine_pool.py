"""What runs for one generation of the packing service: an engine (or one a device) and a forecaster for each model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from serving.packing.engine.engine import EngineDriver
from serving.packing.engine.engine_group import EngineGroup
from serving.packing.engine.forecaster import Forecaster
from serving.packing.engine.observed import ObservedLengths
from serving.packing.grammar_checks import GrammarChecks


@dataclass(frozen=True, slots=True)
class EnginePool:
    """Engines, forecasters and files of observed lengths that start and stop together."""

    engines: Sequence[EngineDriver | EngineGroup]
    forecasters: Sequence[Forecaster]
    observed: Sequence[ObservedLengths]
    grammars: Sequence[GrammarChecks] = ()
    forecasters_first: bool = False  # start the engines after them: an engine takes what is free of a GPU's memory

    @property
    def ready(self) -> bool:
        """Whether all engines run."""
        return all(engine.ready for engine in self.engines)

    @property
    def alive(self) -> bool:
        """Whether all engines can be started."""
        return all(engine.alive for engine in self.engines)

    @property
    def waiting(self) -> int:
        """Return the number of outputs without a token."""
        return sum(engine.waiting for engine in self.engines)

    @property
    def pending(self) -> int:
        """Return the number of outputs that have not ended."""
        return sum(engine.pending for engine in self.engines)

    async def start(self) -> None:
        """Start all, and raise the first `PliantError` once each has started or failed."""
        engines = [engine.start for engine in self.engines]
        forecasters = [forecaster.start for forecaster in self.forecasters]
        for starts in (forecasters, engines) if self.forecasters_first else ([*engines, *forecasters],):
            for error in await asyncio.gather(*(start() for start in starts), return_exceptions=True):
                if error is not None:
                    raise error

    async def stop(self) -> None:
        """Stop all, after the last output has ended."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))
        for forecaster in self.forecasters:
            await forecaster.stop()
        for checks in self.grammars:
            checks.stop()
        for file in self.observed:
            file.close()
