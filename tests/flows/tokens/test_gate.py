"""The promotion gate, on tiny artifacts in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.flows.tokens.config import GateConfig
from pliant.flows.tokens.gate import judge
from pliant.flows.tokens.stages import Bundle
from pliant.latency import LatencyTable
from pliant.tokens.simulated import ReferenceConfig
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

SHORT = ReferenceConfig(seconds=0.5)
ONCE = GateConfig(seeds=1)


def bundle(device: str = "cpu", tasks: tuple[str, ...] = ("digit", "loops"), digest: str = "sha256:b") -> Bundle:
    adapters = tuple(tiny_task(name, ("a", "b"), digest) for name in tasks)
    return Bundle(tiny_backbone(), adapters, tiny_profile(digest, device))


def slower(some: Bundle, factor: float) -> Bundle:
    table = some.profile.latency
    seconds = tuple(tuple(factor * s for s in row) for row in table.seconds)
    return replace(some, profile=replace(some.profile, latency=LatencyTable(table.settings, table.batches, seconds)))


def less_accurate(some: Bundle, by: float) -> Bundle:
    def lowered(shares):
        return {gamma: share - by for gamma, share in shares.items()}

    tasks = [replace(t, accuracy=lowered(t.accuracy), test_accuracy=lowered(t.test_accuracy)) for t in some.tasks]
    return replace(some, tasks=tuple(tasks))


def test_a_challenger_of_lower_accuracy_fails_and_a_better_one_passes():
    good, bad = bundle(), less_accurate(bundle(), 0.3)
    assert not judge(good, bad, ONCE, SHORT).passed
    assert judge(bad, good, ONCE, SHORT).passed


def test_the_tasks_that_both_serve_are_judged():
    verdict = judge(bundle(tasks=("digit", "loops")), bundle(tasks=("digit", "stroke")), ONCE, SHORT)
    assert verdict.passed
    none = judge(bundle(tasks=("digit",)), bundle(tasks=("stroke",)), ONCE, SHORT)
    assert not none.passed
    assert "none of the champion's tasks" in none.reason


@pytest.mark.parametrize("seconds", [0.25, 0.5])
def test_the_load_is_the_one_that_the_settings_describe(seconds):
    """The gate once replayed the default load whatever the settings said."""
    verdict = judge(None, bundle(), ONCE, ReferenceConfig(quiet=(0.5,), loud=(1.5,), seconds=seconds))
    table = bundle().profile.latency
    expected = 2.0 * table.throughput(0, table.batches[-1]) * seconds
    assert verdict.challenger.reports[0].requests == pytest.approx(expected, rel=0.2)
