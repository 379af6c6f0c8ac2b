"""The policies edf and past-future, and the past outputs that the latter predicts by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import WINDOW, Grid, Past
from pliant.packing.scheduling.policies import KEPT_FREE, drawn_left, peak
from pliant.packing.scheduling.policy import Rules, View
from pliant.packing.scheduling.request import FOREVER, Memory, StepInput
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.samples import prompt, seeds

GRID = Grid(200)
sequences = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), max_size=12)


def held_at_any_time(held: list[int], left: list[int]) -> int:
    """Generate a token of each sequence at a time; one that has ended holds nothing any more."""
    most = 0
    for time in range(1, max(left, default=0) + 1):
        most = max(most, sum(h + time for h, more in zip(held, left, strict=True) if more >= time))
    return most


@given(sequences)
def test_the_peak_is_the_most_that_is_ever_held(pairs):
    held, left = [h for h, _ in pairs], [more for _, more in pairs]
    assert peak(np.array(held, float), np.array(left, float)) == held_at_any_time(held, left)


def past_of(lengths) -> Past:
    past = Past(GRID)
    for tokens in lengths:
        past.add(int(tokens))
    return past


def view(past: Past) -> View:
    return View(Memory(100, 4), 100, 0, 512, 100, 0.0, Running(), GRID, past=past)


@given(seeds)
def test_a_drawn_length_is_more_than_there_is_and_at_most_the_limit(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 50))
    limits = rng.integers(1, 250, count)
    generated = np.minimum(rng.integers(0, 250, count), limits - 1)
    left = drawn_left(
        view(past_of(rng.integers(1, 200, rng.integers(0, 40)))), rng.integers(0, 10**9, count), generated, limits
    )
    assert left.shape == (count,) and (left >= 1).all() and (generated + left <= limits).all()


@pytest.mark.parametrize("generated", [0, 20, 60])
def test_drawn_lengths_are_distributed_as_those_of_the_past_that_are_longer(generated):
    rng = np.random.default_rng(5)
    outputs = np.clip(np.rint(np.exp(rng.normal(3.5, 0.6, WINDOW))), 1, 200)
    count = 4000
    left = drawn_left(view(past_of(outputs)), np.arange(count), np.full(count, generated), np.full(count, 200))
    longer = outputs[outputs > generated]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        real = np.quantile(longer, share)
        assert (generated + left <= real * 1.06 + 1).mean() == pytest.approx(share, abs=0.12)
    assert (generated + left).mean() == pytest.approx(longer.mean(), rel=0.08)


@given(seeds)
def test_the_past_is_the_share_of_the_latest_outputs_up_to_each_length(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 200, int(rng.choice([0, 1, 30, WINDOW + 50])))
    past = past_of(lengths)
    latest = lengths[-WINDOW:]
    assert len(past) == len(latest)
    expected = [(latest <= tokens + 1e-9).mean() if len(latest) else 0.0 for tokens in GRID.tokens]
    assert past.row() == pytest.approx(expected)


def test_past_future_admits_as_many_as_fit_by_their_limits_at_first_and_by_past_lengths_later():
    """A hundred pages of four tokens hold 388 tokens besides what is kept free."""
    scheduler = PackingScheduler(Rules("past-future", 200), Memory(100, 4))
    prompts = tuple(prompt(id, 10, 90) for id in range(40))
    first = scheduler.handle(StepInput(prompts), 0.0).admitted
    assert len(first) == int((1 - KEPT_FREE) * 400 // 100)
    scheduler.handle(StepInput(finished=first), 1.0)  # each has generated one token
    admitted = scheduler.handle(StepInput(cancelled=tuple(range(30, 40))), 2.0).admitted
    assert scheduler.running > 2 * len(first) and (admitted == () or admitted[0] > first[-1])
    scheduler.check()


def test_the_earliest_deadline_goes_first_and_the_latest_is_preempted():
    scheduler = PackingScheduler(Rules("edf", 64), Memory(12, 4, sequences=2))
    deadlines = {1: FOREVER, 2: 90.0, 3: 30.0, 4: 60.0}
    arrived = tuple(prompt(id, 4, 40, deadline=at, arrival=float(id)) for id, at in deadlines.items())
    assert scheduler.handle(StepInput(arrived), 5.0).admitted == (3, 4)
    gone = []
    for now in range(30):
        plan = scheduler.handle(StepInput(), 6.0 + now / 10)
        scheduler.check()
        gone += plan.discarded
        if gone:
            break
    assert gone == [4]
