"""What `pliant.compare` plays packing on: S3's model and device by their specifications; lengths and forecasts are drawn."""

from __future__ import annotations

import numpy as np

from pliant.comparison import Figures, Own, Play, Times, figures
from pliant.packing.scheduling import simulated
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.protocol import Request
from pliant.report import Observation


def ground(times: Times, seed: int) -> Play:
    """Return what plays a policy, with LLaMA-13B on an A100: pages, and seconds of an iteration by their specifications.

    Outputs have 128 tokens at the median, are forecast within a factor of 1.5 (one deviation), and are due after 15 s.
    """
    weights, token = 2 * 13.016e9, 4 * 40 * 5120  # bytes of the weights, and of a token's keys and values
    cost = LinearCost(weights / 2e12, weights / 312e12, 0.0, token / 2e12, 0.0, token / 16e9)
    memory = Memory(int((80e9 - weights) / token / 16), 16, int(128e9 / token / 16), 4096, 4096)
    rng, context, spread = np.random.default_rng(seed), 2048, np.log(1.5)
    reads = np.clip(rng.lognormal(np.log(32), 0.8, len(times)), 1, 512).astype(int).tolist()
    lengths = np.clip(rng.lognormal(np.log(128), 0.9, len(times)), 1, 1024).astype(int).tolist()
    centres = (np.asarray(lengths) * np.exp(spread * rng.standard_normal(len(times)))).tolist()
    ahead = np.exp(spread * np.array([-1.645, -1.282, -0.674, 0.0, 0.674, 1.282, 1.645, 2.326]))  # of QUANTILES
    assert len(ahead) == len(QUANTILES)
    prompts = [
        Prompt(
            *(i, at, reads[i], 1024, tuple((centres[i] * ahead).tolist())),
            bucket=int(min(1024, 103 * np.ceil(centres[i] / 103))),  # ten classes, as S3 has
            deadline=at + 15.0,
            exact=lengths[i],
        )
        for i, at in enumerate(times.tolist())
    ]
    load = [Request(p.id, p.arrival, p.deadline, "texts", p.utility, p.tokens) for p in prompts]

    def play(policy: str | Own) -> Figures:
        rules = Rules(policy, context, cost=cost)
        run = simulated.simulate(prompts, dict(enumerate(lengths)), rules, memory, cost)
        return figures(
            [
                Observation(each, dropped=fate.dropped) if fate.dropped else Observation(each, fate.ended)
                for each, fate in zip(load, run.fates, strict=True)
            ]
        )

    return play
