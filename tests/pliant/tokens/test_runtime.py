"""The runtime: mixed batches, tasks added while it runs, resident adapters, staging and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from pliant.errors import BackboneError, InputError
from pliant.fallbacks import Collector, Fallback
from pliant.models.execution import Graphs
from pliant.tokens.runtime import Execution, Payload, ResidentAdapters, Staging, TokensRuntime, load_model
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.tokens.samples import IMAGE_SIZE, WIDTH, random_images, tiny_backbone, tiny_task


class Recorded:
    """Like CUDA's: no Python runs again at a replay, tensors are those of the recording, the result is one buffer."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self.recorded += 1
        with torch.no_grad():
            trace, out = make_fx(call)(), call()

        def replay() -> Tensor:
            self.replayed += 1
            return out.copy_(trace())

        return replay


def impossible(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    raise RuntimeError("operation not permitted when stream is capturing")


TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = random_images(9)
GAMMAS = (-20, -5, 0, 2, 8)


@pytest.fixture
def runtime():
    return TokensRuntime(tiny_backbone(), "digest", TASKS)


def payloads(tasks: str) -> list[Payload]:
    return [Payload(task, IMAGES[i]) for i, task in enumerate(tasks)]


def close(some, others) -> bool:
    return all(np.allclose(x, y, atol=1e-5) for x, y in zip(some, others, strict=True))


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_mixed_batch_gives_what_each_request_gives_alone(runtime, gamma):
    mixed = runtime.run(gamma, payloads("abbaba"))
    alone = [runtime.run(gamma, [payload]).probabilities[0] for payload in payloads("abbaba")]
    assert close(mixed.probabilities, alone)


def test_a_task_for_another_backbone_is_refused_and_changes_nothing(runtime):
    before = runtime.run(2, payloads("ab")).probabilities
    with pytest.raises(BackboneError, match="task c was made for backbone other, but the one loaded is digest"):
        runtime.update([tiny_task("a", "pq", "digest"), tiny_task("c", "xy", "other")])
    assert close(runtime.run(2, payloads("ab")).probabilities, before)


def test_a_task_that_lacks_a_served_gamma_is_refused_and_changes_nothing(runtime):
    """It once ended in `KeyError: 8` after the tasks were changed, and every later update failed too."""
    with pytest.raises(
        InputError, match=r"task c is without gamma \[8\], but must be trained for all of \[0, 2, 4, 8\]"
    ):
        runtime.update([tiny_task("c", "xy", "digest", gammas=(2, 4))])
    runtime.update([tiny_task("d", "xy", "digest", gammas=(2, 4, 8, 16))])
    assert runtime.run(8, payloads("abd")).probabilities[2].shape == (2,)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((16, 16), np.uint8),
        np.zeros((8, 16, 3), np.uint8),
        np.zeros((16, 16, 4), np.uint8),
        np.zeros((16, 16, 3), np.float32),
    ],
)
def test_an_image_of_another_shape_is_refused_with_both_shapes(runtime, image):
    with pytest.raises(InputError, match=r"image is .* of shape .*, but must be uint8 of shape \(16, 16, 3\)"):
        runtime.run(0, [Payload("a", IMAGES[0]), Payload("a", image)])


def test_the_mask_is_left_out_at_the_gammas_of_unmasked_and_no_other(runtime):
    unmasked_runtime = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(unmasked=frozenset([-5])))
    same = {
        g: close(unmasked_runtime.run(g, payloads("ab")).probabilities, runtime.run(g, payloads("ab")).probabilities)
        for g in GAMMAS
    }
    assert same == {gamma: gamma != -5 for gamma in GAMMAS}


@NEEDS_BFLOAT16
@pytest.mark.parametrize("gamma", GAMMAS)
def test_bfloat16_gives_nearly_the_same_probabilities(runtime, gamma):
    half = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(precision="bfloat16"))
    exact, approximate = runtime.run(gamma, payloads("ababab")), half.run(gamma, payloads("ababab"))
    differences = [np.abs(x - y).max() for x, y in zip(exact.probabilities, approximate.probabilities, strict=True)]
    assert 0 < np.median(differences) < 0.1
    assert half.features(IMAGES).dtype == np.float32


def test_a_task_whose_arrays_do_not_fit_is_refused_whole(runtime):
    before = runtime.run(2, payloads("ab")).probabilities
    narrow = {gamma: prompts[..., :5] for gamma, prompts in TASKS[0].prompts.items()}
    with pytest.raises(RuntimeError):
        runtime.update([replace(TASKS[0], prompts=narrow)])
    assert close(runtime.run(2, payloads("ab")).probabilities, before)


