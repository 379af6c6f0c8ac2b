"""The demo's estimate: costs and speed make seconds, the stopwatch leaves no second out, the probe measures something."""

from __future__ import annotations

import pytest

from benchmarks.demo import estimate
from benchmarks.demo.estimate import Speed, Stage, Stopwatch
from benchmarks.demo.stages import TEXTS, stages_of
from pliant import systems


def test_a_stage_takes_its_tensors_its_python_and_its_wait():
    stage = Stage("x", tensor=10, python=4, pair=1, wait=3)
    assert stage.seconds(Speed(tensor=2, python=0.5, pair=4)) == pytest.approx(20 + 2 + 4 + 3)


def test_time_between_stages_counts_to_the_later_and_unknown_stages_to_the_next_known(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(estimate.time, "monotonic", lambda: now[0])
    watch = Stopwatch(frozenset({"a", "b"}))
    for at, name in [(2.0, "a"), (3.0, "unknown"), (7.0, "b"), (8.0, "a")]:
        now[0] = at
        watch.end(name, 1.0)
    assert watch.seconds == {"a": 3.0, "b": 5.0}
    assert [name for name, _ in watch.heard] == ["a", "unknown", "b", "a"]


def test_every_system_of_the_demo_says_what_comes():
    every = stages_of(systems.names())
    assert all(stages for stages in every.values())
    assert all(
        any((stage.tensor, stage.python, stage.pair, stage.wait)) for stages in every.values() for stage in stages
    )


def test_the_texts_are_read_by_the_first_system_that_needs_them():
    def readers(systems):
        return [system for system, stages in stages_of(systems).items() if TEXTS in stages]

    assert readers(systems.names()) == ["bins"]
    assert readers(["tokens", "packing"]) == ["packing"]
