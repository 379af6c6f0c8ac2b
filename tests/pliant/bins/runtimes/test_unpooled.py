"""Every engine gives the hidden states of a text's tokens, whatever the text is padded with and runs beside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder
from tests.pliant.bins.runtimes.test_runtime import PAIRS, TOLERANCE, Bench, alone


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


def states_alone(encoder: Encoder, payload) -> np.ndarray:
    """Return the hidden states of one text's tokens, by the plain module and unpadded."""
    model = load_model(encoder)
    ids, types = (torch.from_numpy(array.astype(np.int64))[None] for array in payload)
    token_types = {"token_type_ids": types} if model.typed else {}
    with torch.inference_mode():
        return model.model(input_ids=ids, **token_types).last_hidden_state[0].numpy()


EMBEDDERS = [
    *(("eager", family, head) for family in FAMILIES for head in ("mean", "cls")),
    ("onnx", "bert", "mean"),
    *(pytest.param(engine, *pair, marks=pytest.mark.slow) for engine in ("onnx", "aot") for pair in PAIRS[1:]),
]


@pytest.mark.parametrize(("engine", "family", "head"), EMBEDDERS)
def test_tokens_that_are_wanted_unpooled_have_the_hidden_states_of_their_text_alone(bench, engine, family, head):
    encoder, runtime = bench.of(engine, family, head)
    rng = np.random.default_rng(7)
    for setting, shape in enumerate(runtime.shapes):
        lengths = [shape.length, max(1, shape.length // 2), 1][: shape.batch]
        payloads = [random_payload(rng, length) for length in lengths]
        for unpooled in ({len(payloads) - 1}, set(range(len(payloads)))):
            outputs = runtime.run(setting, payloads, unpooled).outputs
            for number, (output, payload) in enumerate(zip(outputs, payloads, strict=True)):
                expected = (states_alone if number in unpooled else alone)(encoder, payload)
                assert (output.shape, output.dtype) == (expected.shape, np.float32)
                np.testing.assert_allclose(output, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))


def test_a_classifier_has_no_embeddings_of_tokens():
    runtime = BinsRuntime(tiny_encoder(), [Shape(8, 1)], "eager")
    payload = random_payload(np.random.default_rng(0), 8)
    with pytest.raises(InputError, match=r"unpooled is \[0\], but must be empty, as tiny gives no embeddings"):
        runtime.run(0, [payload], [0])
