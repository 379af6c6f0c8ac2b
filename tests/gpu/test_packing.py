"""On each device: the engine's texts are those of plain `generate` on the CPU, also after preemption, and pages balance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.packing.engine.submission import Sampling
from pliant.packing.scheduling.policy import Rules
from tests.fixtures.packing.generators import (
    CONTEXT,
    HOSTED,
    LIMIT,
    SCARCE,
    generated,
    prompts,
    running,
    submission,
    tiny_generator,
)

COUNT = 10
SAMPLED = Sampling(temperature=0.9, top_p=0.95, top_k=40)


def rules_of(policy: str) -> Rules | None:
    """Return rules with so little safety that all preempt; None for "fifo", transformers' own scheduler."""
    return None if policy == "fifo" else Rules(policy, CONTEXT, safety=-2.0, recalibrate=False)


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    return generated(tiny_generator(), prompts(COUNT))


@pytest.mark.parametrize("memory", [SCARCE, HOSTED], ids=["discarding", "offloading"])
@pytest.mark.parametrize("policy", ["default", "fifo"])
def test_greedy_texts_are_those_of_plain_generate(device, policy, memory, expected):
    with running(memory, rules_of(policy), margin=0.0, device=device) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, exact=len(expected[id])))
        desk.wait(COUNT)
        assert desk.texts() == expected
        engine.check()
        status = engine.status()
        assert status.preemptions > 0 and not status.error
        assert (status.running, status.waiting, status.pages_used, status.host_pages_used) == (0, 0, 0, 0)


def test_a_seeded_text_is_the_same_alone_and_in_company(device):
    texts = prompts(4)
    with running(SCARCE, rules_of("paged"), device=device) as (engine, desk):
        for id, ids in enumerate(texts):
            engine.submit(submission(id, ids, sampling=replace(SAMPLED, seed=id)))
        desk.wait(len(texts))
        for id, ids in enumerate(texts, len(texts)):
            engine.submit(submission(id, ids, sampling=replace(SAMPLED, seed=id - len(texts))))
            desk.wait(id + 1)
        assert desk.texts()[: len(texts)] == desk.texts()[len(texts) :]


def test_cancelled_texts_leave_their_pages_to_the_others(device, expected):
    with running(SCARCE, rules_of("paged"), device=device) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, force=LIMIT if id < 4 else 0))
        for id in range(4):
            engine.cancel(id)
        desk.wait(COUNT)
        assert [tuple(desk.tokens[id]) for id in range(4, COUNT)] == expected[4:]
        engine.check()
        assert engine.status().pages_used == 0
