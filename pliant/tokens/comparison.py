"""What `pliant.compare` plays tokens on: the device and the requests that OTAS was published with (published.py)."""

from __future__ import annotations

import numpy as np

from pliant import workload
from pliant.comparison import Figures, Own, Play, Times, figures, scheduler
from pliant.protocol import Scheduler
from pliant.report import observations
from pliant.simulator import simulate
from pliant.tokens import bound, policies, published
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice


def ground(times: Times, seed: int) -> Play:
    """Return what plays a policy on these arrivals, of requests whose kinds are drawn."""
    plain = published.profile(published.FIGURE_4B)
    load = workload.requests(times, published.KINDS, np.random.default_rng(seed))
    best = bound.fluid(load, bound.Devices(plain.latency, plain.accuracy)).utility

    def play(policy: str | Own) -> Figures:
        known = published.variants(published.FIGURE_4B) if policy == "infaas" else plain
        rng = np.random.default_rng(seed)
        device = SimulatedDevice(known.latency, known.accuracy, load, rng, loading=known.loading)
        if isinstance(policy, str):  # no way back to a caller here, so no margin
            chosen: Scheduler = policies.make(policy, known, options=Options(margin=0.0))
        else:
            chosen = scheduler(policy(known))
        seen = observations(simulate(chosen, load, device))
        accurate = [each for each in seen if each.outcome in ("accurate", "wrong") and each.setting is not None]
        earned = sum(each.request.utility * known.accuracy[each.request.task][each.setting or 0] for each in accurate)
        # Expected utility, as the bound's, which is of one model's gammas, and none for several models.
        return figures(seen, earned, best if known is plain else float("nan"))

    return play
