"""Texts with deadlines: who starts by the chance to be in time, in worlds that the profile knows and in others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.benchmarks.packing import robust
from pliant.packing.scheduling.forecast import Grid
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, StepInput
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import simulate
from pliant.packing.scheduling.targets import STRETCHES, Chances, Clock, InTime
from pliant.packing.scheduling.waiting_queue import Waiting
from pliant.workload import poisson
from pliant.worlds import Course, World
from tests.fixtures.packing.samples import prompt

COST = LinearCost(0.01, 0.0, 0.01, 0.0, 0.0)  # 0.02 s for one text, 0.03 s for two
GRID = Grid(256)
CLOCK = Clock(COST)
SPREAD = (2.0, 3.0, 6.0, 10.0, 16.0, 22.0, 26.0, 32.0)


def waiting(id: int, deadline: float, forecast=SPREAD, **changes) -> Waiting:
    text = prompt(id, 4, 60, forecast, deadline=deadline, **changes)
    return Waiting(text, (changes.get("priority", 0), 0.0, id), GRID.row(text.forecast, 60), 64, unread=4)


def running(*texts: Waiting, generated: int = 0) -> Running:
    made = Running()
    for text in texts:
        made.add((text.prompt.id, generated, 4, 0, 60, 64, text.prompt.id), 0.0, text.row)
    return made


def chances(*texts: Waiting, now: float = 0.0, generated: int = 0) -> Chances:
    in_time = InTime(CLOCK, GRID)
    for text in texts:
        in_time.arrive(text.prompt)
    return Chances(in_time, CLOCK, running(*texts, generated=generated), now, 0.0)


def by_hand(text: Waiting, generated: int, steps: int) -> float:
    """The share of outputs longer than `generated` that end within `steps` more tokens, token by token."""
    tokens = np.arange(1, 61)
    below = np.concatenate([[0.0], GRID.below(text.row[None, :], tokens[None, :].astype(float))[0]])
    share = np.diff(below)[generated:]
    return float(share[:steps].sum() / share.sum())


@pytest.mark.parametrize(("generated", "left"), list(product((1, 5, 12), (0.05, 0.21, 0.5, 2.0))))
def test_a_chance_is_the_share_of_outputs_that_end_within_the_iterations_left(generated, left):
    text = waiting(0, left)
    made = chances(text, generated=generated)
    pace = 0.02
    got = made._chances(*made._together([waiting(1, 9.0)]), np.array([pace]))[0, 0]
    assert got == pytest.approx(by_hand(text, generated, int(left / pace + 1e-9)), abs=0.02)


def test_those_that_are_as_good_as_sure_go_by_their_deadlines_and_those_with_less_chance_behind_them():
    sure_late, sure_soon, unsure, lost = waiting(0, 9.0), waiting(1, 3.0), waiting(2, 0.2), waiting(3, 0.01)
    order = chances().best_first([lost, sure_late, unsure, sure_soon])
    assert [each.prompt.id for each in order] == [1, 0, 2, 3]


def test_short_ones_and_ones_that_are_worth_more_go_first():
    long, short = waiting(0, 9.0, forecast=40.0), waiting(1, 9.0, forecast=4.0)
    assert [each.prompt.id for each in chances().best_first([long, short])] == [1, 0]
    dear, cheap = waiting(0, 9.0, utility=5.0), waiting(1, 9.0, utility=1.0)
    assert [each.prompt.id for each in chances().best_first([cheap, dear])] == [0, 1]


def test_those_without_a_deadline_or_with_targets_keep_their_places_and_no_group_overtakes_another():
    forever, target = waiting(0, float("inf")), waiting(1, 9.0, ttft=1.0)
    lost, sure, other_group = waiting(2, 0.01), waiting(3, 9.0), waiting(4, 9.0, priority=1)
    order = chances().best_first([forever, lost, target, sure, other_group])
    assert [each.prompt.id for each in order] == [0, 3, 1, 2, 4]


def test_nobody_joins_whose_start_costs_the_others_more_than_it_brings():
    tight = [waiting(id, 0.62, forecast=30.0) for id in range(1)]
    assert not chances(*tight).gain([], waiting(9, 0.1, forecast=30.0)), "it is lost itself, and makes the other late"
    assert chances(*tight).gain([], waiting(9, 9.0, forecast=4.0)) == chances(*tight).gain([], waiting(9, 9.0)), (
        "one for one"
    )
    roomy = [waiting(id, 9.0) for id in range(3)]
    assert chances(*roomy).gain([], waiting(9, 9.0))
    assert chances().gain([], waiting(9, 0.001)), "an idle device always starts the best one"


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=200))
def test_the_stretch_stays_within_its_bounds_and_follows_what_became_of_the_texts(outcomes):
    in_time = InTime(Clock(COST), GRID)
    for id, (chance, kept) in enumerate(outcomes):
        before = in_time.stretch
        text = waiting(id, 1.0)
        in_time.arrive(text.prompt)
        in_time.start([text], np.array([chance]))
        in_time.leave(id, 0.5 if kept else 1.5)
        assert STRETCHES[0] <= in_time.stretch <= STRETCHES[1]
        assert in_time.stretch <= before if kept else in_time.stretch >= before
    assert in_time.chances(Running(), 0.0, 0.0) is None


def test_an_idle_device_starts_a_text_whatever_it_has_learnt():
    """One estimate that is wrong by any factor is tested with the next text: none stays wrong."""
    scheduler = PackingScheduler(Rules("default", 256, cost=COST), Memory(64, 16))
    scheduler._in_time.stretch, scheduler._pace.clock.ratio = STRETCHES[1], 1000.0
    plan = scheduler.handle(StepInput((prompt(0, 4, 60, SPREAD, deadline=5.0),)), 0.0)
    assert plan.admitted == (0,)


def test_the_books_are_right_after_every_decision_of_a_stormy_load():
    times = poisson(3 * robust.CAPACITY, 0.3, np.random.default_rng(5))
    load = robust._load(times, 0.06, 5)
    rules = Rules("default", robust.CONTEXT, cost=robust.COST)
    course = Course(World("storm", noise=0.6, pause=0.05, pause_seconds=0.02), 1)

    def check(now, step_input, plan, scheduler) -> None:
        scheduler.check()
        assert set(scheduler._in_time._deadlines) == {*scheduler._prompts, *(w.prompt.id for w in scheduler._queue)}

    simulate(load.prompts, load.lengths, rules, robust.MEMORY, robust.COST, observe=check, course=course)
