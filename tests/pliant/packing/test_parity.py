"""A journal of packing comes back from its lines unchanged, and its inputs give its plans again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Chunk, Memory, Prompt, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import simulate
from tests.fixtures.packing.samples import STEPS, play, policies, prompt, scene, seeds

ids = st.integers(0, 2**53)
some = st.lists(ids, max_size=4).map(tuple)
finite = st.floats(allow_nan=False, allow_infinity=False)
prompts = st.builds(
    Prompt, ids, finite, ids, ids, st.lists(finite, min_size=8, max_size=8).map(tuple), ids,
    st.floats(allow_nan=False), finite, st.booleans(), ids,
)  # fmt: skip
rounds = st.builds(StepInput, st.lists(prompts, max_size=2).map(tuple), some, some)
dropped = st.lists(st.tuples(ids, st.text(max_size=9)), max_size=2).map(tuple)
chunks = st.lists(st.builds(Chunk, ids, ids), max_size=3).map(tuple)
decisions = st.builds(StepPlan, dropped, some, some, some, chunks, some)


@given(finite, rounds, decisions)
def test_an_entry_comes_back_from_its_line_to_the_last_bit(now, step_input, plan):
    line = encode(now, step_input, plan)
    assert decode(line) == (now, step_input, plan) and "\n" not in line
    assert repr(decode(line)) == repr((now, step_input, plan))


@given(seeds, policies)
def test_a_simulated_journal_replays_where_no_iteration_is_left_out(seed, policy):
    load, journal = scene(seed), []

    def note(now, step_input, plan, scheduler):
        journal.append((now, step_input, plan))

    simulate(load.prompts, load.lengths, load.rules(policy), load.memory, STEPS, leaps=False, observe=note)
    assert replay(PackingScheduler(load.rules(policy), load.memory), journal) == journal


def test_the_comparison_fails_under_other_rules():
    load = scene(7, most=30, least=25)
    _, journal = play(load, PackingScheduler(load.rules("default"), load.memory))
    for other in ("paged", "s3", "orca"):
        fresh = PackingScheduler(load.rules(other), load.memory)
        with pytest.raises((AssertionError, KeyError, InputError)):
            assert replay(fresh, journal) == journal


def test_what_is_decided_follows_from_the_times_too():
    scheduler, late = (PackingScheduler(Rules("default", 64), Memory(8, 4)) for _ in range(2))
    journal = [(0.0, StepInput((prompt(1, deadline=1.0),)), StepPlan()), (0.5, StepInput(), StepPlan())]
    on_time = replay(scheduler, journal)
    shifted = replay(late, [(now + 3.0, step_input, plan) for now, step_input, plan in journal])
    assert [plan for *_, plan in on_time] != [plan for *_, plan in shifted]
    assert replace(shifted[0][2]).dropped == ((1, "late"),)
