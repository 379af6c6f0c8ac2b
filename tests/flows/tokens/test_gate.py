"""The promotion gate, on tiny artifacts in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.flows.tokens.config import GateConfig
from pliant.flows.tokens.gate import judge
from pliant.flows.tokens.stages import Bundle
from pliant.latency import LatencyTable
from pliant.tokens.artifact import Task
from pliant.tokens.simulated import ReferenceConfig
from tests.fixtures.tokens.samples import (
    POINTS,
    profile_with_points,
    tiny_backbone,
    tiny_profile,
    tiny_task,
    with_points,
)

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


def test_a_champion_of_other_points_measured_at_a_quieter_hour_does_not_keep_its_place_by_that():
    champion, quiet = bundle(), profile_with_points("sha256:b", "cpu")
    champion = replace(champion, profile=quiet, tasks=tuple(with_points(task) for task in champion.tasks))
    other = {number + 10: point for number, point in POINTS.items()}
    table = replace(quiet.latency, settings=(*quiet.latency.settings[:-2], *other))
    moved = [replace(task, points=other, **renumbered(task)) for task in champion.tasks]
    later = replace(champion, profile=replace(quiet, latency=table, points=other), tasks=tuple(moved))
    assert judge(champion, slower(later, 1.5), GateConfig(seeds=2), SHORT).passed
    assert not judge(champion, slower(less_accurate(later, 0.2), 1.5), GateConfig(seeds=2), SHORT).passed


def renumbered(task: Task) -> dict[str, dict]:
    """What a task says by setting, with points under other numbers."""
    fields = {name: getattr(task, name) for name in ("heads", "accuracy", "test_accuracy")}
    return {name: {n + 10 * (n in POINTS): v for n, v in field.items()} for name, field in fields.items()}


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
