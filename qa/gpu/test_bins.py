"""On each device: the engines answer as the plain model on the CPU does for each text alone, for every family.

Graphs are a GPU's; on a CPU plain torch runs the same shapes, padded as they are.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.graphs import GraphsEngine
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.padding import padded
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from pliant.fallbacks import Collector
from qa.gpu.device import SpoiltCapture, stream_of
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(8, 4), Shape(40, 2), Shape(40, 8, dynamic=True))
HEADS = ("classification", "embedding")


def payloads(count: int, longest: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [random_payload(rng, int(rng.integers(1, longest + 1))) for _ in range(count)]


def expected(encoder, texts):
    plain = BinsRuntime(encoder, SHAPES, "eager")
    return [plain.run(3, [text]).outputs[0] for text in texts]


def runtime(device: str, encoder=None, **options) -> BinsRuntime:
    engine = "graphs" if device == "cuda" else "eager"
    return BinsRuntime(encoder or tiny_encoder(), SHAPES, engine, device=device, **options)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_shape_answers_as_the_plain_model_on_the_cpu(device, family, head):
    encoder = tiny_encoder(family, head)
    runs = runtime(device, encoder)
    for seed in range(5):
        for setting, shape in enumerate(SHAPES):
            texts = payloads(max(1, shape.batch - seed % 2), shape.length, seed)
            np.testing.assert_allclose(runs.run(setting, texts).outputs, expected(encoder, texts), atol=1e-3)


def test_an_earlier_result_is_not_overwritten_by_a_later_run(device):
    runs = runtime(device)
    first = runs.run(1, payloads(4, 8)).outputs
    kept = [row.copy() for row in first]
    runs.run(2, payloads(2, 40, seed=1))
    runs.run(1, payloads(4, 8, seed=2))
    assert np.array_equal(first, kept)


def test_a_swap_loads_the_other_length_and_leaves_no_memory_behind(device):
    encoder, used = tiny_encoder(), []
    runs = runtime(device, encoder, placement="single")
    for _ in range(5):
        for setting in (0, 2):
            runs.load(setting)
            texts = payloads(1, 8)
            np.testing.assert_allclose(runs.run(setting, texts).outputs, expected(encoder, texts), atol=1e-3)
        if device == "cuda":
            torch.cuda.synchronize()
            used.append(torch.cuda.memory_allocated())
    assert not used or used[-1] <= used[1]


def test_what_does_not_fit_is_refused(device):
    with pytest.raises(InputError, match="text is 9 tokens long"):
        runtime(device).run(0, [random_payload(np.random.default_rng(0), 9)])


def test_a_capture_that_failed_spoils_no_other_shape(device):
    """The shape runs in plain torch and that is reported; the stream is as before, and others are captured rightly."""
    encoder, before = tiny_encoder(), stream_of(device)
    model = load_model(encoder).to(device)
    engine = GraphsEngine(model, model.inputs, torch.device(device), SpoiltCapture(device, 1))
    first = engine.open(SHAPES[1])
    collector = Collector()
    plain = engine.open(SHAPES[2])
    assert [fallback.kind for fallback in collector.take()] == ["capture"]
    assert stream_of(device) == before, "the thread's work goes where it went before"
    for shape, call in ((SHAPES[1], first), (SHAPES[0], engine.open(SHAPES[0])), (SHAPES[2], plain)):
        texts = payloads(shape.batch, shape.length)
        np.testing.assert_allclose(
            call(padded(shape, texts, model.pad, model.typed)), expected(encoder, texts), atol=1e-3
        )
