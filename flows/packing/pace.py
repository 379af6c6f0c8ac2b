"""Whether a length predictor keeps up with the engine: what it forecasts a second, beside what the engine serves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pliant.packing.artifact import Packing, Predictor
from pliant.packing.scheduling.reference import capacity
from pliant.profiling.packing import pace

logger = logging.getLogger("pliant.flows")

WAIT = 0.05  # seconds that a service waits for a forecast by default (PLIANT_PREDICT_LIMIT)


@dataclass(frozen=True, slots=True)
class Pace:
    """`alone`: seconds until one prompt is forecast. `engine`: requests a second that the engine serves at most."""

    alone: float
    prompts_per_second: float
    engine: float

    @property
    def keeps_up(self) -> bool:
        """Whether forecasts come in time at every rate that the engine serves."""
        return self.alone < WAIT and self.prompts_per_second > self.engine

    def describe(self) -> str:
        """Return a sentence for people."""
        figures = (
            f"the predictor forecasts {self.prompts_per_second:.0f} prompts/s, one alone in {1000 * self.alone:.1f} ms; "
            f"the engine serves at most {self.engine:.1f} requests/s"
        )
        if self.keeps_up:
            return figures
        return f"{figures}: many forecasts will be late, so choose a smaller encoder, or serve the predictor on a GPU"

    def metrics(self) -> dict[str, float]:
        return {f"pace.{name}": value for name, value in asdict(self).items()}


def measure(predictor: Predictor, prompts: Sequence[str], packing: Packing, device: str) -> Pace:
    """Measure the predictor on the device. A predictor that does not keep up is served nevertheless, with a warning."""
    measured = pace.measure(predictor, prompts, device)
    result = Pace(measured.alone, measured.prompts_per_second, capacity(packing))
    if not result.keeps_up:
        logger.warning("%s: %s", packing.name, result.describe())
    return result
