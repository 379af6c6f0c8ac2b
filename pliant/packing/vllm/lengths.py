"""Forecasts without a predictor: quantiles of the outputs so far to prompts of a similar length, learnt while serving."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from pliant.packing.scheduling.forecast import QUANTILES

WINDOW = 300  # latest outputs that are remembered of each class of prompts
ENOUGH = 24  # outputs of a class from which on its own quantiles count; before, those of all
AFRESH = 8  # outputs after which quantiles are computed anew
MEDIAN, SPREAD = 128.0, 1.2  # of the log-normal that is assumed before any output has ended, the spread in its log
_NORMAL = (-1.645, -1.282, -0.674, 0.0, 0.674, 1.282, 1.645, 2.326)  # standard normal quantiles at QUANTILES
PRIOR = tuple(MEDIAN * float(np.exp(SPREAD * z)) for z in _NORMAL)


@dataclass(slots=True)
class _Outputs:
    latest: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    quantiles: tuple[float, ...] = PRIOR
    since: int = AFRESH - 1  # outputs since the quantiles were computed

    def add(self, tokens: int) -> None:
        self.latest.append(tokens)
        self.since += 1
        if self.since >= AFRESH or len(self.latest) < AFRESH:
            self.quantiles, self.since = tuple(np.quantile(self.latest, QUANTILES).tolist()), 0


class LearnedLengths:
    """Quantiles of outputs by the power of two that a prompt's tokens reach."""

    def __init__(self) -> None:
        self._all = _Outputs()
        self._classes: dict[int, _Outputs] = {}

    def forecast(self, prompt_tokens: int) -> tuple[float, ...]:
        """Return the quantiles in tokens for a prompt of so many tokens."""
        outputs = self._classes.get(prompt_tokens.bit_length())
        if outputs is not None and len(outputs.latest) >= ENOUGH:
            return outputs.quantiles
        return self.marginal()

    def marginal(self) -> tuple[float, ...]:
        """Return the quantiles of all outputs."""
        return self._all.quantiles

    def add(self, prompt_tokens: int, output_tokens: int) -> None:
        """Note an output that has ended, also by its limit."""
        self._all.add(output_tokens)
        self._classes.setdefault(prompt_tokens.bit_length(), _Outputs()).add(output_tokens)
