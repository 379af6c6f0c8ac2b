"""Two processes on a CPU that share every layer generate the same as one, with preemptions and sampling."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from multiprocessing import Pipe

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pliant.errors import InputError, WorkerError
from pliant.packing.artifact import Generator
from pliant.packing.engine import parallel
from pliant.packing.engine.adapter import ContinuousBatchingEngine
from pliant.packing.engine.model import in_precision, load_generator, weights
from pliant.packing.engine.parallel import ParallelExecutor
from pliant.packing.engine.sampling import arguments, processors
from pliant.packing.engine.submission import Sampling
from pliant.packing.engine.tensor_parallel import check
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt, StepInput
from pliant.packing.scheduling.scheduler import PackingScheduler

MEMORY = Memory(pages=16, page_tokens=8, host_pages=8, step_tokens=32, sequences=16)
PATIENCE = 600.0  # seconds after which a group that hangs is killed
VOCABULARY = 64


def generator(kind: str = "llama", **changes) -> Generator:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,  # scores far apart, so that the order of sums cannot change the largest
    }
    config = AutoConfig.for_model(kind, **sizes | changes)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    return Generator("tiny", json.dumps(config.to_dict(), default=str), "", "", 128, (1,), "", weights(model))


@contextmanager
def two(of: Generator):
    """Run a group of two processes, which are killed by their ids if they hang."""
    with ParallelExecutor(of, MEMORY, processes=2) as group:
        others = group.others
        timer = threading.Timer(PATIENCE, lambda: [os.kill(pid, signal.SIGKILL) for pid in others])
        timer.start()
        try:
            group.enter(1)
            yield group
        finally:
            timer.cancel()


def generate(batching, policy: str, temperature: float = 0.0, count: int = 12) -> tuple[dict[int, list[int]], int]:
    """Return the tokens of each prompt and the number of preemptions. Pages are compared after every iteration."""
    rng, scheduler = np.random.default_rng(7), PackingScheduler(Rules(policy, 128), MEMORY)
    prompts, outputs = [], {}
    for id in range(count):
        ids, limit = rng.integers(2, VOCABULARY, int(rng.integers(3, 20))).tolist(), int(rng.integers(8, 40))
        prompts.append(Prompt(id, 0.0, len(ids), limit, (10.0,) * 8, bucket=8))
        batching.add(id, ids, limit, (), arguments(Sampling(temperature, seed=id), VOCABULARY))
        outputs[id] = []
    step_input, preempted, now = StepInput(tuple(prompts)), 0, 0.0
    while step_input.arrived or scheduler.waiting or scheduler.running:
        plan = scheduler.handle(step_input, now)
        now, preempted = now + 1.0, preempted + len(plan.offloaded) + len(plan.discarded)
        batching.carry_out(plan)
        step = batching.step()
        for id, token, _ in step.tokens:
            outputs[id].append(token)
        ended = tuple(id for id, _, last in step.tokens if last)
        batching.check()
        assert scheduler.pages_used == batching.pages_used + sum(scheduler.pages_of(id) for id in ended)
        step_input = StepInput((), ended)
    assert batching.pages_used == 0
    return outputs, preempted


@pytest.fixture(scope="module")
def llamas(started_quickly):
    """One group for both tests of this model, as it takes seconds to start; the second ends it, so another can start."""
    with two(generator()) as group:
        yield group


LOADS = [("default", 0.0), ("paged", 0.0), ("s3", 0.0), ("paged", 1.0)]


@pytest.mark.slow
def test_two_processes_generate_token_for_token_what_one_generates(llamas):
    outputs = [generate(llamas, policy, temperature) for policy, temperature in LOADS]
    alone = ContinuousBatchingEngine(load_generator(generator()), MEMORY, processors(VOCABULARY))
    assert outputs == [generate(alone, policy, temperature) for policy, temperature in LOADS]
    assert sum(preempted for _, preempted in outputs) > 4
    assert outputs[0][0] == outputs[1][0] == outputs[2][0] != outputs[3][0]


@pytest.mark.slow
def test_a_process_that_is_lost_is_an_error_and_leaves_nobody_behind(llamas):
    generate(llamas, "paged", count=2)
    (other,) = llamas.others
    os.kill(other, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="process"):
        generate(llamas, "paged")
    assert time.monotonic() - began < 120  # the error arrives, and nobody waits for ever
    for id in range(12):
        llamas.cancel(id)
    assert llamas.others == () and llamas.pages_used == 0
    with pytest.raises(WorkerError, match="another process of the group has ended"):
        llamas.step()
    llamas.close()
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


@pytest.mark.slow
def test_norms_of_heads_and_a_vocabulary_that_does_not_divide_change_nothing(started_quickly):
    of = generator("qwen3", head_dim=8, vocab_size=VOCABULARY + 1)
    with two(of) as group:
        outputs = generate(group, "paged")
    assert outputs == generate(ContinuousBatchingEngine(load_generator(of), MEMORY), "paged")


def host_bytes(engine) -> int:
    return sum(host.nbytes for host in engine.swap_space._host)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_two_processes_share_a_model_and_its_cache_in_its_own_precision(started_quickly, precision):
    """Their sums are rounded after each half, so texts may differ from one process's; none is broken off."""
    of = in_precision(generator(), precision)
    with two(of) as group:
        outputs, _ = generate(group, "paged", count=4)
        shared = host_bytes(group)
    alone = ContinuousBatchingEngine(load_generator(of), MEMORY)
    assert shared == host_bytes(alone) // 2
    expected, _ = generate(alone, "paged", count=4)
    assert {id: len(tokens) for id, tokens in outputs.items()} == {id: len(tokens) for id, tokens in expected.items()}
    whole = ContinuousBatchingEngine(load_generator(generator()), MEMORY)
    assert host_bytes(alone) == host_bytes(whole) // 2


