"""The runtime: a mixed batch gives what each request gives alone, tasks are added while it runs, errors are clear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pliant.errors import BackboneError, InputError
from pliant.fallbacks import Collector
from pliant.tokens.runtime import Execution, Payload, TokensRuntime, load_model
from tests.fixtures.processor import NEEDS_BFLOAT16
from tests.fixtures.tokens.captures import Recorded
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task

TASKS = [tiny_task("a", "xyz", "digest"), tiny_task("b", "vwxyz", "digest", seed=1)]
IMAGES = random_images(6)
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


@pytest.mark.parametrize("gamma", GAMMAS)
def test_a_runtime_of_many_tasks_gives_what_a_runtime_of_one_gives(runtime, gamma):
    for task in TASKS:
        single = TokensRuntime(tiny_backbone(), "digest", [task])
        batch = payloads(task.name * 6)
        assert close(runtime.run(gamma, batch).probabilities, single.run(gamma, batch).probabilities)


def test_a_task_added_later_is_served_and_leaves_the_others_as_they_were(runtime):
    before = runtime.run(2, payloads("ab")).probabilities
    runtime.update([tiny_task("c", "xy", "digest", seed=5)])
    assert close(runtime.run(2, payloads("ab")).probabilities, before)
    assert runtime.run(2, payloads("c")).probabilities[0].shape == (2,)


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


def test_without_buckets_there_are_no_graphs_and_nothing_to_capture_ahead(runtime):
    runtime.warm([0])
    capture = Recorded()
    plain = TokensRuntime(tiny_backbone(), "digest", TASKS, execution=Execution(capture=capture, buckets=()))
    plain.warm([0])
    assert close(plain.run(0, payloads("ab")).probabilities, runtime.run(0, payloads("ab")).probabilities)
    assert capture.recorded == 0


@pytest.mark.parametrize(
    ("packed", "capable", "graphs", "packs"),
    [(True, True, False, 1), (False, True, False, 0), (True, False, False, 0), (True, True, True, 0)],
)
def test_weights_are_packed_where_it_is_wanted_and_possible_and_no_graph_holds_them(
    monkeypatch, packed, capable, graphs, packs
):
    calls = []
    monkeypatch.setattr("pliant.tokens.runtime.pack", calls.append)
    monkeypatch.setattr("pliant.tokens.runtime.can_pack", lambda: capable)
    execution = Execution(packed=packed, capture=Recorded() if graphs else None)
    TokensRuntime(tiny_backbone(), "digest", TASKS, execution=execution)
    assert len(calls) == packs


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
