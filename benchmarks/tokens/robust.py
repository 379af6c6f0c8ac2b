"""What tokens does in worlds that differ from its profile: expected utility of the default policy and of fixed gammas.

Doing nothing clever is one gamma always, first come, first served: gamma 0, and every other gamma, of which the best in
hindsight counts. The profile is a small one in which launches have a price of their own; the kinds of requests differ in
utility, deadline and in what merging costs them. The policy for attainment is judged by the share answered in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pliant.benchmarks.results import Target
from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.clients import Contestant, crowd
from pliant.latency import LatencyTable
from pliant.progress import Progress, silent
from pliant.protocol import Answer, Finished, Launch, Scheduler
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from pliant.workload import RequestKind, Segment, piecewise, requests
from pliant.worlds import World, worlds

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

DEADLINE, SECONDS = 0.4, 10.0
MAKERS: Mapping[str, Callable[[], Scheduler]] = {
    "default": partial(make, "default", KNOWN),
    "gamma 0": partial(make, "pets", KNOWN),
    **{f"gamma {gamma}": partial(make, "tome", KNOWN, gamma=gamma) for gamma in GAMMAS if gamma < 0},
    **{f"gamma {gamma}": partial(make, "vpt", KNOWN, gamma=gamma) for gamma in GAMMAS if gamma > 0},
    "otas": partial(make, "otas", KNOWN),
}
OURS, *RIVALS = MAKERS
COUNTED = ("attainment", "slackfit", "otas-at-once", "otas", "default")
"""Who is compared in answers in time, the policy for attainment first."""


def rate() -> float:
    return BATCH / TABLE.at(0, BATCH)


def play(
    policy: str, world: World, parts: Sequence[Segment], true: float, seed: int, clients: str, counts: bool = False
) -> float:
    """Return the expected utility of all requests that were answered in time, or (`counts`) their number."""
    rng, scheduler = np.random.default_rng(seed), MAKERS.get(policy, partial(make, policy, KNOWN))()
    those = crowd(requests(piecewise(parts, rng), KINDS, rng), clients, true)

    def execute(launch: Launch) -> tuple[float, Finished]:
        seconds = TABLE.at(launch.setting, len(launch.requests))
        return seconds, Finished(launch.id, seconds)

    actions = [action for entry in those.play(scheduler, execute, world, seed) for action in entry.actions]
    launches = [action for action in actions if isinstance(action, Launch)]
    gamma_of = {id: launch.setting for launch in launches for id in launch.requests}
    in_time = those.answered(action.request for action in actions if isinstance(action, Answer))
    sent = those.sent
    if counts:
        return float(len(in_time))
    return sum(sent[id].utility * ACCURACY[sent[id].task][gamma_of[id]] for id in in_time)


def own_targets(seeds: int, progress: Progress = silent) -> list[Target]:
    """Compare answers in time at twice the capacity in every world, with one seed each."""
    del seeds
    offered, places = replace(CONTESTANT, play=partial(play, counts=True)), worlds(DEADLINE, SECONDS)
    ratios = list[float]()
    for world in places:
        ours, *others = (offered.value(policy, world, 2.0, seed=0) for policy in COUNTED)
        ratios.append(ours / max(*others, 1e-9))
        progress(len(ratios), len(places))
    name = "tokens: in time at 2x, attainment over the best of the others"
    return [
        Target(f"{name}, median of worlds", float(np.median(ratios)), ">=", 0.99, "x"),
        Target(f"{name}, least", min(ratios), ">=", 0.95, "x"),
    ]


CONTESTANT = Contestant(OURS, tuple(RIVALS), DEADLINE, SECONDS, (0.5, 1.0, 2.0), BATCH, rate, play, own_targets)
in_worlds = partial(contest.robust, "tokens")
"""The part of `pliant bench robust`."""
