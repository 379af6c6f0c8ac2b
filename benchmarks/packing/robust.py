"""Packing in worlds that differ from its profile: the default policy with its admission, against `paged` without refusals.

A small generator in virtual time: iterations by the profile's cost times what the world makes of it, 48 pages of 16 tokens,
prompts of 12 tokens, outputs of 1 to 60 (gamma-like, mean 20), of which the forecast knows the distribution alone. A
deadline is a number of places: so many answers the true device gives meanwhile at its capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pliant.benchmarks.results import Target
from pliant.benchmarks.robust import clients as crowd
from pliant.benchmarks.robust import contest
from pliant.benchmarks.runs import run_all
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import Retry, Run, simulate
from pliant.packing.scheduling.targets import Admission
from pliant.progress import Progress, silent
from pliant.workload import Segment, piecewise, poisson
from pliant.worlds import Course, FrontDoor, World

COST = LinearCost(0.00057, 2e-5, 4e-5, 2e-7, 0.0)
MEMORY = Memory(48, 16, step_tokens=512, sequences=64)
CONTEXT, PROMPT, LONGEST = 512, 12, 60  # tokens
CAPACITY = 453.0  # answers a second of the profile's device under `paged`, all that wait at once
ITERATION = 0.0033  # seconds at the capacity
PLACES = 40  # of a deadline

OURS = "default"
RIVALS = ("paged",)
DEADLINE = PLACES / CAPACITY
SECONDS = 2.5
LOADS = (0.7, 1.0, 1.5)

TRUE_PLACES, TRUE_LOADS = (40, 80, 200), (0.5, 0.7, 0.95, 1.5, 2.0)
TRUE_SECONDS = 40.0  # deadlines


@dataclass(frozen=True, slots=True)
class _Load:
    """What comes: prompts, and the tokens of their outputs by id."""

    prompts: Sequence[Prompt]
    lengths: dict[int, int]


def value(policy: str, world: World, load: float, seed: int, clients: str = "patient") -> float:
    """Return the answers in time a second."""
    share = crowd.capacity(world, SECONDS, ITERATION)
    seconds = crowd.lasting(world, SECONDS, share)
    capacity, deadline = CAPACITY * share, DEADLINE / share
    segments = crowd.segments(load * capacity, seconds, clients, capacity, deadline)
    offered = _load(piecewise(segments, np.random.default_rng((seed, 2))), deadline, seed)
    return _in_time(policy, world, offered, seed, clients, capacity) / sum(each.seconds for each in segments)


def _in_time(policy: str, world: World, load: _Load, seed: int, clients: str, capacity: float) -> int:
    """Return how many clients had an answer in time."""
    first = {prompt.id: prompt.id for prompt in load.prompts}
    retry = partial(_again, first, dict.fromkeys(first, 1), load.lengths) if clients == "retry" else None
    door = FrontDoor(crowd.BUSY / (2 * capacity)) if clients == "door" else None
    run = _run(policy, Course(world, seed), load, door, retry)
    return len({first[fate.id] for fate in run.fates if not fate.dropped and fate.ended <= fate.deadline})


def _run(policy: str, course: Course, load: _Load, door: FrontDoor | None = None, retry: Retry | None = None) -> Run:
    ours = policy == OURS
    rules = Rules(policy, CONTEXT, cost=COST if ours else None)
    admission = Admission(COST, MEMORY) if ours else None
    return simulate(
        load.prompts,
        load.lengths,
        rules,
        MEMORY,
        COST,
        admission=admission,
        course=course,
        door=door,
        retry=retry,
    )


def _load(times: np.typing.NDArray[np.float64], within: float, seed: int) -> _Load:
    rng = np.random.default_rng((seed, 3))
    lengths = np.clip(rng.gamma(2.0, 10.0, len(times)).astype(int) + 1, 1, LONGEST)
    usual = np.clip(np.random.default_rng(0).gamma(2.0, 10.0, 10_000).astype(int) + 1, 1, LONGEST)
    forecast = tuple(map(float, np.quantile(usual, QUANTILES)))
    prompts = [
        Prompt(number, at, PROMPT, LONGEST, forecast, deadline=at + within) for number, at in enumerate(times.tolist())
    ]
    return _Load(prompts, dict(enumerate(lengths.tolist())))


def _again(
    first: dict[int, int], attempts: dict[int, int], lengths: dict[int, int], prompt: Prompt, now: float
) -> tuple[Prompt, int] | None:
    """Return what a client sends in place of a prompt that was dropped."""
    origin = first[prompt.id]
    if attempts[origin] == crowd.ATTEMPTS:
        return None
    attempts[origin] += 1
    again = replace(prompt, id=len(first), arrival=now, deadline=now + prompt.deadline - prompt.arrival)
    first[again.id] = origin
    return again, lengths[origin]


def recovery(policy: str, seed: int, disturbance: str = crowd.DISTURBANCES[0]) -> float:
    """Return the deadlines after a disturbance until as many are in time as before."""

    def played(world: World, segments: list[Segment]) -> Iterable[tuple[float, float, float]]:
        load = _load(piecewise(segments, np.random.default_rng((seed, 2))), DEADLINE, seed)
        fates = _run(policy, Course(world, seed), load).fates
        return ((fate.arrival, float(not fate.dropped and fate.ended <= fate.deadline), 1.0) for fate in fates)

    return crowd.recovery(disturbance, CAPACITY, 48 * DEADLINE, DEADLINE, played)


def own_targets(seeds: int, progress: Progress = silent) -> list[Target]:
    """Return the targets of the true world: over `paged`, at deadlines of 40 to 200 places."""
    jobs = [(places, load, seed) for places in TRUE_PLACES for load in TRUE_LOADS for seed in range(seeds)]
    ratios = np.reshape(run_all(_true_ratio, jobs, 2, progress), (len(TRUE_PLACES), len(TRUE_LOADS), seeds))
    medians = np.median(ratios, axis=2)
    overloaded = TRUE_LOADS.index(1.5)
    return [
        Target("packing: in time over paged in the true world, least median", float(medians.min()), ">=", 1.0, "x"),
        Target("packing: the same, worst seed", float(ratios.min()), ">=", 0.97, "x"),
        Target("packing: the same at 1.5x, least median", float(medians[:, overloaded].min()), ">=", 1.3, "x"),
    ]


def _true_ratio(job: tuple[int, float, int]) -> float:
    places, load, seed = job
    within = places / CAPACITY
    times = poisson(load * CAPACITY, TRUE_SECONDS * within, np.random.default_rng((seed, 4)))
    offered = _load(times, within, seed)
    ours, rival = (
        _in_time(policy, World("as the profile says"), offered, seed, "patient", CAPACITY) for policy in (OURS, *RIVALS)
    )
    return ours / max(rival, 1)


in_worlds = partial(contest.robust, "packing")
"""The part of `pliant bench robust`."""