@pytest.mark.parametrize(
    ("reports", "failure"),
    [
        ((), "it ended before it had loaded the model"),
        (("",), "it ended before it had made its engine"),
        (("", "MemoryError: no room"), "MemoryError: no room"),
    ],
)
def test_a_group_of_which_one_cannot_start_is_an_error_at_once(monkeypatch, reports, failure):
    def start(group, _spec):  # another process, which ends after these reports
        ours, theirs = Pipe()
        group._pipes.append(ours)
        for report in reports:
            theirs.send(report)
        theirs.close()

    monkeypatch.setattr(ParallelExecutor, "_start", start)
    monkeypatch.setattr(parallel._GroupSpec, "join", lambda *_: None)
    with pytest.raises(WorkerError, match=f"^another process of the group failed: {failure}$"):
        ParallelExecutor(generator(), MEMORY, processes=2)


def test_a_single_process_is_no_group():
    with pytest.raises(InputError, match="processes is 1, but must be at least 2"):
        check(generator().config, 1)


def test_heads_must_divide():
    with pytest.raises(InputError, match="a divisor of 4 heads, 2 of them with keys of their own"):
        check(generator().config, 4)


def test_the_feed_forward_must_divide():
    with pytest.raises(InputError, match="processes is 2, but must be a divisor of the feed-forward's width, 49"):
        check(generator(intermediate_size=49).config, 2)


def test_a_model_without_a_plan_is_refused():
    with pytest.raises(InputError, match="no plan for gptj"):
        check(generator("gptj").config, 2)


@pytest.mark.parametrize("kind", ["olmo2", "gpt_neox", "phi3"])
def test_a_model_whose_plan_leaves_the_cache_whole_is_refused(kind):
    """Once the first two were accepted and failed at their first token; for the third every process held the whole
    cache.
    """
    with pytest.raises(InputError, match=f"processes is 2, but must be 1: transformers' plan for {kind} shares no"):
        check(generator(kind, pad_token_id=0).config, 2)


def test_experts_are_not_shared():
    with pytest.raises(InputError, match=r"packed_colwise|moe_tp_experts|grouped_gemm"):
        check(generator("mixtral", num_local_experts=2).config, 2)