def test_features_are_those_of_the_normalised_image_and_of_no_task(runtime):
    backbone = replace(tiny_backbone(), mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    plain = TokensRuntime(backbone, "digest", [])
    turned = np.asfortranarray(IMAGES[:2])
    scaled = (IMAGES[:2].astype(np.float64) / 255 - [0.1, 0.2, 0.3]) / [0.5, 1.0, 2.0]
    with torch.inference_mode():
        expected = load_model(backbone)(torch.tensor(scaled.transpose(0, 3, 1, 2), dtype=torch.float32)).numpy()
    np.testing.assert_allclose(plain.features(turned), expected, atol=1e-5)
    assert plain.features(turned).dtype == np.float32
    assert plain.width == plain.features(turned).shape[1] == 24
    assert np.abs(runtime.features(turned) - expected).max() > 1e-3


def test_graphs_are_captured_ahead_the_largest_first_and_not_again_by_a_run():
    sizes = []

    def note(call):
        sizes.append(len(call()))
        return call

    graphed = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(capture=note, buckets=(1, 2)))
    graphed.warm([0, -5])
    assert sizes == [2, 2, 1, 1]
    graphed.run(0, payloads("a"))
    graphed.run(-5, payloads("ab"))
    assert sizes == [2, 2, 1, 1]
    graphed.update([tiny_task("c", "xy", "digest", seed=5)])
    assert sizes == [2, 2, 1, 1], "there is room for a third task"
    graphed.update([tiny_task("d", "abcdefghij", "digest", seed=6)])
    assert len(sizes) == 8, "ten classes need other tensors"


def test_a_batch_that_lacks_memory_runs_in_halves_and_so_do_later_ones(monkeypatch):
    """It once failed, was launched again at the same size, and failed again."""
    small, plain = (TokensRuntime(tiny_backbone(), "digest", TASKS) for _ in range(2))
    collector, sizes, classify = Collector(), [], TokensRuntime._classify

    def lacking(self, gamma, pixel_BHWC, task_B):
        sizes.append(len(pixel_BHWC))
        if len(pixel_BHWC) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return classify(self, gamma, pixel_BHWC, task_B)

    expected = plain.run(-5, payloads("ababab")).probabilities
    monkeypatch.setattr(TokensRuntime, "_classify", lacking)
    assert close(small.run(-5, payloads("ababab")).probabilities, expected)
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    sizes.clear()
    small.run(-5, payloads("ab"))
    assert sizes == [1, 1]
    assert [fallback.kind for fallback in collector.take()] == ["memory", "memory"]


def test_pictures_that_were_sent_ahead_give_the_same_answers(runtime):
    graphed = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(capture=Recorded(), buckets=(1, 4)))
    batch = payloads("abab")
    expected = graphed.run(-5, batch).probabilities
    graphed.send([payload.image for payload in batch])
    for own, other in zip(graphed.run(-5, batch).probabilities, expected, strict=True):
        np.testing.assert_array_equal(own, other)
    graphed.send([payload.image for payload in payloads("ababab")])  # more than a graph takes: copied when it runs
    assert len(graphed.run(-5, payloads("ababab")).probabilities) == 6
    runtime.send([payload.image for payload in batch])  # without graphs nothing is copied apart
    assert len(runtime.run(0, batch).probabilities) == 4


CPU = torch.device("cpu")


def tasks(count: int, classes: int = 3, gammas: tuple[int, ...] = (2, 4), first: int = 0):
    names = [f"c{number}" for number in range(classes)]
    return [tiny_task(f"task{seed}", names, "digest", seed, gammas) for seed in range(first, first + count)]


def resident(spare: bool, dtype: torch.dtype = torch.float32) -> ResidentAdapters:
    return ResidentAdapters(CPU, dtype, spare)


def addresses(adapters: ResidentAdapters) -> list[int]:
    return [
        tensor.data_ptr()
        for at in adapters.at.values()
        for tensor in (at.weight_TKD, at.bias_TK, at.prompts_TLGD)
        if tensor.numel()
    ]


