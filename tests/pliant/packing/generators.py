"""A tiny random Llama, what plain `generate` makes of prompts with it, and a desk that collects an engine's reports."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pliant.packing.artifact import Generator
from pliant.packing.forecast import LEVELS
from pliant.packing.model import load_generator, weights
from pliant.packing.policy import Rules
from pliant.packing.request import Memory, Prompt
from pliant.packing.runtime import Engine
from pliant.packing.submission import Progress, Submission

CONTEXT, VOCABULARY, LIMIT = 96, 64, 40
ENDS = (7, 21)
SCARCE = Memory(pages=24, page_tokens=4, step_tokens=32, sequences=16)  # a sequence at its limit takes up to 15
HOSTED = Memory(pages=24, page_tokens=4, host_pages=120, step_tokens=32, sequences=16)


@cache
def tiny_generator(seed: int = 0) -> Generator:
    """Weights are large, so that the best score stands clear of the next."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, initializer_range=0.4, tie_word_embeddings=False,
    )  # fmt: skip
    kept = weights(LlamaForCausalLM(config))
    return Generator("tiny", config.to_json_string(), "", "", CONTEXT, ENDS, "none", kept)


def prompts(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(int(x) for x in rng.integers(0, VOCABULARY, rng.integers(3, 18))) for _ in range(count)]


def generated(generator: Generator, texts: Sequence[tuple[int, ...]], limit: int = LIMIT) -> list[tuple[int, ...]]:
    """By plain `generate`, one by one, greedy."""
    model = load_generator(generator)
    told: dict[str, Any] = {"max_new_tokens": limit, "do_sample": False, "eos_token_id": list(generator.ends)}
    found = []
    for ids in texts:
        one = torch.tensor([ids])  # the mask is told, or a padding token in the prompt would be masked
        found.append(model.generate(one, attention_mask=torch.ones_like(one), pad_token_id=0, **told)[0, len(ids) :])
    return [tuple(output.tolist()) for output in found]


def submission(id: int, ids: tuple[int, ...], limit: int = LIMIT, exact: int = 0, **more: Any) -> Submission:
    """The forecast is far too short, so that what trusts it must preempt."""
    prompt = Prompt(id, 0.0, len(ids), limit, tuple(4.0 + level for level in LEVELS), bucket=6, exact=exact)
    return Submission(prompt, ids, **more)


class Desk:
    """Collects reports; `wait` until so many texts have ended."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}
        self.last: dict[int, Progress] = {}
        self._changed = threading.Condition()

    def deliver(self, news: list[Progress]) -> None:
        with self._changed:
            for one in news:
                self.tokens.setdefault(one.id, []).extend(one.tokens)
                assert not self.ended(one.id), f"{one.id} is told after its end"
                self.last[one.id] = one
            self._changed.notify_all()

    def ended(self, id: int) -> bool:
        return id in self.last and bool(self.last[id].finished)

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: sum(map(self.ended, self.last)) >= count, 300), self.last

    def wait_tokens(self, id: int, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.tokens.get(id, ())) >= count, 300), self.last

    def texts(self) -> list[tuple[int, ...]]:
        return [tuple(self.tokens[id]) for id in sorted(self.tokens)]

    def preemptions(self) -> int:
        return sum(one.preemptions for one in self.last.values())


@contextmanager
def running(memory: Memory, rules: Rules | None, **more: Any) -> Iterator[tuple[Engine, Desk]]:
    """An engine of the tiny generator (or of the one given) and what it reports."""
    desk = Desk()
    engine = Engine(more.pop("generator", None) or tiny_generator(), memory, rules, desk.deliver, **more)
    engine.start()
    try:
        yield engine, desk
    finally:
        engine.stop()
