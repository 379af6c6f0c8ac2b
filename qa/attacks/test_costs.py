"""What tenants cost where nobody attacks: schedulers with them, and without, in turns.

Without: see no_fairness.py. A round measures with, without, without, with, so that a drift of the machine's speed
hits both; a target is judged by the median of the rounds' ratios.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import pliant.bins.scheduler
import pliant.cascade.scheduler
import pliant.packing.scheduling.scheduler
import pliant.tokens.scheduler
from pliant.packing.scheduling import simulated
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.workload import poisson
from qa.attacks.no_fairness import without_fairness
from qa.targets import Targets, say
from tests.fixtures import tenants
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.tokens import loads as tokens

LOAD = 0.8  # of what a device answers
SECONDS = {"tokens": 15.0, "bins": 3.0, "cascade": 1.5, "packing": 20.0}
ROUNDS = 30
RULES, MEMORY = Rules("default", 256), Memory(400, 16, 0, 256, 32)
MODULES = {
    "tokens": pliant.tokens.scheduler,
    "bins": pliant.bins.scheduler,
    "cascade": pliant.cascade.scheduler,
    "packing": pliant.packing.scheduling.scheduler,
}

Steps = list[tuple[Any, float, Any]]
"""What a scheduler is given: events or inputs of steps, their times, and what it decides."""


def recorded(system: str) -> tuple[Callable[[], Any], Steps]:
    """Return what builds the scheduler, and Poisson arrivals of a single tenant as they were simulated with it."""
    rng, seconds, rate = np.random.default_rng(0), SECONDS[system], LOAD * tenants.CAPACITY[system]
    if system == "packing":
        return _recorded_packing(seconds, rate, rng)
    loads = {"tokens": tenants.tokens_load, "bins": tenants.bins_load, "cascade": tenants.cascade_load}
    simulate = {"tokens": tenants.run_tokens, "bins": tenants.run_bins, "cascade": tenants.run_cascade}
    schedulers = {
        "tokens": partial(tokens.scheduler, "default", 1, margin=0.15),
        "bins": lambda: bins.scheduler(bins.known("shared", 1, (1, 4))),
        "cascade": lambda: cascade.scheduler(cascade.known(1), 1, margin=0.15),
    }
    # Such a load is 17.2 tenths of the capacity that it is made for; here all of it is one tenant's.
    load = [replace(request, tenant="ann") for request in loads[system](0, seconds, rate * 10 / 17.2)]
    journal = simulate[system](load)
    return schedulers[system], [(entry.event, entry.now, list(entry.actions)) for entry in journal]


def _recorded_packing(seconds: float, rate: float, rng: np.random.Generator) -> tuple[Callable[[], Any], Steps]:
    prompts, lengths, steps = [], {}, []
    for i, at in enumerate(poisson(rate, seconds, rng)):
        lengths[i] = int(np.clip(rng.lognormal(3.3, 0.5), 4, 120))
        prompts.append(Prompt(i, float(at), int(rng.integers(10, 60)), 128, (float(lengths[i]),) * 8, tenant="ann"))
    simulated.simulate(
        prompts,
        lengths,
        RULES,
        MEMORY,
        tenants.COST,
        leaps=False,
        observe=lambda now, step_input, plan, _scheduler: steps.append((step_input, now, plan)),
    )
    return partial(pliant.packing.scheduling.scheduler.PackingScheduler, RULES, MEMORY), steps


def drive(scheduler: Any, steps: Steps) -> float:
    """Return the processor's seconds in which the scheduler takes all steps, and says when to wake it, as a driver asks."""
    handle, wake_at = scheduler.handle, getattr(scheduler, "wake_at", lambda: None)
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        for event, now, _ in steps:
            handle(event, now)
            wake_at()
        return time.process_time() - began
    finally:
        gc.enable()


@pytest.mark.parametrize("system", SECONDS)
def test_a_scheduler_takes_as_many_events_a_second_with_tenants(system):
    build, steps = recorded(system)

    def build_without() -> Any:
        with without_fairness(MODULES[system]):
            return build()

    for scheduler in (build(), build_without()):  # the same decisions, so the same work
        assert all(scheduler.handle(event, now) == decided for event, now, decided in steps)
    ratios, seconds = [], []
    for _ in range(ROUNDS):
        turns = [drive(builder(), steps) for builder in (build, build_without, build_without, build)]
        ratios.append((turns[1] + turns[2]) / (turns[0] + turns[3]))
        seconds.append(turns[0] + turns[3])
    say(
        f"{system}: {len(steps)} steps of {1e6 * np.median(seconds) / 2 / len(steps):.2f} us; events a second over "
        f"without, quartiles of the rounds: {np.quantile(ratios, [0.25, 0.5, 0.75]).round(3)}"
    )
    targets = Targets("costs")
    targets.at_least(f"events/s over without, {system}", float(np.median(ratios)), 0.95, "x")
    targets.check()
