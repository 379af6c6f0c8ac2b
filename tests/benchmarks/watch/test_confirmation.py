"""The changes that confirm are none of those on which settings were tuned, and come after them, as a target of their own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.watch import alarms, confirmation, streams
from benchmarks.watch.alarms import Comparison, Delay
from benchmarks.watch.streams import Recording
from pliant.watch.binning import linear

VALUES = np.random.default_rng(0).normal(size=6000)
SCORES = Recording("bins", "score", VALUES, linear(-4, 4), change="half a deviation", changed=VALUES + 0.5)


def delay(median: float) -> Delay:
    return Delay("x", 1.0, median, median, 0, 0, 0)


def test_the_confirmation_is_a_target_of_its_own_and_only_with_full(monkeypatch):
    measured = []

    def measure(planted, months, runs, seed=0, **_):
        measured.append((planted[0].name, months, runs, seed))
        ratio = 0.5 if seed == 0 else 2.0
        return [Comparison("bins", planted[0].change, runs, delay(100 * ratio), delay(1.0), (delay(100.0),))]

    monkeypatch.setattr(alarms, "measure", measure)
    monkeypatch.setattr(alarms, "need", lambda _reason: None)
    monkeypatch.setattr(alarms, "recordings", lambda: [SCORES])
    monkeypatch.setattr(alarms.confirmation, "recordings", lambda: [Recording("bins", "y", VALUES, linear(0, 1))])
    (target,), _ = alarms.alarms(False)
    assert (target.measured, target.limit, target.met) == (0.5, 1.0, True)
    (_, second), details = alarms.alarms(True)
    assert second.name.startswith("confirmation") and (second.measured, second.met) == (2.0, False)
    assert details["confirmation"]["changes"][0]["ratio"] == 2.0
    assert measured == [("score", 3, 20, 0), ("score", 20, 100, 0), ("y", 3, 20, confirmation.SEED)]


def test_other_seeds_give_other_months_and_other_places_of_the_change():
    first, second = (alarms.values(SCORES, [seed, 1], 1) for seed in (0, confirmation.SEED))
    assert (first != second).any()
    assert alarms._change_at(SCORES, 0) != alarms._change_at(SCORES, confirmation.SEED)


def test_a_load_becomes_as_many_times_what_it_was_as_its_change_says():
    load = np.zeros(140)
    item = Recording("bins", "load", load, linear(-3, 3), course=False, burn_in=35, change="more", changed=load + 0.7)
    run = alarms.values(item, [0, 1], 1, 50)
    assert (run[:50] == 0).all() and (run[50:] == 0.7).all()


@pytest.mark.skipif(bool(confirmation.missing()), reason=confirmation.missing() or "the data are here")
@pytest.mark.slow
def test_two_changes_a_system_confirm_and_none_is_of_a_stream_that_was_tuned_on():
    items, tuned = confirmation.recordings(), streams.recordings()
    assert sorted(item.system for item in items) == sorted(2 * ["tokens", "bins", "cascade", "packing"])
    assert not {item.name for item in items} & {item.name for item in tuned}
    assert not {item.change for item in items} & {item.change for item in tuned}
    assert all(item.changed is not None and len(item.changed) >= len(item.values) for item in items)
