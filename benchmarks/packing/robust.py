"""Packing in worlds that differ from its profile: the default policy with its admission, against `paged` without refusals.

A small generator in virtual time: iterations by the profile's cost times what the world makes of it, 48 pages of 16 tokens,
prompts of 12 tokens, outputs of 1 to 60 (gamma-like, mean 20), of which the forecast knows the distribution alone. A
deadline is a number of places: so many answers the true device gives meanwhile at its capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from pliant.packing.scheduling.simulated import Fate, Retry, Run, simulate
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

OURS, RIVALS = "default", ("paged",)
DEADLINE = PLACES / CAPACITY
TRUE_PLACES, TRUE_LOADS = (40, 80, 200), (0.5, 0.7, 0.95, 1.5, 2.0)
TRUE_SECONDS = 40.0  # deadlines


@dataclass(frozen=True, slots=True)
class _Load:
    """What comes: prompts, and the tokens of their outputs by id."""

    prompts: Sequence[Prompt]
    lengths: dict[int, int]


def play(policy: str, world: World, parts: Sequence[Segment], true: float, seed: int, clients: str) -> float:
    """Return how many requests were in time."""
    load = _load(piecewise(parts, np.random.default_rng((seed, 2))), PLACES / true, seed)
    first, fates = _played(policy, world, load, seed, clients, true)
    return float(len({first[fate.id] for fate in fates if _in_time(fate)}))


def _in_time(fate: Fate) -> bool:
    return not fate.dropped and fate.ended <= fate.deadline


def _played(
    policy: str, world: World, load: _Load, seed: int, clients: str, capacity: float
) -> tuple[dict[int, int], Sequence[Fate]]:
    """Return, of every prompt that was sent, the one that its client sent first, and what became of it."""
    first = {prompt.id: prompt.id for prompt in load.prompts}
    retry = partial(_again, first, dict.fromkeys(first, 1), load.lengths) if clients == "retry" else None
    door = FrontDoor(crowd.BUSY / (2 * capacity)) if clients == "door" else None
    return first, _run(policy, Course(world, seed), load, door, retry).fates


def _run(policy: str, course: Course, load: _Load, door: FrontDoor | None = None, retry: Retry | None = None) -> Run:
    ours = policy == OURS
    rules = Rules(policy, CONTEXT, cost=COST if ours else None)
    admission = Admission(COST, MEMORY) if ours else None
    offered = (load.prompts, load.lengths, rules, MEMORY, COST)
    return simulate(*offered, admission=admission, course=course, door=door, retry=retry)


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
    runs = [
        _played(policy, World("as the profile says"), offered, seed, "patient", CAPACITY) for policy in (OURS, *RIVALS)
    ]
    ours, rival = (sum(map(_in_time, fates)) for _, fates in runs)
    return ours / max(rival, 1)


CONTESTANT = crowd.Contestant(
    OURS,
    RIVALS,
    DEADLINE,
    2.5,
    (0.7, 1.0, 1.5),
    CAPACITY * ITERATION,
    lambda: CAPACITY,
    play,
    own_targets,
)
in_worlds = partial(contest.robust, "packing")
"""The part of `pliant bench robust`."""
