"""What tokens does in worlds that differ from its profile: expected utility of the default policy and of fixed gammas.

Doing nothing clever is one gamma always, first come, first served: gamma 0, and every other gamma, of which the best in
hindsight counts. The profile is a small one in which launches have a price of their own; the kinds of requests differ in
utility, deadline and in what merging costs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from pliant.benchmarks.robust import clients as robust
from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.clients import DISTURBANCES, Clients, capacity, crowd, lasting, segments
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Finished, Journal, Launch, Scheduler
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from pliant.workload import RequestKind, Segment, piecewise, requests
from pliant.worlds import World

GAMMAS = (-10, -5, 0, 4)
TABLE = LatencyTable(
    GAMMAS,
    (1, 4, 16),
    ((0.010, 0.020, 0.060), (0.012, 0.030, 0.100), (0.016, 0.044, 0.160), (0.020, 0.060, 0.220)),
)
ACCURACY: Mapping[str, Mapping[int, float]] = {
    "easy": {-10: 0.8, -5: 0.9, 0: 0.95, 4: 0.96},
    "hard": {-10: 0.2, -5: 0.5, 0: 0.7, 4: 0.8},
}
KNOWN = Knowledge(TABLE, ACCURACY, RateRule((60.0, 90.0, 150.0), (4, 0, -5, -10)))
KINDS = (
    RequestKind("easy", 0.15, 0.3),
    RequestKind("easy", 0.5, 0.6),
    RequestKind("hard", 0.3, 1.0),
    RequestKind("hard", 0.65, 0.1),
)
BATCH = 16  # requests of a launch at the capacity, which is that of gamma 0

DEADLINE, SECONDS, LOADS = 0.4, 10.0, (0.5, 1.0, 2.0)
MAKERS: Mapping[str, Callable[[], Scheduler]] = {
    "default": partial(make, "default", KNOWN),
    "gamma 0": partial(make, "pets", KNOWN),
    **{f"gamma {gamma}": partial(make, "tome", KNOWN, gamma=gamma) for gamma in GAMMAS if gamma < 0},
    **{f"gamma {gamma}": partial(make, "vpt", KNOWN, gamma=gamma) for gamma in GAMMAS if gamma > 0},
    "otas": partial(make, "otas", KNOWN),
}
OURS, *_RIVALS = MAKERS
RIVALS = tuple(_RIVALS)


def value(policy: str, world: World, load: float, seed: int, clients: str = "patient") -> float:
    """Return the expected utility of what a policy answers in time, over what was offered."""
    true = capacity(world, SECONDS, TABLE.at(0, BATCH))
    rate = true * BATCH / TABLE.at(0, BATCH)
    parts = segments(load * rate, lasting(world, SECONDS, true), clients, rate, DEADLINE)
    journal, those = play(policy, world, parts, rate, seed, clients)
    return sum(_earned(journal, those).values()) / sum(those.sent[id].utility for id in set(those.first.values()))


def play(
    policy: str, world: World, parts: list[Segment], rate: float, seed: int, clients: str = "patient"
) -> tuple[Journal, Clients]:
    """Return the journal of a policy on this load, and its clients. `rate`: requests a second of the true device."""
    rng = np.random.default_rng(seed)
    load = requests(piecewise(parts, rng), KINDS, rng)
    those = crowd(load, clients, rate)
    return those.play(MAKERS[policy](), _execute, world, seed), those


def _execute(launch: Launch) -> tuple[float, Finished]:
    seconds = TABLE.at(launch.setting, len(launch.requests))
    return seconds, Finished(launch.id, seconds)


def recovery(policy: str, seed: int, disturbance: str = DISTURBANCES[0]) -> float:
    """Return the typical deadlines after a disturbance until as much as before is earned."""
    rate = BATCH / TABLE.at(0, BATCH)

    def played(world: World, parts: list[Segment]) -> list[tuple[float, float, float]]:
        journal, those = play(policy, world, parts, rate, seed)
        return those.offered(_earned(journal, those))

    return robust.recovery(disturbance, rate, 2 * SECONDS, DEADLINE, played)


def _earned(journal: Journal, those: Clients) -> dict[int, float]:
    """Return the expected utility of each request that was answered in time, each question once."""
    gamma_of: dict[int, int] = {}
    answers: list[int] = []
    for entry in journal:
        for action in entry.actions:
            if isinstance(action, Launch):
                gamma_of.update(dict.fromkeys(action.requests, action.setting))
            elif isinstance(action, Answer):
                answers.append(action.request)
    sent = those.sent
    return {id: sent[id].utility * ACCURACY[sent[id].task][gamma_of[id]] for id in those.answered(answers)}


in_worlds = partial(contest.robust, "tokens")
"""The part of `pliant bench robust`."""
