"""On a GPU: captured graphs answer as the eager path does, in every bucket, also after tasks were changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from pliant.tokens.staging import CHUNK, Staging
from tests.fixtures.tokens.samples import IMAGE_SIZE, random_images, tiny_backbone, tiny_task

pytestmark = pytest.mark.gpu

TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = random_images(70)
GAMMAS = (-20, -5, 0, 2, 8)


def runtime(tasks=TASKS, device="cuda", **options) -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", tasks, device, Execution(**options))


def payloads(count: int, names: str = "ab") -> list[Payload]:
    return [Payload(names[i % len(names)], IMAGES[i]) for i in range(count)]


def close(some, others, tolerance: float) -> bool:
    pairs = zip(some.probabilities, others.probabilities, strict=True)
    return all(np.allclose(x, y, atol=tolerance) for x, y in pairs)


@pytest.fixture(scope="module")
def graphs() -> TokensRuntime:
    captured = runtime(precision="float32")
    captured.warm(GAMMAS)
    return captured


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("count", [1, 3, 8, 33, 64, 70])
def test_a_graph_answers_as_the_eager_path(graphs, gamma, count):
    assert close(
        graphs.run(gamma, payloads(count)), runtime(precision="float32", buckets=()).run(gamma, payloads(count)), 1e-4
    )


@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_gpu_answers_as_the_cpu_in_float32(graphs, gamma):
    assert close(graphs.run(gamma, payloads(9)), runtime(device="cpu").run(gamma, payloads(9)), 1e-3)


def test_the_same_batch_twice_gives_the_same_answer_whatever_ran_between(graphs):
    first = graphs.run(-5, payloads(5, "a"))
    graphs.run(8, payloads(64, "b"))
    graphs.run(-5, payloads(7, "b"))
    assert close(graphs.run(-5, payloads(5, "a")), first, 1e-5)


@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_graphs_answer_for_tasks_that_came_after_their_capture(gamma):
    captured, changed = runtime(precision="float32"), tiny_task("a", "pq", "digest", seed=7)
    further = [tiny_task(name, "xyz", "digest", seed=ord(name)) for name in "cdefghij"]
    captured.run(gamma, payloads(4))
    captured.update([changed])  # fits into the room there is
    expected = runtime([changed, TASKS[1]], precision="float32", buckets=())
    assert close(captured.run(gamma, payloads(4)), expected.run(gamma, payloads(4)), 1e-4)
    captured.update(further)  # does not
    expected.update(further)
    assert close(captured.run(gamma, payloads(4, "abcj")), expected.run(gamma, payloads(4, "abcj")), 1e-4)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_half_precision_stays_near_float32(graphs, precision, gamma):
    exact, half = graphs.run(gamma, payloads(64)), runtime(precision=precision).run(gamma, payloads(64))
    differences = [np.abs(x - y).max() for x, y in zip(exact.probabilities, half.probabilities, strict=True)]
    assert np.median(differences) < 0.1


def test_bfloat16_is_the_default_on_a_gpu():
    default, bfloat16 = runtime().run(0, payloads(8)), runtime(precision="bfloat16").run(0, payloads(8))
    assert close(default, bfloat16, 1e-6)


@pytest.mark.parametrize("count", [1, CHUNK + 1, 64])
def test_staged_images_arrive_whole_and_in_order(count):
    staging = Staging(64, IMAGE_SIZE, torch.device("cuda"))
    for seed in range(5):
        images = random_images(count, seed=seed)
        staging.load(list(images), range(count))
        assert np.array_equal(staging.pixel_BHWC[:count].cpu().numpy(), images)
        assert staging.task_B[:count].tolist() == list(range(count))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_batches_that_another_thread_sends_ahead_answer_as_those_that_were_not(graphs, gamma):
    batches = [payloads(count) for count in (64, 7, 33, 64, 1)]
    expected = [graphs.run(gamma, batch) for batch in batches]
    with ThreadPoolExecutor(1) as reader:
        sending = reader.submit(graphs.send, [payload.image for payload in batches[0]])
        for batch, following, former in zip(batches, [*batches[1:], []], expected, strict=True):
            sending.result()
            sending = reader.submit(graphs.send, [payload.image for payload in following])  # while this one runs
            assert close(graphs.run(gamma, batch), former, 1e-5)
        sending.result()
