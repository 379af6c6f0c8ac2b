"""Leaps give the results of single iterations, both give those of a plain device, and figures equal those by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.simulated import Fate, Run, simulate, summary
from tests.fixtures.packing.samples import STEPS, Device, compare, policies, prompt, scene, seeds

TIMES = ("started", "first", "ended")


def run(load, policy: str, **options) -> Run:
    return simulate(load.prompts, load.lengths, load.rules(policy), load.memory, STEPS, **options)


@given(seeds, policies)
def test_leaps_give_the_fates_of_single_iterations(seed, policy):
    load = scene(seed)
    single, many = run(load, policy, leaps=False), run(load, policy)
    for plain, leapt in zip(single.fates, many.fates, strict=True):
        assert (
            replace(plain, **dict.fromkeys(TIMES, nan)) == replace(leapt, **dict.fromkeys(TIMES, nan)) or plain == leapt
        )
        assert [getattr(plain, name) for name in TIMES] == pytest.approx(
            [getattr(leapt, name) for name in TIMES], nan_ok=True
        )
    assert (single.iterations, single.generated, single.recomputed) == (
        many.iterations,
        many.generated,
        many.recomputed,
    )
    assert (single.seconds, single.batch) == pytest.approx((many.seconds, many.batch))
    assert single.safety == many.safety and single.swapped == many.swapped


@given(seeds, policies)
def test_the_fates_are_what_a_plain_device_makes_of_the_decisions(seed, policy):
    load, preempted = scene(seed), []
    device, sequences = Device(load.memory), []

    def observe(now, step_input, plan, scheduler):
        assert set(step_input.finished) == {id for id in makers() if device.running[id].made == load.lengths[id]}
        device.last = device.carry_out(step_input, plan)
        compare(scheduler, device)
        preempted.extend([*plan.offloaded, *plan.discarded])
        if device.last or plan.prefill_chunks:
            sequences.append(len(device.running) - len(plan.stalled))

    def makers() -> list[int]:
        return getattr(device, "last", [])

    result = run(load, policy, leaps=False, observe=observe)
    for fate in result.fates:
        last = device.running.get(fate.id)  # ends of the last iteration are not reported any more
        assert fate.generated == (last.made if last else device.made[fate.id])
        assert fate.generated == load.lengths[fate.id] or fate.dropped == device.ended[fate.id] == "late"
        assert fate.preemptions == preempted.count(fate.id)
    assert result.generated == sum(fate.generated for fate in result.fates)
    assert result.iterations == len(sequences) and result.batch == pytest.approx(np.mean(sequences))


def test_one_prompt_takes_its_reading_and_a_token_an_iteration():
    steps = LinearCost(1.0, 0.1, 0.01, 0.001, 0.0)
    result = simulate([prompt(7, 5, 8, arrival=3.0)], {7: 3}, Rules("paged", 64), Memory(8, 4), steps)
    reading = 1.0 + 0.1 * 5 + 0.01 + 0.001 * 5
    more = 2 * (1.0 + 0.1 + 0.01) + 0.001 * (6 + 7)
    assert result.fates == (Fate(7, 3.0, 3.0, 3.0 + reading, result.fates[0].ended, 5, 3),)
    assert result.seconds == pytest.approx(reading + more) and result.fates[0].ended == pytest.approx(
        3.0 + result.seconds
    )
    assert (result.iterations, result.batch, result.generated) == (3, 1.0, 3)


def test_what_goes_to_the_host_and_back_takes_its_time():
    slow, quick = (LinearCost(1.0, 0.0, 0.0, 0.0, 0.0, swap) for swap in (0.1, 0.0))
    load = [prompt(0, 4, 60, bucket=6)], {0: 30}, Rules("s3", 64), Memory(16, 4, host_pages=16)
    moved, free = (simulate(*load, steps) for steps in (slow, quick))
    assert moved.swapped == 10 + 16 + 28 and moved.fates[0].preemptions == 3
    assert moved.seconds - free.seconds == pytest.approx(0.1 * 2 * moved.swapped)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deadline_cuts_a_leap_short(policy):
    """With iterations of 1 second, a deadline of 5.5 s has first passed at 6 s."""
    steps, request = LinearCost(1.0, 0.0, 0.0, 0.0, 0.0), prompt(0, 4, 50, deadline=5.5, exact=50)
    result = simulate([request], {0: 50}, Rules(policy, 64), Memory(20, 4), steps)
    assert result.fates[0].ended == 6.0 and result.fates[0].generated == 6 and result.fates[0].dropped == "late"


@pytest.mark.parametrize(
    ("prompts", "lengths", "pages", "field"),
    [
        ([prompt(0)], {1: 4}, 8, "length of prompt 0 is 0"),
        ([prompt(0)], {0: -4}, 8, "length of prompt 0 is -4"),
        ([prompt(0), prompt(0, arrival=9.0)], {0: 2}, 8, "ids is 1 for 2 prompts"),
        ([prompt(0, arrival=inf)], {0: 2}, 8, "arrival is inf"),
        ([prompt(0, arrival=nan)], {0: 2}, 8, "arrival is nan"),
        ([prompt(0, 4, 8)], {0: 2}, 2, "at most what the cache holds, 8"),
    ],
)
def test_what_cannot_be_simulated_is_refused(prompts, lengths, pages, field):
    with pytest.raises(InputError, match=field):
        simulate(prompts, lengths, Rules("default", 64), Memory(pages, 4), STEPS)


def test_a_summary_is_what_its_words_say():
    fates = (
        Fate(0, 0.0, 1.0, 1.5, 5.0, 10, 4, 2),
        Fate(1, 1.0, 1.0, 2.0, 3.0, 20, 2),
        Fate(2, 2.0, nan, nan, 4.0, 99, 0, 0, "late"),
    )
    figures = summary(Run(fates, 10.0, 7, 1.5, generated=6, recomputed=4, swapped=0, safety=0.0))
    assert (figures.finished, figures.dropped, figures.preemptions, figures.batch) == (2, 1, 2, 1.5)
    assert (figures.sequences_per_second, figures.tokens_per_second) == (0.2, 0.6)
    assert (figures.completion, figures.p50, figures.per_token) == (3.5, 3.5, 1.0)
    assert figures.p99 == pytest.approx(4.97) and figures.recomputed == 4 / (6 + 4 + 30)


def test_a_run_of_two_is_told_to_the_last_token_whether_iterations_are_taken_at_once_or_not():
    """Iterations of a second; the second prompt arrives in the middle of the fifth, and is read in the next."""
    second, prompts = (
        LinearCost(1.0, 0.0, 0.0, 0.0, 0.0),
        [prompt(1, 4, 20, arrival=14.5), prompt(0, 4, 20, arrival=10.0)],
    )
    seen = []

    def observe(now, step_input, plan, scheduler):
        seen.append((now, [each.id for each in step_input.arrived], step_input.finished, plan.admitted))

    for leaps, times in ((False, [10.0 + i for i in range(10)]), (True, [10.0, 15.0, 18.0, 19.0])):
        seen.clear()
        result = simulate(prompts, {0: 8, 1: 4}, Rules("paged", 64), Memory(20, 4), second, leaps, observe)
        assert result.fates == (Fate(0, 10.0, 10.0, 11.0, 18.0, 4, 8), Fate(1, 14.5, 15.0, 16.0, 19.0, 4, 4))
        assert (result.seconds, result.iterations, result.generated) == (9.0, 9, 12)
        assert (result.batch, result.recomputed, result.swapped, result.safety) == ((5 + 2 * 3 + 1) / 9, 0, 0, 1.0)
        assert [now for now, *_ in seen] == times
        assert seen[0] == (10.0, [0], (), (0,)) and (15.0, [1], (), (1,)) in seen
        assert seen[-2:] == [(18.0, [], (0,), ()), (19.0, [], (1,), ())]


def test_a_summary_of_nothing_has_no_times_and_one_of_an_instant_divides_by_nothing():
    figures = summary(simulate([], {}, Rules("default", 64), Memory(8, 4), STEPS))
    assert (figures.preemptions, figures.recomputed, figures.sequences_per_second) == (0, 0.0, 0.0)
    assert all(isnan(x) for x in (figures.completion, figures.p50, figures.p99, figures.per_token, figures.batch))
    instant = summary(Run((Fate(0, 1.0, 1.0, 1.0, 1.0, 4, 2),), 0.0, 1, 1.0, 2, 0, 0, 0.0))
    assert (instant.finished, instant.dropped, instant.completion, instant.p99, instant.per_token) == (1, 0, 0, 0, 0)
    assert instant.sequences_per_second == 1 / 1e-12
