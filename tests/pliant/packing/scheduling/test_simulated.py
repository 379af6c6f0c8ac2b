"""Leaps give the fates of single iterations; both give what a plain device makes of the decisions; figures by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, nan

import numpy as np
import pytest
from hypothesis import given

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearSteps
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
    one, many = run(load, policy, leaps=False), run(load, policy)
    for plain, leapt in zip(one.fates, many.fates, strict=True):
        assert (
            replace(plain, **dict.fromkeys(TIMES, nan)) == replace(leapt, **dict.fromkeys(TIMES, nan)) or plain == leapt
        )
        assert [getattr(plain, name) for name in TIMES] == pytest.approx(
            [getattr(leapt, name) for name in TIMES], nan_ok=True
        )
    assert (one.iterations, one.generated, one.recomputed) == (many.iterations, many.generated, many.recomputed)
    assert (one.seconds, one.batch) == pytest.approx((many.seconds, many.batch))
    assert one.level == many.level and one.swapped == many.swapped


@given(seeds, policies)
def test_the_fates_are_what_a_plain_device_makes_of_the_decisions(seed, policy):
    load, preempted = scene(seed), []
    device, sequences = Device(load.memory), []

    def observe(now, round_, decision, packer):
        assert set(round_.finished) == {id for id in makers() if device.running[id].made == load.lengths[id]}
        device.last = device.carry_out(round_, decision)
        compare(packer, device)
        preempted.extend([*decision.offloaded, *decision.discarded])
        if device.last or decision.chunks:
            sequences.append(len(device.running))

    def makers() -> list[int]:
        return getattr(device, "last", [])

    found = run(load, policy, leaps=False, observe=observe)
    for fate in found.fates:
        last = device.running.get(fate.id)  # who finished in the last iteration was not told any more
        assert fate.made == (last.made if last else device.made[fate.id])
        assert fate.made == load.lengths[fate.id] or fate.dropped == device.ended[fate.id] == "late"
        assert fate.preemptions == preempted.count(fate.id)
    assert found.generated == sum(fate.made for fate in found.fates)
    assert found.iterations == len(sequences) and found.batch == pytest.approx(np.mean(sequences))


@given(seeds, policies)
def test_what_happens_to_a_prompt_happens_in_order(seed, policy):
    load = scene(seed)
    for fate, one in zip(run(load, policy).fates, sorted(load.prompts, key=lambda one: one.id), strict=True):
        assert (fate.id, fate.arrival, fate.prompt) == (one.id, one.arrival, one.tokens)
        if fate.dropped:
            assert fate.ended > one.deadline and isnan(fate.first) == (fate.made == 0)
        else:
            assert fate.arrival <= fate.started < fate.first <= fate.ended


def test_one_prompt_takes_its_reading_and_a_token_an_iteration():
    steps = LinearSteps(1.0, 0.1, 0.01, 0.001, 0.0)
    found = simulate([prompt(7, 5, 8, arrival=3.0)], {7: 3}, Rules("paged", 64), Memory(8, 4), steps)
    reading = 1.0 + 0.1 * 5 + 0.01 + 0.001 * 5
    more = 2 * (1.0 + 0.1 + 0.01) + 0.001 * (6 + 7)
    assert found.fates == (Fate(7, 3.0, 3.0, 3.0 + reading, found.fates[0].ended, 5, 3),)
    assert found.seconds == pytest.approx(reading + more) and found.fates[0].ended == pytest.approx(3.0 + found.seconds)
    assert (found.iterations, found.batch, found.generated) == (3, 1.0, 3)


def test_a_prompt_longer_than_an_iteration_is_read_in_several():
    steps = LinearSteps(1.0, 0.1, 0.0, 0.0, 0.0)
    found = simulate([prompt(0, 10, 8)], {0: 1}, Rules("default", 64), Memory(8, 4, step_tokens=4), steps)
    assert found.iterations == 3 and found.seconds == pytest.approx(3.0 + 0.1 * 10)


def test_what_goes_to_the_host_and_back_takes_its_time():
    slow, quick = (LinearSteps(1.0, 0.0, 0.0, 0.0, 0.0, swap) for swap in (0.1, 0.0))
    load = [prompt(0, 4, 60, bucket=6)], {0: 30}, Rules("s3", 64), Memory(16, 4, host_pages=16)
    moved, free = (simulate(*load, steps) for steps in (slow, quick))
    assert moved.swapped == 10 + 16 + 28 and moved.fates[0].preemptions == 3
    assert moved.seconds - free.seconds == pytest.approx(0.1 * 2 * moved.swapped)


def test_a_device_that_has_nothing_to_do_waits_for_the_next_arrival():
    found = simulate([prompt(0), prompt(1, arrival=100.0)], {0: 2, 1: 2}, Rules("default", 64), Memory(8, 4), STEPS)
    assert found.fates[0].ended < 1 and found.fates[1].started == 100.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_deadline_cuts_a_leap_short(policy):
    """Iterations of 1 second: at 5.5 s the deadline has passed for the first time at 6."""
    steps, one = LinearSteps(1.0, 0.0, 0.0, 0.0, 0.0), prompt(0, 4, 50, deadline=5.5, exact=50)
    found = simulate([one], {0: 50}, Rules(policy, 64), Memory(20, 4), steps)
    assert found.fates[0].ended == 6.0 and found.fates[0].made == 6 and found.fates[0].dropped == "late"


def test_an_output_ends_at_its_limit():
    assert simulate([prompt(0, 4, 8)], {0: 99}, Rules("default", 64), Memory(8, 4), STEPS).fates[0].made == 8


@pytest.mark.parametrize("lengths", [{}, {0: 0}, {0: -4}])
def test_a_prompt_without_a_length_is_refused(lengths):
    """A length of 0 was never reached: the simulation went on for ever."""
    with pytest.raises(InputError, match="length of prompt 0"):
        simulate([prompt(0)], lengths, Rules("default", 64), Memory(8, 4), STEPS)


def test_two_prompts_of_one_id_are_refused():
    with pytest.raises(InputError, match="all different"):
        simulate([prompt(0), prompt(0, arrival=9.0)], {0: 2}, Rules("default", 64), Memory(8, 4), STEPS)


@pytest.mark.parametrize("arrival", [inf, nan])
def test_an_arrival_at_no_time_is_refused(arrival):
    """NaN never came, and was waited for for ever."""
    with pytest.raises(InputError, match="arrival"):
        simulate([prompt(0, arrival=arrival)], {0: 2}, Rules("default", 64), Memory(8, 4), STEPS)


def test_a_prompt_that_can_never_run_is_refused():
    with pytest.raises(InputError, match="at most what the cache holds, 8"):
        simulate([prompt(0, 4, 8)], {0: 2}, Rules("default", 64), Memory(2, 4), STEPS)


def test_nothing_to_do_is_a_run_of_nothing():
    found = simulate([], {}, Rules("default", 64), Memory(8, 4), STEPS)
    assert found.fates == () and found.seconds == found.iterations == 0
    told = summary(found)
    assert told.finished == told.dropped == told.tokens_per_second == 0 and isnan(told.completion)


def test_a_summary_is_what_its_words_say():
    fates = (
        Fate(0, 0.0, 1.0, 1.5, 5.0, 10, 4, 2),
        Fate(1, 1.0, 1.0, 2.0, 3.0, 20, 2),
        Fate(2, 2.0, nan, nan, 4.0, 99, 0, 0, "late"),
    )
    told = summary(Run(fates, 10.0, 7, 1.5, generated=6, recomputed=4, swapped=0, level=0.0))
    assert (told.finished, told.dropped, told.preemptions, told.batch) == (2, 1, 2, 1.5)
    assert (told.sequences_per_second, told.tokens_per_second) == (0.2, 0.6)
    assert (told.completion, told.p50, told.per_token) == (3.5, 3.5, 1.0)
    assert told.p99 == pytest.approx(4.97) and told.recomputed == 4 / (6 + 4 + 30)
