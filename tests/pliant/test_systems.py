"""The list of systems, and a scheduler made from stored artifacts."""

from __future__ import annotations

import numpy as np
import pytest

from pliant import systems
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.reference import capacity as bins_capacity
from pliant.bins.reference import reference_load as bins_load
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.cascade.reference import reference_load as cascade_load
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import SimulatedCascade, capacity
from pliant.errors import InputError
from pliant.packing.scheduling.reference import capacity as packing_capacity
from pliant.packing.scheduling.reference import reference_load as packing_load
from pliant.packing.scheduling.reference import rules_of
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from pliant.tokens.policies import make
from pliant.tokens.reference import reference_load as tokens_load
from pliant.tokens.simulated import SimulatedDevice
from tests.fixtures.bins.scenarios import bins
from tests.fixtures.cascade.loads import WALKED, fared, known
from tests.fixtures.packing.samples import Scene, play
from tests.fixtures.packing.tiny import CONTEXT, some_packing
from tests.fixtures.tokens.samples import tiny_profile, tiny_task


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="SYSTEM is chess, but must be one of tokens, bins, cascade, packing"):
        systems.system("chess")


def test_a_scheduler_knows_the_gammas_that_were_profiled_and_that_every_task_was_measured_at():
    tasks = [tiny_task("a", "xy", "d"), tiny_task("b", "xy", "d", gammas=(2, 4))]
    known = tokens_knowledge(tiny_profile("d", "cpu"), tasks)
    assert known.latency.settings == (-20, -15, -10, -5, 0, 2, 4)
    assert {task: dict(shares) for task, shares in known.accuracy.items()} == {t.name: dict(t.accuracy) for t in tasks}
    assert known.rule == tiny_profile("d", "cpu").rule
    assert dict(known.loading) == {}


@pytest.mark.parametrize("policy", ["default", "otas", "pets"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_systems_reference_load_runs_through_its_scheduler(seed, policy):
    profile, tasks = tiny_profile("d", "cpu"), [tiny_task("a", "xy", "d"), tiny_task("b", "xyz", "d")]
    known = tokens_knowledge(profile, tasks)
    capacity = profile.latency.throughput(0, 16) / 10
    load = tokens_load([task.name for task in tasks], capacity, seed)
    scheduler = make(policy, known)
    device = SimulatedDevice(profile.latency, known.accuracy, load.requests, np.random.default_rng(0))
    simulate(scheduler, load.requests[:500], device, lambda entry: scheduler.check())
    assert load == tokens_load([task.name for task in tasks], capacity, seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_cascades_reference_load_runs_through_its_scheduler(seed):
    lengths = {task: candidates[0][0].length_R for task, candidates in WALKED.items()}
    load = cascade_load(lengths, capacity(known(), WALKED) / 4, seed)
    scheduler = CascadeScheduler(known())
    device = SimulatedCascade(known(), WALKED, load.requests, load.rows, np.random.default_rng(0))
    journal = simulate(scheduler, load.requests[:500], device, lambda entry: scheduler.check())
    assert fared(journal).attained == 1.0


@pytest.mark.parametrize("placement", ["shared", "single"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_reference_load_of_bins_runs_through_its_scheduler(seed, placement):
    artifact = bins(placement=placement)
    known = knowledge_of([artifact])
    lengths = {"mail": np.flatnonzero(artifact.lengths)}
    load = bins_load(lengths, {"mail": artifact.slo}, bins_capacity(known) / 4, seed)
    scheduler = BinsScheduler(known, Config(workers=2))
    device = SimulatedBins(known, load.requests, np.random.default_rng(0))
    journal = simulate(scheduler, load.requests[:500], device, lambda entry: scheduler.check())
    assert report(journal).attainment == 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_the_reference_load_of_packing_runs_through_its_scheduler(seed):
    """On a device that counts pages by itself, all requests end."""
    packing = some_packing()
    load = packing_load(packing, CONTEXT, packing_capacity(packing), seed)
    packer = PackingScheduler(rules_of(packing, CONTEXT), packing.memory)
    device, _ = play(Scene(CONTEXT, packing.memory, load.prompts, load.lengths), packer)
    assert device.ended == dict.fromkeys(load.lengths, "finished")
    assert device.made == load.lengths
