"""On a GPU: captured graphs and compiled packages answer as the plain model does for each text alone, for every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.compile import compile_shapes
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

pytestmark = pytest.mark.gpu

SHAPES = (Shape(8, 1), Shape(8, 4), Shape(40, 2), Shape(40, 8, dynamic=True))
HEADS = ("classification", "embedding")


def payloads(count: int, longest: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return [random_payload(rng, int(rng.integers(1, longest + 1))) for _ in range(count)]


def expected(encoder, texts):
    plain = BinsRuntime(encoder, SHAPES, "eager")
    return [plain.run(3, [text]).outputs[0] for text in texts]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_answers_as_the_plain_model_on_the_cpu(family, head):
    encoder = tiny_encoder(family, head)
    graphs = BinsRuntime(encoder, SHAPES, "graphs", device="cuda")
    for seed in range(5):
        for setting, shape in enumerate(SHAPES):
            texts = payloads(max(1, shape.batch - seed % 2), shape.length, seed)
            np.testing.assert_allclose(graphs.run(setting, texts).outputs, expected(encoder, texts), atol=1e-3)


def test_an_earlier_result_is_not_overwritten_by_a_later_run():
    graphs = BinsRuntime(tiny_encoder(), SHAPES, "graphs", device="cuda")
    first = graphs.run(1, payloads(4, 8)).outputs
    kept = [row.copy() for row in first]
    graphs.run(2, payloads(2, 40, seed=1))
    graphs.run(1, payloads(4, 8, seed=2))
    assert np.array_equal(first, kept)


def test_a_swap_captures_the_other_length_and_leaves_no_memory_behind():
    runtime = BinsRuntime(tiny_encoder(), SHAPES, "graphs", device="cuda", placement="single")
    used = []
    for _ in range(5):
        for setting in (0, 2):
            runtime.load(setting)
            runtime.run(setting, payloads(1, 8))
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert used[-1] <= used[1]


def test_what_does_not_fit_is_refused():
    graphs = BinsRuntime(tiny_encoder(), SHAPES, "graphs", device="cuda")
    with pytest.raises(InputError, match="text is 9 tokens long"):
        graphs.run(0, [random_payload(np.random.default_rng(0), 9)])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compiled_package_answers_as_the_plain_model_on_the_cpu(tmp_path, family):
    """Needs a C++ compiler beside the GPU."""
    encoder = tiny_encoder(family, "embedding")
    files = compile_shapes(encoder, SHAPES, "aot", tmp_path, "cuda")
    compiled = BinsRuntime(encoder, SHAPES, "aot", tmp_path, files, device="cuda")
    for setting, shape in enumerate(SHAPES):
        texts = payloads(shape.batch, shape.length)
        np.testing.assert_allclose(compiled.run(setting, texts).outputs, expected(encoder, texts), atol=1e-3)
