"""On each device: captured graphs answer as the eager path does, in every bucket, also after tasks were changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pliant.fallbacks import Collector
from pliant.precision import has_bfloat16
from pliant.tokens.points import BOTH, Point
from pliant.tokens.runtime import CHUNK, Execution, Payload, Staging, TokensRuntime, load_model
from qa.gpu.device import SpoiltCapture, capture_on, stream_of
from tests.fixtures.tokens.samples import IMAGE_SIZE, random_images, tiny_backbone, tiny_task

TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = random_images(70)
GAMMAS = (-20, -5, 0, 2, 8)


def runtime(device: str, tasks=TASKS, **options) -> TokensRuntime:
    """A runtime in float32 with graphs, unless the options say otherwise."""
    given = {"precision": "float32", "capture": capture_on(device), **options}
    return TokensRuntime(tiny_backbone(), "digest", tasks, device, Execution(**given))


def payloads(count: int, names: str = "ab") -> list[Payload]:
    return [Payload(names[i % len(names)], IMAGES[i]) for i in range(count)]


def close(some, others, tolerance: float) -> bool:
    pairs = zip(some.probabilities, others.probabilities, strict=True)
    return all(np.allclose(x, y, atol=tolerance) for x, y in pairs)


@pytest.fixture(scope="module")
def graphs(device) -> TokensRuntime:
    captured = runtime(device)
    captured.warm(GAMMAS)
    return captured


@pytest.fixture(scope="module")
def eager(device) -> TokensRuntime:
    return runtime(device, buckets=())


@pytest.fixture(scope="module")
def reference() -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", TASKS, "cpu", Execution(packed=False))


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("count", [1, 3, 8, 33, 64, 70])
def test_a_graph_answers_as_the_eager_path(graphs, eager, gamma, count):
    assert close(graphs.run(gamma, payloads(count)), eager.run(gamma, payloads(count)), 1e-4)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_device_answers_as_the_plain_model_on_the_cpu_in_float32(graphs, reference, gamma):
    """A GPU convolves in TF32 by default, and a pair of tokens that match equally well may merge otherwise."""
    runs = graphs.run(gamma, payloads(40)), reference.run(gamma, payloads(40))
    differences = [np.abs(x - y).max() for x, y in zip(*(run.probabilities for run in runs), strict=True)]
    assert np.median(differences) < 5e-3
    assert np.quantile(differences, 0.9) < 2e-2


@torch.inference_mode()
@pytest.mark.parametrize("merged", [(), ((0, 4), (1, 4), (2, 3))])
def test_points_of_a_device_answer_as_on_the_cpu_and_merge_without_falling_back(device, merged):
    model, collector = load_model(tiny_backbone(depth=4)), Collector()
    point, images = Point(24, 4, merged, BOTH), torch.randn(64, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    expected = model.at(point, images)
    difference = (model.to(device).at(point, images.to(device)).cpu() - expected).abs().amax(1)
    assert difference.quantile(0.9) < 2e-2 and not collector.take()


def test_the_same_batch_twice_gives_the_same_answer_whatever_ran_between(graphs):
    first = graphs.run(-5, payloads(5, "a"))
    graphs.run(8, payloads(64, "b"))
    graphs.run(-5, payloads(7, "b"))
    assert close(graphs.run(-5, payloads(5, "a")), first, 1e-5)


@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_graphs_answer_for_tasks_that_came_after_their_capture(device, gamma):
    captured, changed = runtime(device), tiny_task("a", "pq", "digest", seed=7)
    further = [tiny_task(name, "xyz", "digest", seed=ord(name)) for name in "cdefghij"]
    captured.run(gamma, payloads(4))
    captured.update([changed])  # fits into the room there is
    expected = runtime(device, [changed, TASKS[1]], buckets=())
    assert close(captured.run(gamma, payloads(4)), expected.run(gamma, payloads(4)), 1e-4)
    captured.update(further)  # does not
    expected.update(further)
    assert close(captured.run(gamma, payloads(4, "abcj")), expected.run(gamma, payloads(4, "abcj")), 1e-4)


@pytest.mark.filterwarnings("ignore:graphs cannot be captured")
@pytest.mark.parametrize("spoilt", [0, 1])
def test_after_a_capture_that_failed_all_batches_are_answered_rightly(device, eager, spoilt):
    before = stream_of(device)
    runs = runtime(device, capture=SpoiltCapture(device, spoilt))
    for gamma, count in ((-5, 3), (0, 8), (-5, 3), (8, 1), (0, 2), (-5, 30)):
        assert close(runs.run(gamma, payloads(count)), eager.run(gamma, payloads(count)), 1e-4), (gamma, count)
    assert stream_of(device) == before, "the thread's work goes where it went before"


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_half_precision_stays_near_float32(device, graphs, precision, gamma):
    if precision == "bfloat16" and not has_bfloat16(device):
        pytest.skip("this device has no instructions for bfloat16")
    if precision == "float16" and device == "cpu":
        pytest.skip("float16 is for GPUs")
    exact, half = graphs.run(gamma, payloads(64)), runtime(device, precision=precision).run(gamma, payloads(64))
    differences = [np.abs(x - y).max() for x, y in zip(exact.probabilities, half.probabilities, strict=True)]
    assert np.median(differences) < 0.1


def test_bfloat16_is_the_default_on_a_gpu_and_float32_on_a_cpu(device):
    usual = "bfloat16" if device == "cuda" and has_bfloat16(device) else "float32"
    default, named = (runtime(device, precision=precision).run(0, payloads(8)) for precision in (None, usual))
    assert close(default, named, 1e-6)


@pytest.mark.parametrize("count", [1, CHUNK + 1, 64])
def test_staged_images_arrive_whole_and_in_order(device, count):
    staging = Staging(64, IMAGE_SIZE, torch.device(device))
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
