"""The conditions under which OTAS was published: its device, its rule and its workload, as far as the paper gives them.

Throughputs are read off Figure 4b (requests a second at gamma -25, 0 and +32, about 1000 at -15) or off Table I, whose
thresholds are taken as capacities. Seconds per sample are interpolated linearly over gamma, and a batch takes count x
seconds per sample: the paper's own model of time. The paper plots accuracies without numbers. `ACCURACY` is ours,
shaped after the published results of VPT (Jia et al. 2022: what prompts add to a frozen ViT-B/16) and ToMe (Bolya et
al. 2023: little is lost up to about 13 merged tokens a layer of ViT-B, much beyond). Reports based on it say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.artifact import GAMMAS, RateRule
from pliant.tokens.scheduler import Knowledge
from pliant.workload import RequestKind, Segment, Times, piecewise, requests

FIGURE_4B: Mapping[int, float] = {-25: 1500.0, -15: 1000.0, 0: 580.0, 32: 220.0}  # requests/s
TABLE_I: Mapping[int, float] = {-20: 1200.0, -15: 1000.0, -10: 520.0, -5: 450.0, 0: 380.0, 2: 350.0, 4: 320.0, 8: 280.0}
RULE = RateRule((280.0, 320.0, 350.0, 380.0, 450.0, 520.0, 1000.0), (8, 4, 2, 0, -5, -10, -15, -20))  # Table I

ACCURACY: Mapping[str, Mapping[int, float]] = {
    "cifar10": {-20: 0.80, -15: 0.90, -10: 0.935, -5: 0.948, 0: 0.95, 2: 0.962, 4: 0.967, 8: 0.972},
    "cifar100": {-20: 0.50, -15: 0.68, -10: 0.75, -5: 0.775, 0: 0.785, 2: 0.825, 4: 0.84, 8: 0.855},
    "eurosat": {-20: 0.70, -15: 0.83, -10: 0.885, -5: 0.905, 0: 0.91, 2: 0.94, 4: 0.95, 8: 0.96},
}

KINDS = (  # task, seconds to the deadline, utility; all equally frequent
    RequestKind("cifar10", 0.6, 0.3),
    RequestKind("cifar10", 1.0, 0.01),
    RequestKind("cifar100", 0.6, 1.0),
    RequestKind("cifar100", 1.0, 0.2),
    RequestKind("eurosat", 0.6, 0.3),
    RequestKind("eurosat", 1.0, 0.01),
)

VARIANTS: Mapping[str, tuple[float, float, float]] = {
    "small": (2.6, -0.03, 0.4),
    "base": (1.0, 0.0, 0.8),
    "large": (0.31, 0.015, 2.0),
}
"""ViT-S, B and L: throughput relative to B, accuracy less that of B, and seconds to load."""


def profile(throughput: Mapping[int, float], gammas: tuple[int, ...] = GAMMAS) -> Knowledge:
    """Return what a scheduler would know about the paper's device; `throughput` is `FIGURE_4B` or `TABLE_I`."""
    read_off = sorted(throughput)
    sample = np.interp(gammas, read_off, [1 / throughput[gamma] for gamma in read_off])
    return Knowledge(_linear(gammas, [float(s) for s in sample]), ACCURACY, RULE)


def variants(throughput: Mapping[int, float]) -> Knowledge:
    """Return what INFaaS would know about backbones of three sizes; settings are indices into `VARIANTS`.

    These numbers are ours: speeds from the arithmetic of ViT-S, B and L, one shift of accuracy for all tasks, loading
    times.
    """
    base = 1 / throughput[0]
    sample = [base / speed for speed, _, _ in VARIANTS.values()]
    numbers = tuple(range(len(VARIANTS)))
    accuracy = {
        task: {i: min(0.99, shares[0] + shift) for i, (_, shift, _) in enumerate(VARIANTS.values())}
        for task, shares in ACCURACY.items()
    }
    loading = {i: seconds for i, (_, _, seconds) in enumerate(VARIANTS.values())}
    return Knowledge(_linear(numbers, sample), accuracy, RULE, loading)


def _linear(settings: tuple[int, ...], sample: list[float]) -> LatencyTable:
    batches = (1, 64)
    return LatencyTable(settings, batches, tuple(tuple(s * n for n in batches) for s in sample))


@dataclass(frozen=True, slots=True)
class SyntheticConfig:
    """The paper's workload: 30 minutes at 200 to 700 requests a second, 630,000 in all, so 350 a second on average."""

    seconds: float = 1800.0
    lowest: float = 200.0  # requests a second
    highest: float = 700.0
    mean: float = 350.0
    stretch: float = 10.0  # seconds at one rate


def synthetic(scale: float, seed: int, config: SyntheticConfig | None = None) -> list[Request]:
    """Return Poisson arrivals whose rate is drawn for every stretch of time; all rates are multiplied by `scale`."""
    config = config or SyntheticConfig()
    rng = np.random.default_rng(seed)
    share = (config.mean - config.lowest) / (config.highest - config.lowest)
    count = max(1, round(config.seconds / config.stretch))
    drawn = rng.beta(2 * share, 2 * (1 - share), count)
    drawn *= share / drawn.mean()  # keeps the mean whatever was drawn, except where a rate is cut off at the highest
    rates = scale * (config.lowest + (config.highest - config.lowest) * np.minimum(drawn, 1.0))
    return _requests(piecewise([Segment(float(rate), config.seconds / count) for rate in rates], rng), rng)


def _requests(times: Times, rng: np.random.Generator) -> list[Request]:
    return requests(times, KINDS, rng)
