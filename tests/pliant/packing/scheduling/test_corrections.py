"""An engine that does otherwise than planned, or that works an iteration ahead: the books follow what it reports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from pliant.errors import InputError
from pliant.packing.scheduling.journal import decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Correction, Memory, StepInput
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.samples import SECONDS, Device, Scene, compare, policies, prompt, scene, seeds


def willful(load: Scene, scheduler: PackingScheduler, rng: np.random.Generator):
    """Play a scene on a device that now and then undoes what a sequence did in an iteration, and reports it."""
    device, journal, coming = Device(load.memory), [], sorted(load.prompts, key=lambda each: each.arrival)
    finished, corrected, now = (), (), coming[0].arrival
    while coming or device.waiting or device.running:
        arrived = tuple(each for each in coming if each.arrival <= now)
        coming = coming[len(arrived) :]
        step_input = StepInput(arrived, finished, (), corrected)
        plan = scheduler.handle(step_input, now)
        journal.append((now, step_input, plan))
        makers = device.carry_out(step_input, plan)
        compare(scheduler, device)
        corrected = tuple(_undo(device, plan, rng)) if rng.random() < 0.3 else ()
        undone = {correction.id for correction in corrected}
        finished = tuple(id for id in makers if id not in undone and device.running[id].made == load.lengths[id])
        now += SECONDS
        assert len(journal) < 20_000, "no end of it"
    scheduler.check()
    return device, journal


def _undo(device: Device, plan, rng: np.random.Generator):
    """Take back what one sequence did: it was left out, or read fewer tokens than it should."""
    able = [id for id, held in device.running.items() if id not in plan.stalled]
    if not able:
        return
    id = int(rng.choice(able))
    held, chunks = device.running[id], {chunk.id: chunk.tokens for chunk in plan.prefill_chunks}
    undone = int(rng.integers(1, chunks.get(id, 1) + 1))
    made = held.made - (not held.unread)
    held.unread = held.unread + undone if id in chunks else 0
    held.cached, held.made = held.cached - undone, made
    yield Correction(id, held.cached, held.unread, held.made)


@given(seeds, policies)
def test_whatever_an_engine_leaves_out_every_prompt_ends_and_the_books_balance(seed, policy):
    load = scene(seed)
    device, journal = willful(load, PackingScheduler(load.rules(policy), load.memory), np.random.default_rng(seed))
    assert device.ended.keys() == load.lengths.keys()
    assert replay(PackingScheduler(load.rules(policy), load.memory), journal) == journal
    assert [decode(encode(*entry)) for entry in journal] == journal


def test_pages_that_the_engine_shares_count_once():
    """The engine cannot have evicted them: the second sequence found them where the books had given them up."""
    scheduler = PackingScheduler(Rules("default", 64), Memory(64, 4))
    scheduler.handle(StepInput((prompt(1, 13, 20, exact=9, beginnings=(11, 12, 13)),)), 0.0)
    alone = scheduler.pages_used
    scheduler.handle(StepInput((prompt(2, 13, 20, exact=9, beginnings=(11, 12, 13)),)), 0.1)
    scheduler.handle(StepInput(corrected=(Correction(2, 13, 0, 1),)), 0.2)
    scheduler.check()
    assert scheduler.pages_used == alone + 1
    scheduler.handle(StepInput(cancelled=(1, 2)), 0.4)
    scheduler.check()
    assert scheduler.pages_used == 0


def test_what_the_engine_had_read_already_is_not_read_again():
    scheduler = PackingScheduler(Rules("default", 64), Memory(64, 4, step_tokens=4))
    plan = scheduler.handle(StepInput((prompt(1, 13, 20, beginnings=(11, 12, 13)),)), 0.0)
    assert plan.prefill_chunks[0].tokens == 4
    plan = scheduler.handle(StepInput(corrected=(Correction(1, 12, 1, 0),)), 0.1)
    assert plan.prefill_chunks[0].tokens == 1
    scheduler.check()
    assert scheduler.pages_of(1) == 4


@pytest.mark.parametrize(
    "wrong", [Correction(7, 4, 0, 1), Correction(1, 6, 0, 1), Correction(1, -1, 0, 1), Correction(1, 2, 4, 1)]
)
def test_a_correction_that_cannot_be_changes_nothing(wrong):
    scheduler, other = (PackingScheduler(Rules("paged", 64), Memory(16, 4)) for _ in range(2))
    for each in (scheduler, other):
        each.handle(StepInput((prompt(1, 4, 20),)), 0.0)
    with pytest.raises(InputError):
        scheduler.handle(StepInput(corrected=(wrong,)), 0.1)
    scheduler.check()
    assert scheduler.handle(StepInput(), 0.1) == other.handle(StepInput(), 0.1)
