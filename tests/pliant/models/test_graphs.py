"""Graphs give the same answers as plain runs, bucket by bucket, also after tasks were added or replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pliant.fallbacks import Collector, Fallback
from pliant.latency import bucket
from pliant.models.graphs import Graphs
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from tests.fixtures.tokens.captures import Recorded, impossible
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task

TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = random_images(9)
SMALL = (1, 2, 4)


def graphed(capture, buckets=SMALL, tasks=TASKS) -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", tasks, execution=Execution(capture=capture, buckets=buckets))


def eager(tasks=TASKS) -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", tasks)


def payloads(tasks: str) -> list[Payload]:
    return [Payload(task, IMAGES[i]) for i, task in enumerate(tasks)]


def same(some, others) -> bool:
    return all(np.allclose(x, y, atol=1e-5) for x, y in zip(some.probabilities, others.probabilities, strict=True))


@pytest.mark.parametrize("gamma", [-20, -5, 0, 2, 8])
@pytest.mark.parametrize("asked", ["a", "ba", "bab", "abab"])
def test_a_replay_gives_what_the_model_gives(gamma, asked):
    runtime, plain = graphed(Recorded()), eager()
    runtime.run(gamma, payloads("bbbb"[: len(asked)]))  # what is recorded must not depend on this batch
    assert same(runtime.run(gamma, payloads(asked)), plain.run(gamma, payloads(asked)))


def test_warming_captures_every_bucket_so_that_no_run_has_to():
    capture = Recorded()
    runtime = graphed(capture)
    runtime.warm((-5, 0))
    assert capture.recorded == 6
    for tasks in ("a", "ab", "aba", "abab"):
        runtime.run(-5, payloads(tasks))
    assert capture.recorded == 6


@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_a_replaced_task_that_fits_is_answered_for_by_the_graphs_there_are(gamma):
    capture, changed = Recorded(), tiny_task("a", "pq", "digest", seed=7)
    runtime = graphed(capture)
    runtime.run(gamma, payloads("ab"))
    runtime.update([changed])
    assert same(runtime.run(gamma, payloads("ab")), eager([changed, TASKS[1]]).run(gamma, payloads("ab")))
    assert capture.recorded == 1


@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_tasks_beyond_the_spare_room_make_every_graph_new_at_once(gamma):
    capture = Recorded()
    runtime = graphed(capture)
    runtime.run(gamma, payloads("ab"))
    more = [tiny_task(name, "xyz", "digest", seed=ord(name)) for name in "cdefghi"]
    runtime.update(more)
    assert capture.recorded == 2  # during the update, so that no run waits for it
    assert same(runtime.run(gamma, payloads("ia")), eager([*TASKS, *more]).run(gamma, payloads("ia")))
    assert capture.recorded == 2


def test_where_capturing_fails_the_same_answers_come_without():
    runtime, collector = graphed(impossible), Collector()
    runtime.warm((-5, 0))
    assert len(collector.take()) == 6
    assert same(runtime.run(-5, payloads("aba")), eager().run(-5, payloads("aba")))
    assert collector.take() == (), "what failed is not tried again"


@given(st.lists(st.integers(1, 300), min_size=1, unique=True).map(sorted), st.integers(1, 400))
def test_a_bucket_is_the_smallest_that_holds_the_batch(buckets, count):
    holding = [size for size in buckets if size >= count]
    assert bucket(count, buckets) == (min(holding) if holding else count)


def test_padding_repeats_the_first_row_and_no_row_of_a_batch_before():
    seen: list[torch.Tensor] = []
    pixels, rows = torch.zeros(4, 1, 1, 3, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)

    def forward(gamma, pixel_BHWC, task_B):
        seen.append(pixel_BHWC[:, 0, 0, 0].clone())
        return pixel_BHWC[:, 0, 0].float() + task_B[:, None] + gamma

    graphs = Graphs(forward, impossible, pixels, rows, SMALL)
    pixels[:], rows[:] = 9, 1
    graphs.run(0, 4)
    pixels[0], pixels[1], pixels[2] = 5, 6, 7
    assert graphs.run(0, 3).shape == (3, 3)
    assert seen[-1].tolist() == [5, 6, 7, 5]


def toy(capture, *buckets) -> tuple[Graphs, list[tuple[int, int]]]:
    """Graphs over a function that notes its gamma and its rows."""
    calls: list[tuple[int, int]] = []

    def forward(gamma, pixel_BHWC, task_B):
        calls.append((gamma, len(pixel_BHWC)))
        return pixel_BHWC[:, 0, 0].float() + task_B[:, None] + gamma

    pixels, rows = torch.zeros(8, 1, 1, 3, dtype=torch.uint8), torch.arange(8)
    return Graphs(forward, capture, pixels, rows, *buckets), calls


def test_renewed_graphs_are_those_there_were_captured_once_more():
    graphs, calls = toy(lambda call: call() is None or call)
    for gamma, count in ((-5, 3), (2, 1), (-5, 4), (2, 5)):
        assert graphs.run(gamma, count).shape == (count, 3)
    captured = [(-5, 4), (2, 1), (2, 8)]
    calls.clear()
    graphs.renew()
    assert calls == captured
    calls.clear()
    assert graphs.run(-5, 2)[:, 0].tolist() == [-5.0, -4.0]
    assert calls == [(-5, 2), (-5, 2)], "a capture and its replay"


def test_a_failed_capture_keeps_the_other_graphs_and_is_noted_with_its_reason():
    """One failure once turned all graphs off, visible only as a Python warning."""
    attempts, replayed = [], []

    def failing_once(call):
        attempts.append(call)
        if len(attempts) == 1:
            raise RuntimeError("no graph today\nand a long explanation")
        return lambda: replayed.append(call) or call()

    (graphs, _), collector = toy(failing_once), Collector()
    assert graphs.run(1, 2)[:, 0].tolist() == [1.0, 2.0]
    assert graphs.run(2, 1)[:, 0].tolist() == [2.0]
    reason = "the graph of gamma 1 at batch 2 cannot be captured, so that batches of it run without: no graph today"
    assert collector.take() == (Fallback("capture", reason),)
    assert (len(attempts), len(replayed)) == (2, 1)