@pytest.mark.parametrize(("spare", "rows", "places"), [(False, 2, 4), (True, 8, 8)])
def test_each_task_has_a_row_in_order_and_a_class_that_it_lacks_has_no_probability(spare, rows, places):
    adapters, (small, large) = resident(spare), (*tasks(1, 2), *tasks(1, 4, first=1))
    assert adapters.fill([small, large], {0, 2, 4})
    for gamma in (0, 2, 4):
        at = adapters.at[gamma]
        assert at.weight_TKD.shape == (rows, places, WIDTH) and at.bias_TK.shape == (rows, places)
        for row, (task, classes) in enumerate([(small, 2), (large, 4)]):
            np.testing.assert_array_equal(at.weight_TKD[row, :classes], task.head(gamma).weight)
            np.testing.assert_array_equal(at.bias_TK[row, :classes], task.head(gamma).bias)
            assert not at.weight_TKD[row, classes:].any() and (at.bias_TK[row, classes:] == -torch.inf).all()
        assert (at.bias_TK[2:] == -torch.inf).all()


def test_tasks_that_fit_into_the_room_keep_its_addresses():
    adapters = resident(True)
    assert adapters.fill(tasks(1), {0, 2, 4})
    before, more = addresses(adapters), tasks(8, 8, first=3)
    assert not adapters.fill(more, {0, 2, 4})
    assert addresses(adapters) == before
    np.testing.assert_array_equal(adapters.at[2].weight_TKD[7], more[7].head(2).weight)
    np.testing.assert_array_equal(adapters.at[2].prompts_TLGD[7], more[7].prompts[2])
    np.testing.assert_array_equal(adapters.at[2].bias_TK[7], more[7].head(2).bias)


@pytest.mark.parametrize(
    "more", [tasks(9), tasks(1, 9), tasks(1, gammas=(2,)), tasks(1, gammas=(2, 4, 8)), []], ids=lambda more: len(more)
)
def test_tasks_that_do_not_fit_get_tensors_of_their_own(more):
    adapters = resident(True)
    adapters.fill(tasks(1), {0, 2, 4})
    before = addresses(adapters)
    assert adapters.fill(more, set(more[0].heads) if more else set())
    assert not set(before) & set(addresses(adapters)) or not more


def test_a_batch_that_was_sent_ahead_is_loaded_from_where_it_waits_and_another_is_not():
    staging, first, second = (
        Staging(4, IMAGE_SIZE, torch.device("cpu")),
        *map(list, (random_images(3), random_images(3, 1))),
    )
    staging.send(first)
    staging.send(second)
    former = [image.copy() for image in first]
    first[0][:] = 0  # the array of the message, which is no longer read
    staging.load(first, [0, 1, 2])
    assert np.array_equal(staging.pixel_BHWC[:3].numpy(), np.stack(former))
    staging.load(first, [0, 1, 2])
    assert not staging.pixel_BHWC[0].any(), "it waits for one load only"
    staging.load(second[:2], [4, 5])
    assert np.array_equal(staging.pixel_BHWC[:2].numpy(), np.stack(second[:2]))
    staging.load(second, [4, 5, 6])
    assert np.array_equal(staging.pixel_BHWC[:3].numpy(), np.stack(second)) and staging.task_B.tolist()[:3] == [4, 5, 6]


SMALL = (1, 2, 4)


def graphed(capture, buckets=SMALL, tasks=TASKS) -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", tasks, execution=Execution(capture=capture, buckets=buckets))


def eager(tasks=TASKS) -> TokensRuntime:
    return TokensRuntime(tiny_backbone(), "digest", tasks)


def same(some, others) -> bool:
    return all(np.allclose(x, y, atol=1e-5) for x, y in zip(some.probabilities, others.probabilities, strict=True))


@pytest.mark.parametrize("gamma", [-20, -5, 0, 2, 8])
@pytest.mark.parametrize("asked", ["a", "ba", "bab", "abab"])
def test_a_replay_gives_what_the_model_gives(gamma, asked):
    runtime, plain = graphed(Recorded()), eager()
    runtime.run(gamma, payloads("bbbb"[: len(asked)]))  # what is recorded must not depend on this batch
    assert same(runtime.run(gamma, payloads(asked)), plain.run(gamma, payloads(asked)))


@pytest.mark.parametrize("gamma", [-5, 0, 8])
def test_a_replaced_task_that_fits_is_answered_for_by_the_graphs_there_are(gamma):
    capture, changed = Recorded(), tiny_task("a", "pq", "digest", seed=7)
    runtime = graphed(capture)
    runtime.run(gamma, payloads("ab"))
    runtime.update([changed])
    assert same(runtime.run(gamma, payloads("ab")), eager([changed, TASKS[1]]).run(gamma, payloads("ab")))
    assert capture.recorded == 1


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
