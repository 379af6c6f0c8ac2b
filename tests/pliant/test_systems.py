"""The list of systems, and a scheduler made from stored artifacts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.simulate import simulate
from pliant.systems import SYSTEMS, TOKENS, tokens_config
from pliant.tokens.simulated import SimulatedDevice
from tests.tokens_samples import tiny_profile, tiny_task


def test_every_system_is_listed_under_its_name():
    assert all(name == system.name for name, system in SYSTEMS.items())
    assert SYSTEMS["tokens"] is TOKENS


def test_a_configuration_allows_what_the_profile_and_every_task_know():
    tasks = [tiny_task("a", "xy", "d"), tiny_task("b", "xy", "d", gammas=(2, 4))]
    assert tokens_config(tiny_profile("d", "cpu"), tasks).gammas == (-20, -15, -10, -5, 0, 2, 4)
    assert tokens_config(tiny_profile("d", "cpu"), tasks, gammas=(0,)).gammas == (0,)


def test_a_gamma_that_is_not_in_the_published_list_is_used_if_it_was_profiled():
    """Only the published gammas were once looked at, and longer prompts were trained, profiled and never used."""
    profile = tiny_profile("d", "cpu", gammas=(-5, 0, 16))
    task = replace(tiny_task("a", "xy", "d"), accuracy={-5: 0.5, 0: 0.7, 16: 0.9})
    assert tokens_config(profile, [task]).gammas == (-5, 0, 16)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_systems_reference_load_runs_through_its_scheduler(seed):
    profile, tasks = tiny_profile("d", "cpu"), [tiny_task("a", "xy", "d"), tiny_task("b", "xyz", "d")]
    config = tokens_config(profile, tasks)
    capacity = profile.latency.throughput(0, 16) / 10
    load = TOKENS.load([task.name for task in tasks], capacity, seed)
    scheduler = TOKENS.scheduler(config)
    device = SimulatedDevice(profile.latency, config.accuracy, load.requests, np.random.default_rng(0))
    simulate(scheduler, load.requests[:500], device, lambda entry: scheduler.check())
    assert load == TOKENS.load([task.name for task in tasks], capacity, seed)


def test_the_reference_loads_loud_half_is_loud():
    load = TOKENS.load(["a", "b"], 100.0, 3)
    quiet = len(load.requests) - len(load.loud)
    assert len(load.loud) / quiet == pytest.approx((1.25 + 1.5 + 1.75 + 2.0) / (0.5 + 0.65 + 0.8 + 0.95), rel=0.15)
    assert {request.task for request in load.requests} == {"a", "b"}


def test_allowing_fewer_gammas_keeps_the_profiles_times():
    profile = tiny_profile("d", "cpu")
    config = tokens_config(profile, [tiny_task("a", "xy", "d")], gammas=(0, 4))
    assert config.latency.row(0) == profile.latency.row(0)
