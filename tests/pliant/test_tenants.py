"""Tenants in the schedulers of all four systems: replay, nothing new for one tenant, shares by weight, a flood held back.

The books of each system's loads check every decision, and call `check()` after every event.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from pliant.fairness import FairnessConfig
from pliant.packing.scheduling import journal as packing_journal
from pliant.packing.scheduling import simulated as packing
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures import tenants
from tests.fixtures.bins import loads as bins
from tests.fixtures.cascade import loads as cascade
from tests.fixtures.packing import samples
from tests.fixtures.tokens import loads as tokens

STRICT = FairnessConfig(burst=0.0, slack=0.0)
NAMES, WEIGHTS = ("", "ann", "ben", "cleo"), {"": 1.0, "ann": 1.0, "ben": 2.0, "cleo": 4.0}


@settings(max_examples=20)  # each of several simulations
@given(samples.seeds)
def test_packing_with_tenants_replays_and_one_tenant_is_as_none(seed):
    scene = samples.scene(seed)
    rng = np.random.default_rng(seed)
    names = [str(rng.choice(NAMES)) for _ in scene.prompts]
    prompts = tuple(replace(p, tenant=n, weight=WEIGHTS[n]) for p, n in zip(scene.prompts, names, strict=True))
    fresh = lambda: PackingScheduler(scene.rules("default"), scene.memory)  # noqa: E731
    _, journal = samples.play(replace(scene, prompts=prompts), fresh())
    assert packing_journal.replay(fresh(), journal) == journal
    assert [packing_journal.decode(packing_journal.encode(*entry)) for entry in journal] == journal
    _, nameless = samples.play(scene, fresh())
    single = tuple(replace(p, tenant="ann", weight=0.5) for p in scene.prompts)
    _, named = samples.play(replace(scene, prompts=single), fresh())
    assert [plan for _, _, plan in named] == [plan for _, _, plan in nameless]


def seconds_by_tenant(journal) -> dict[str, float]:
    """Seconds of the devices by tenant, while all of them wait for it."""
    return {name: tenants.fared(journal, (name,)).seconds for name in ("ann", "ben", "cleo")}


def flooding(system: str):
    """Three tenants of weights 1, 2 and 4, each of whom alone would be too much."""
    names = [("ann", "ben", "cleo")[i % 3] for i in range(3000)]
    if system == "tokens":
        load = [replace(tokens.ask(i, i / 1200, 0.5), tenant=n, weight=WEIGHTS[n]) for i, n in enumerate(names)]
        return tokens.run(load, tokens.World(1), fairness=STRICT)[0]
    if system == "bins":
        load = [replace(bins.ask(i, i / 6000, 60), tenant=n, weight=WEIGHTS[n]) for i, n in enumerate(names)]
        return bins.run(load, bins.known("shared", 1, (1, 4)), fairness=STRICT)[0]
    load = [cascade.ask(i, i / 6000, 0.3, setting=1, tenant=n, weight=WEIGHTS[n]) for i, n in enumerate(names[:1500])]
    return cascade.run(cascade.Load(load, [0] * len(load)), fairness=STRICT)[0]


@pytest.mark.parametrize("system", ["tokens", "bins", "cascade"])
def test_in_overload_weights_of_1_2_and_4_get_shares_of_1_2_and_4(system):
    seconds = seconds_by_tenant(flooding(system))
    total = sum(seconds.values())
    assert [seconds[n] / total for n in ("ann", "ben", "cleo")] == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.06)


def test_in_overload_texts_of_weights_1_2_and_4_are_generated_in_these_shares():
    names = ("ann", "ben", "cleo")
    prompts = tuple(
        samples.prompt(i, tokens=8, limit=16, forecast=16.0, tenant=names[i % 3], weight=WEIGHTS[names[i % 3]])
        for i in range(900)
    )
    lengths = dict.fromkeys(range(900), 16)
    run = packing.simulate(prompts, lengths, Rules("default", 64), Memory(60, 4, 0, 64, 12), samples.STEPS)
    half = sorted(fate.ended for fate in run.fates)[len(prompts) // 3]
    done = [sum(f.ended <= half and names[f.id % 3] == name for f in run.fates) for name in names]
    assert [count / sum(done) for count in done] == pytest.approx([1 / 7, 2 / 7, 4 / 7], abs=0.05)


@pytest.mark.parametrize(
    ("system", "seconds", "think"), [("tokens", 4.0, 3e-3), ("bins", 2.0, 2e-4), ("cascade", 1.5, 2e-3)]
)
def test_a_tenant_keeps_its_half_of_what_it_has_alone_beside_30_connections_of_another(system, seconds, think):
    """A device that took whatever waits were another's whenever the tenant comes back: 0.14 to 0.35."""
    alone = tenants.closed(system, {"ann": 1}, seconds, think)["ann"]
    beside = tenants.closed(system, {"ann": 1, "many": 30}, seconds, think)
    assert beside["ann"] >= 0.95 * alone / 2
    most = tenants.closed(system, {"many": 30}, seconds)["many"]
    assert beside["many"] >= 0.95 * most / 2, "nobody has more than its share from what is kept free"


@pytest.mark.parametrize("asks", [{"deadline": 1.0}, {"ttft": 1.0}])
@pytest.mark.parametrize(("places", "every"), [(16, 5.0), (64, 1.0)])
def test_another_with_64_texts_at_once_refuses_nobody_and_makes_nobody_late(places, every, asks):
    assert tenants.many_outputs(places, 0, asks, 0.0) == 1.0, "alone"
    assert tenants.many_outputs(places, 0, asks, every) >= 0.99


def test_a_tenant_at_ten_times_its_share_does_not_slow_the_others():
    """Under tokens; `make attacks ONLY=08` holds all four systems to it."""
    compared = tenants.compared("tokens", seed=0, seconds=6.0)
    assert compared.p99 <= 1.15 and compared.throughput >= 0.97 and compared.kept >= 0.99
    assert compared.blind.on_time < 0.8 * compared.others.on_time, "without tenants the others are starved"
