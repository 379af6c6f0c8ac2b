"""On each device: the engine's texts are those of plain `generate` on the CPU, also after preemption, and pages balance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pliant.packing.engine.page_attention import Case, PageBatch, PageCache, page_cache
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


def rules_of(policy: str) -> Rules:
    """Return rules with so little safety that all preempt."""
    return Rules(policy, CONTEXT, safety=-2.0, recalibrate=False)


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    return generated(tiny_generator(), prompts(COUNT))


@pytest.mark.parametrize("memory", [SCARCE, HOSTED], ids=["discarding", "offloading"])
def test_greedy_texts_are_those_of_plain_generate(device, memory, expected):
    with running(memory, rules_of("default"), device=device) as (engine, desk):
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


@pytest.mark.gpu
@pytest.mark.parametrize("groups", [8, 4])
def test_attention_in_half_precision_is_one_call_for_all_sequences_and_is_the_references(groups):
    case = Case(16, groups, 1, 64, torch.bfloat16, torch.device("cuda"))
    cache, plain = page_cache(1, 64, case), PageCache(1, 64, case)
    assert type(cache) is not PageCache
    rng = np.random.default_rng(0)
    queries, lengths = np.array([1, 17, 40, 1]), np.array([1, 17, 100, 257])
    need = -(-lengths // 16)
    table, pages = np.zeros((4, need.max()), np.int32), rng.permutation(64)
    for row, (first, count) in enumerate(zip(np.cumsum(need) - need, need, strict=True)):
        table[row, :count] = pages[first : first + count]
    starts, rows = np.concatenate([[0], np.cumsum(queries)]), np.repeat(np.arange(4), queries)
    positions = np.concatenate([np.arange(end - new, end) for end, new in zip(lengths, queries, strict=True)])
    slots = table[rows, positions // 16].astype(np.int64) * 16 + positions % 16
    torch.manual_seed(0)
    cached = torch.randn_like(plain.tensor_L2CPGD)
    q_1HTD, k_1GTD, v_1GTD = (
        torch.randn(1, heads, len(rows), 64, device="cuda", dtype=torch.bfloat16) for heads in (8, groups, groups)
    )
    outs = []
    for each in (cache, plain):
        each.tensor_L2CPGD.copy_(cached)
        outs.append(PageBatch(starts, lengths, table, slots, each).attend(0, q_1HTD, k_1GTD, v_1GTD, None))
    torch.testing.assert_close(*outs, atol=0.02, rtol=0.02)
