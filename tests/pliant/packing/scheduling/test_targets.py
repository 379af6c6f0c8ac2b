"""Targets of requests: paces are kept where they can be, prompts are read by when they are due, and books stay right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt, StepInput, validate
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import simulate
from pliant.packing.scheduling.targets import KEPT, LAX, MARGINS, STARVED, Clock, Margin, Pace
from tests.fixtures.packing.samples import STEPS, play, prompt, scene, seeds, with_targets

COST = LinearCost(0.1, 0.01, 0.0, 0.0, 0.0)  # an iteration of one text: 0.11 s
ROW = np.linspace(0, 1, 96)
MEMORY = Memory(400, 4, step_tokens=256)


def arrive(pace: Pace, text: Prompt) -> None:
    pace.arrive(text, 4.0)
    pace.start(text)


def generate(pace: Pace, ids: tuple[int, ...], now: float) -> None:
    pace.begin(now - float(COST.seconds(len(ids), len(ids), 0)), ids, 0, 0, 0)
    pace.end(now)


def fresh(load, **rest) -> PackingScheduler:
    return PackingScheduler(load.rules("default", cost=STEPS, **rest), load.memory)


@given(seeds)
def test_books_stay_right_and_all_end_whatever_the_targets(seed):
    load = with_targets(scene(seed), seed)
    device, journal = play(load, fresh(load))
    assert device.ended.keys() == load.lengths.keys()
    for request in load.prompts:
        how = device.ended[request.id]
        assert how == "finished" or (how == "late" and request.deadline < FOREVER)
    assert replay(fresh(load), journal) == journal == [decode(encode(*entry)) for entry in journal]


def test_a_running_text_keeps_its_pace_while_long_prompts_are_read():
    """An iteration of the whole prompt takes 4.1 s; a pace of 0.3 s a token allows some 19 tokens of it at a time."""
    memory, rules = Memory(400, 4), Rules("default", 800, cost=COST)
    texts = [prompt(0, 4, 60, 40.0, tpot=0.3), prompt(1, 400, 10, 4.0, arrival=1.0)]
    slow, quick = (
        simulate([replace(text, tpot=tpot or text.tpot) for text in texts], {0: 40, 1: 4}, rules, memory, COST).fates
        for tpot in (FOREVER, 0.0)
    )

    def pace(fate) -> float:
        return (fate.ended - fate.first) / (fate.generated - 1)

    assert pace(quick[0]) <= 0.3 < 0.1 + pace(slow[0])
    assert max(pace(slow[0]), 0.0) > pace(quick[0]) or pace(slow[0]) <= 0.3
    assert quick[1].generated == 4, "the prompt is read in the end"


def test_prompts_are_read_by_when_they_are_due_not_by_when_they_came():
    rules, memory = Rules("default", 800, cost=COST), Memory(400, 4, step_tokens=16)
    texts = [prompt(0, 160, 4, 2.0, ttft=20.0), prompt(1, 16, 4, 2.0, arrival=0.1, ttft=1.5)]
    first = [fate.first for fate in simulate(texts, {0: 2, 1: 2}, rules, memory, COST).fates]
    assert first[1] < 0.1 + 1.5 < first[0] < 20.0
    usual = [replace(text, ttft=FOREVER) for text in texts]
    first = [fate.first for fate in simulate(usual, {0: 2, 1: 2}, rules, memory, COST).fates]
    assert first[0] < first[1]


def test_a_request_with_a_target_goes_before_those_that_may_wait_but_not_for_ever():
    memory, rules = Memory(400, 4, sequences=1), Rules("default", 800, cost=COST)
    scheduler = PackingScheduler(rules, memory)
    running, usual, old = prompt(0, 4, 50, 40.0), prompt(1), prompt(2, arrival=-LAX)
    scheduler.handle(StepInput((running,)), 0.0)
    scheduler.handle(StepInput((usual, prompt(3, ttft=1.0), old)), 0.1)
    order = []
    for id in (0, 2, 3, 1):
        order += scheduler.handle(StepInput(finished=(id,)), 1.0).admitted
    assert order == [2, 3, 1]


def test_no_more_texts_run_together_than_keep_their_pace():
    """Ten texts take 0.2 s an iteration: with a pace of 0.16 s fewer than six may run."""
    rules, most = Rules("default", 800, cost=COST), {}
    for tpot in (0.16, FOREVER):
        texts, seen = [prompt(id, 4, 40, 20.0, tpot=tpot) for id in range(10)], []
        observe = lambda *given, seen=seen: seen.append(given[-1].running)  # noqa: E731
        result = simulate(texts, dict.fromkeys(range(10), 20), rules, Memory(400, 4), COST, observe=observe)
        most[tpot] = max(seen)
        assert all((fate.ended - fate.first) / 19 <= tpot for fate in result.fates)
    assert 2 <= most[0.16] < 6 and most[FOREVER] == 10


@given(st.integers(1, 40), st.floats(0, 3), st.integers(0, 200))
def test_most_queries_are_the_most_that_fit_into_the_time(sequences, seconds, cached):
    clock = Clock(LinearCost(0.05, 0.01, 0.002, 0.0001, 0.0))
    clock.ratio = 1.3
    fitting = [n for n in range(129) if clock.seconds(n, sequences, cached + n) <= seconds]
    assert clock.most_queries(seconds, sequences, cached, 128) == max(fitting, default=0)


@given(st.floats(0.5, 1.0), seeds)
def test_a_margin_settles_where_its_share_is_kept(spread, seed):
    """A target is kept with the probability that the margin gives: at the margin where that is KEPT it stays."""
    rng, margin, values = np.random.default_rng(seed), Margin(), []
    for _ in range(6000):
        margin.note(bool(rng.random() < min(1.0, KEPT - 0.05 + 0.25 * margin.value * spread)))
        values.append(margin.value)
    assert MARGINS[0] <= min(values) and max(values) <= MARGINS[1]
    assert np.mean(values[-3000:]) == pytest.approx(min(0.2 / spread, MARGINS[1]), abs=0.12)


def running_of(*texts: tuple[int, int]) -> Running:
    """Return a table of (id, tokens generated), all of which generate."""
    running = Running()
    for turn, (id, generated) in enumerate(texts, 1):
        running.add((id, generated, 10 + generated, 0, 90, 100, turn, 10, 0), 0.0, ROW)
    return running


def test_the_tokens_of_an_iteration_follow_from_the_tightest_slack():
    pace = Pace(COST)
    for id, tpot in ((0, 0.5), (1, 1.0), (2, FOREVER)):
        arrive(pace, prompt(id, tpot=tpot))
    generate(pace, (0, 1, 2), 10.0)
    running = running_of((0, 3), (1, 3), (2, 3))
    every = np.ones(3, bool)
    slack = 0.5 * (1 - MARGINS[0]) * 3 - 0.507  # of text 0 at 10.507
    assert pace.most_tokens(running, every, 10.507, MEMORY) == Clock(COST).most_queries(slack, 3, 39, 256)
    assert pace.most_tokens(running, every, 99.0, MEMORY) == 3, "too late: each reads its token alone"
    assert pace.most_tokens(running, np.array([False, False, True]), 99.0, MEMORY) == 256
    for _ in range(STARVED):
        pace.begin(99.0, (0, 1, 2), 0, 0, 39)
    assert pace.most_tokens(running, every, 99.0, MEMORY) == 3 + 4
    assert pace.most_tokens(running, every, 99.0, replace(MEMORY, step_tokens=5)) == 5


def test_a_lower_priority_goes_first_whatever_is_due_and_offline_ones_go_last():
    scheduler = PackingScheduler(Rules("default", 64, cost=COST), Memory(400, 4, sequences=1))
    scheduler.handle(StepInput((prompt(0, 4, 50, 40.0),)), 0.0)
    waiting = (
        prompt(1, offline=True, priority=-5),
        prompt(2, priority=1, ttft=0.1),
        prompt(3),
        prompt(4, priority=-1),
        prompt(5, ttft=1.0),
    )
    scheduler.handle(StepInput(waiting), 0.1)
    order = []
    for id in (0, 4, 5, 3, 2):
        order += scheduler.handle(StepInput(finished=(id,)), 1.0).admitted
    assert order == [4, 5, 3, 2, 1]
    with pytest.raises(InputError, match="priority is 1001, but must be from -1000 to 1000"):
        validate(prompt(0, priority=1001))


def test_one_long_pause_moves_the_clock_little_and_a_slower_device_is_known_within_a_hundred_iterations():
    for factor in (0.1, 1.0, 8.0):
        clock, now = Clock(COST), 0.0
        for _ in range(100):
            clock.begin(now, 1, 1, 10)
            now += 0.11 * factor
            clock.end(now)
        assert clock.ratio == pytest.approx(factor, rel=0.1)
        clock.begin(now, 1, 1, 10)
        clock.end(now + 60.0)
        assert clock.ratio <= 1.3 * factor
