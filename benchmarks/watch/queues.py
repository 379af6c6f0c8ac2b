"""A challenger whose devices are its own, under the load of a worker: simulated queues, one of each release (M/M/1).

Both say the same, so that only what is late decides. A request whose wait is beyond its deadline is refused as late, and one
that the challenger refuses is answered by the champion.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout
from pliant.rollout.events import CanaryOutcome, ShadowCompared
from pliant.rollout.measures import ARMS, Arm

SERVICE, DEADLINE = 0.05, 0.25  # seconds of an answer of the champion, in the mean, and until it is late
HOLD = 600.0  # mean seconds of a loud or a quiet time


def queued(seed: int, slower: float, load: float = 0.75, swing: float = 0.0) -> Rollout:
    """Return a rollout until it is promoted or taken back.

    `slower`: the challenger's seconds over the champion's; `load`: of the champion with all requests; `swing`: share by
    which this is more in loud times, and less in quiet ones.
    """
    rng, rollout, now, number, until, loud = np.random.default_rng([seed, 5]), Rollout(RolloutConfig()), 0.0, 0, 0.0, 1
    free, pending = dict.fromkeys(ARMS, 0.0), list[tuple[float, int, Arm, float]]()
    while rollout.stage != "guard" and not rollout.decided:
        if now >= until:
            loud, until = -loud, now + rng.exponential(HOLD)
        now, number = now + rng.exponential(SERVICE / load / (1 + loud * swing)), number + 1
        while pending and pending[0][0] <= now:
            ended, id, arm, seconds = heappop(pending)
            rollout.handle(CanaryOutcome(str(id), arm, seconds, late=seconds > DEADLINE), ended)
            if rng.random() < rollout.copied(arm):
                rollout.handle(ShadowCompared(str(id), True), ended)
        arm, took = ARMS[int(rng.random() < rollout.share)], rng.exponential(SERVICE)
        if free[arm] - now > DEADLINE:
            rollout.handle(CanaryOutcome(str(number), arm, late=True), now)
            free[ARMS[0]] = max(now, free[ARMS[0]]) + (took if arm == ARMS[1] else 0.0)
            continue
        free[arm] = max(now, free[arm]) + took * (slower if arm == ARMS[1] else 1.0)
        heappush(pending, (free[arm], number, arm, free[arm] - now))
    return rollout
