"""Pliant's own engine carries plans out to the page, and makes what plain `generate` makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pliant.errors import InputError, SchedulerError
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine, StepResult, SwapSpace
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from tests.fixtures.packing.generators import HOSTED, SCARCE, generated, prompts, tiny_generator

SIZES: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.4,
}  # fmt: skip

DECODE = StepPlan()


def paged(memory: Memory = HOSTED, sampling: bool = True) -> PagedEngine:
    torch.set_num_threads(1)
    return PagedEngine(load_generator(tiny_generator()), memory, sampling)


class Desk:
    """An engine with what it has made so far."""

    def __init__(self, engine: PagedEngine) -> None:
        self.engine = engine
        self.tokens: dict[int, list[int]] = {}

    def go(self, plan: StepPlan = DECODE) -> list[int]:
        """Run an iteration. Returns the ids that got a token."""
        self.engine.carry_out(plan)
        step = self.engine.step()
        self.engine.check()
        for id, token, _ in step.tokens:
            self.tokens.setdefault(id, []).append(token)
        return sorted(id for id, *_ in step.tokens)

    def read(self, texts: list[tuple[int, ...]], limit: int) -> None:
        """Read all texts at once and generate `limit` tokens of each."""
        for id, ids in enumerate(texts):
            self.engine.add(id, ids, limit)
        chunks = tuple(Chunk(id, len(ids)) for id, ids in enumerate(texts))
        self.go(StepPlan(admitted=tuple(range(len(texts))), prefill_chunks=chunks))
        for _ in range(limit - 1):
            self.go()


def test_exactly_the_chosen_leave_and_come_back_with_their_pages() -> None:
    desk, texts = Desk(paged()), prompts(3, seed=1)
    engine = desk.engine
    for id, ids in enumerate(texts):
        engine.add(id, ids, 12)
    first = len(texts[0]) - 1
    chunks = (Chunk(0, first), Chunk(1, len(texts[1])))
    admission = StepPlan(admitted=(0, 1, 2), prefill_chunks=chunks)
    assert desk.go(admission) == [1], "0 has a token to read, 2 none of its own yet"
    assert desk.go(StepPlan(prefill_chunks=(Chunk(0, 1),))) == [0, 1]
    assert desk.go(StepPlan(prefill_chunks=(Chunk(2, len(texts[2])),), stalled=(0,))) == [1, 2]
    pages = [engine.pages_of(id) for id in range(3)]
    assert pages[:2] == [SCARCE.need(len(texts[0])), SCARCE.need(len(texts[1]) + 2)]
    assert desk.go(StepPlan(offloaded=(1,))) == [0, 2]
    assert (engine.pages_of(1), engine.swap_space.used) == (0, pages[1])
    assert desk.go(StepPlan(discarded=(0,))) == [2]
    assert engine.pages_of(0) == 0
    assert desk.go(StepPlan(admitted=(1,), stalled=(1,))) == [2], "back, but not in this iteration"
    assert (engine.pages_of(1), engine.swap_space.used) == (pages[1], 0)
    assert desk.go(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, len(texts[0]) + 2),))) == [0, 1, 2]
    for _ in range(9):
        desk.go()
    assert engine.pages_used == 0
    whole = generated(replace(tiny_generator(), ends=(63,)), texts, limit=12)
    assert [tuple(desk.tokens[id]) for id in range(3)] == whole
    assert not any(63 in text for text in whole), "nothing ended before its limit"


def test_who_is_dropped_or_cancelled_leaves_nothing_behind() -> None:
    engine, texts = paged(), prompts(3, seed=1)
    for id, ids in enumerate(texts):
        engine.add(id, ids, 12)
    chunks = tuple(Chunk(id, len(texts[id])) for id in (0, 2))
    engine.carry_out(StepPlan(admitted=(0, 2), prefill_chunks=chunks))
    engine.cancel(2)
    step = engine.step()
    assert [id for id, *_ in step.tokens] == [0], "who is cancelled between plan and iteration does not run"
    engine.carry_out(StepPlan(offloaded=(0,)))
    assert engine.swap_space.used > 0
    engine.carry_out(StepPlan(dropped=((0, "late"), (1, "late"))))
    assert (engine.pages_used, engine.swap_space.used, engine.running) == (0, 0, 0)
    engine.cancel(9)
    engine.check()
    assert engine.step() == StepResult((), (), ((0, 0),), 0)


def test_pages_that_are_not_free_are_our_own_fault() -> None:
    engine = paged(replace(SCARCE, pages=2))
    engine.add(0, range(12), 3)
    with pytest.raises(SchedulerError, match="3 pages for sequence 0"):
        engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, 12),)))


@pytest.mark.parametrize(
    "model",
    [
        lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
        lambda: GemmaForCausalLM(GemmaConfig(**SIZES, head_dim=8)),
        lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
        lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=96)),
    ],
    ids=["norms of heads", "tied, soft embedding", "grouped heads", "learned positions"],
)
def test_other_architectures_make_what_generate_makes(model) -> None:
    torch.manual_seed(3)
    plain = model().eval()
    texts = prompts(2, seed=7)
    whole = []
    for ids in texts:
        prompt = torch.tensor([ids])
        options: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        whole.append(plain.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[0, len(ids) :].tolist())
    desk = Desk(PagedEngine(plain, HOSTED))
    desk.read(texts, limit=8)
    assert [desk.tokens[id] for id in range(2)] == whole


def test_a_model_with_a_window_is_refused() -> None:
    with pytest.raises(InputError, match="full in every layer"):
        PagedEngine(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)).eval(), SCARCE)


def test_a_model_that_attends_by_itself_is_refused() -> None:
    config = GPTJConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=96, rotary_dim=8)
    with pytest.raises(InputError, match="called by 0 of 8 heads"):
        PagedEngine(GPTJForCausalLM(config).eval(), SCARCE)


def test_sequences_use_the_same_pages_where_the_plan_says_so() -> None:
    engine = paged(Memory(pages=24, page_tokens=4, step_tokens=64, sequences=8))
    desk, common = Desk(engine), tuple(range(9))
    texts = [(*common, 30), (*common, 31, 32), (*common, 33)]
    for id, ids in enumerate(texts):
        engine.add(id, ids, 4)
    first = (Chunk(0, 10, (), ((0, 700), (1, 701))), Chunk(1, 3, (700, 701)))
    assert desk.go(StepPlan(admitted=(0, 1), prefill_chunks=first)) == [0, 1], "taken in the iteration that reads it"
    assert (engine.pages_of(0), engine.pages_of(1), engine.pages_used) == (3, 3, 4)
    for _ in range(3):
        desk.go()
    assert (engine.pages_used, engine.running) == (0, 0)
    assert desk.go(StepPlan(admitted=(2,), prefill_chunks=(Chunk(2, 2, (700, 701)),))) == [2], "known without a user"
    for _ in range(3):
        desk.go()
    assert [tuple(desk.tokens[id]) for id in range(3)] == generated(
        replace(tiny_generator(), ends=(63,)), texts, limit=4
    )
    assert len(engine._free) == 22
    engine.carry_out(StepPlan(forgotten=(700, 701)))
    assert len(engine._free) == 24
    engine.check()


def test_a_page_in_use_is_never_forgotten() -> None:
    engine = paged()
    engine.add(0, range(6), 4)
    engine.carry_out(StepPlan(admitted=(0,), prefill_chunks=(Chunk(0, 6, (), ((0, 7),)),)))
    with pytest.raises(SchedulerError, match="is in use"):
        engine.carry_out(StepPlan(forgotten=(7,)))


PAGES, HOST = 12, 6


def space() -> tuple[list[torch.Tensor], SwapSpace]:
    views = [torch.arange(PAGES * 2.0).reshape(PAGES, 2), torch.arange(PAGES * 3.0).reshape(PAGES, 3)]
    return views, SwapSpace(views, HOST)


@given(st.lists(st.lists(st.integers(0, PAGES - 1), min_size=1, max_size=3, unique=True), max_size=8), st.randoms())
def test_what_was_swapped_out_comes_back_in_order_into_other_pages(sequences, random):
    views, swapped = space()
    kept: dict[int, list[torch.Tensor]] = {}
    for id, pages in enumerate(sequences):
        while sum(len(rows[0]) for rows in kept.values()) + len(pages) > HOST:
            back = random.choice(sorted(kept))
            rows = kept.pop(back)
            to = random.sample(range(PAGES), len(rows[0]))
            swapped.swap_in(back, to)
            assert all(torch.equal(view[to], row) for view, row in zip(views, rows, strict=True))
            assert back not in swapped
        kept[id] = [view[pages].clone() for view in views]
        swapped.swap_out(id, pages)
        for view in views:
            view[pages] = -1.0 - id
        assert id in swapped and swapped.used == sum(len(rows[0]) for rows in kept.values())
        swapped.check()
