"""Every engine and shape gives what the plain model gives for each text alone, whatever it is padded with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.compile import compile_encoder
from pliant.bins.runtimes.graphs import EagerEngine, GraphsEngine
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.padding import padded
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import ArtifactError, InputError
from tests.fixtures.bins.encoders import FAMILIES, random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(8, 4), Shape(40, 1), Shape(40, 2), Shape(40, 8, dynamic=True))
TOLERANCE = 2e-5  # of outputs of size 1
HEADS = {
    "classification": {"head": "classification"},
    "mean": {"head": "embedding", "pooling": "mean", "normalize": True},
    "cls": {"head": "embedding", "pooling": "cls", "normalize": False},
}


@dataclass
class Bench:
    """Runtimes of each (engine, family, head), made once per module."""

    folder: Path
    runtimes: dict = field(default_factory=dict)
    files: dict = field(default_factory=dict)

    def of(self, engine: str, family: str, head: str) -> tuple[Encoder, BinsRuntime]:
        key = engine, family, head
        if key not in self.runtimes:
            encoder = tiny_encoder(family, **HEADS[head])
            self.files[key] = compile_encoder(encoder, engine, self.folder)
            self.runtimes[key] = encoder, BinsRuntime(encoder, SHAPES, engine, self.folder, self.files[key])
        return self.runtimes[key]


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    return Bench(tmp_path_factory.mktemp("cache"))


def alone(encoder: Encoder, payload) -> np.ndarray:
    """Return the plain module's output for one text, unpadded."""
    model = load_model(encoder)
    ids, types = (torch.from_numpy(array.astype(np.int64))[None] for array in payload)
    token_types = {"token_type_ids": types} if model.typed else {}
    with torch.inference_mode():
        return model(input_ids=ids, **token_types)[0].numpy()


def agree(bench: Bench, key: tuple[str, str, str], numbers: st.DataObject) -> None:
    encoder, runtime = bench.of(*key)
    setting = numbers.draw(st.integers(0, len(runtime.shapes) - 1), "setting")
    shape = runtime.shapes[setting]
    lengths = numbers.draw(st.lists(st.integers(1, shape.length), min_size=1, max_size=shape.batch), "lengths")
    rng = np.random.default_rng(numbers.draw(st.integers(0, 99), "seed"))
    payloads = [random_payload(rng, length) for length in lengths]
    outputs = runtime.run(setting, payloads).outputs
    assert [output.dtype for output in outputs] == [np.float32] * len(payloads)
    for output, payload in zip(outputs, payloads, strict=True):
        expected = alone(encoder, payload)
        assert output.shape == expected.shape
        np.testing.assert_allclose(output, expected, atol=TOLERANCE * max(1, np.abs(expected).max()))


RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


PAIRS = tuple(zip(FAMILIES, HEADS, strict=True))
EVERY = [
    *(("eager", family, head) for family in FAMILIES for head in HEADS),
    ("onnx", "bert", "mean"),
    *(pytest.param("onnx", *pair, marks=pytest.mark.slow) for pair in PAIRS),  # 5 to 10 s to export
]


@pytest.mark.parametrize(("engine", "family", "head"), EVERY)
@settings(max_examples=20, **RELAXED)
@given(numbers=st.data())
def test_every_shape_answers_as_the_plain_model_for_each_text_alone(bench, engine, family, head, numbers):
    agree(bench, (engine, family, head), numbers)


@pytest.mark.parametrize("engine", ["eager", "onnx"])
@pytest.mark.parametrize(
    ("setting", "length", "field"), [(0, 9, "text"), (4, 41, "text"), (5, 1, "setting"), (-1, 1, "setting")]
)
def test_what_does_not_fit_a_shape_is_refused_before_it_reaches_native_code(bench, engine, setting, length, field):
    _, runtime = bench.of(engine, "bert", "mean")
    with pytest.raises(InputError, match=f"^{field} is"):
        runtime.run(setting, [random_payload(np.random.default_rng(0), length)])


def test_a_single_placement_holds_one_length_and_swaps_when_told(bench):
    encoder, shared = bench.of("eager", *PAIRS[0])
    single = BinsRuntime(encoder, SHAPES, "eager", placement="single")
    text = random_payload(np.random.default_rng(0), 6)
    with pytest.raises(InputError, match=r"setting is 0, but must be one that is loaded, \[\]"):
        single.run(0, [text])
    for setting, loaded in [(0, {0, 1}), (2, {2, 3}), (4, {4})]:
        single.load(setting)
        for other in range(len(SHAPES)):
            if other in loaded:
                expected = shared.run(other, [text]).outputs
                np.testing.assert_allclose(single.run(other, [text]).outputs, expected, atol=TOLERANCE)
            else:
                with pytest.raises(InputError, match="one that is loaded"):
                    single.run(other, [text])


def states_alone(encoder: Encoder, payload) -> np.ndarray:
    """Return the hidden states of one text's tokens, by the plain module and unpadded."""
    model = load_model(encoder)
    ids, types = (torch.from_numpy(array.astype(np.int64))[None] for array in payload)
    token_types = {"token_type_ids": types} if model.typed else {}
    with torch.inference_mode():
        return model.model(input_ids=ids, **token_types).last_hidden_state[0].numpy()


EMBEDDERS = [
    *(("eager", family, head) for family in FAMILIES for head in ("mean", "cls")),
    *(pytest.param("onnx", *pair, marks=pytest.mark.slow) for pair in PAIRS[1:]),
    ("onnx", "bert", "mean"),
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


IDS = torch.arange(5, 15).view(2, 5)
HALF = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def hidden(encoder, **inputs) -> torch.Tensor:
    return load_model(encoder).model(**inputs).last_hidden_state


@pytest.mark.parametrize("family", FAMILIES)
def test_an_embedding_is_the_mean_of_valid_tokens_or_the_first_one(family):
    mean = tiny_encoder(family, "embedding", "mean", normalize=False)
    with torch.inference_mode():
        token_BNH = hidden(mean, input_ids=IDS, attention_mask=HALF)
        expected = torch.stack([token_BNH[0].mean(0), token_BNH[1, :3].mean(0)])
        torch.testing.assert_close(load_model(mean)(IDS, HALF), expected)
        torch.testing.assert_close(load_model(mean)(IDS), load_model(mean)(IDS, torch.ones_like(IDS)))
        first = load_model(replace(mean, pooling="cls"))(IDS, HALF)
    torch.testing.assert_close(first, token_BNH[:, 0])


@pytest.mark.parametrize("head", ["classification", "embedding"])
def test_weights_that_do_not_fit_are_told_by_name(head):
    encoder = tiny_encoder("bert", head)
    name = next(name for name in encoder.weights if name.endswith("word_embeddings.weight"))
    lacking = {key: array for key, array in encoder.weights.items() if key != name}
    for weights in (lacking, {**encoder.weights, name: np.zeros((2, 2), np.float32)}):
        with pytest.raises(ArtifactError, match=f"the weights of tiny do not fit its configuration: .*{name}"):
            load_model(replace(encoder, weights=weights))


CPU = torch.device("cpu")


class Calls:
    """A capture that keeps the call. As with a graph, what it reads later is what lies at the same addresses then."""

    def __init__(self) -> None:
        self.captured = self.replayed = 0

    def __call__(self, call):
        self.captured += 1
        call()

        def replay():
            self.replayed += 1
            return call()

        return replay


@pytest.mark.parametrize("family", FAMILIES)
def test_a_graph_answers_for_what_its_buffers_hold_now(family):
    encoder, capture = tiny_encoder(family, "embedding"), Calls()
    model = load_model(encoder)
    eager, graphs = EagerEngine(model, CPU), GraphsEngine(model, model.inputs, CPU, capture)
    rng = np.random.default_rng(0)
    shapes = [Shape(12, 3), Shape(12, 1), Shape(5, 2)]
    calls = {shape: graphs.open(shape) for shape in shapes}
    for _ in range(2):
        for shape, call in calls.items():
            payloads = [random_payload(rng, int(rng.integers(1, shape.length + 1))) for _ in range(shape.batch)]
            batch = padded(shape, payloads, model.pad, model.typed)
            np.testing.assert_allclose(call(batch), eager.open(shape)(batch), atol=1e-5)
    assert (capture.captured, capture.replayed) == (3, 6)


def test_only_a_mask_is_left_out_and_nothing_is_learnt_from_what_runs():
    passed = []

    def model(**inputs):
        passed.append((sorted(inputs), torch.is_inference_mode_enabled()))
        return torch.zeros(1, 1)

    batch = {name: np.ones((1, 2), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    EagerEngine(model, CPU).open(Shape(2, 1))(batch)
    graphs = GraphsEngine(model, tuple(batch), CPU, Calls())
    graphs.open(Shape(2, 1))(batch)
    every = sorted(batch)
    assert passed == [(["input_ids", "token_type_ids"], True), (every, True), (every, True)]


def test_a_shape_that_cannot_be_captured_runs_without_a_graph_beside_the_others_and_is_told():
    model, good, notes = load_model(tiny_encoder()), Calls(), []

    def capture(call):
        if good.captured == 1:
            good.captured += 1
            raise RuntimeError("operation not permitted when stream is capturing")
        return good(call)

    shapes = [Shape(12, 2), Shape(8, 2), Shape(8, 1)]
    engine = GraphsEngine(model, model.inputs, CPU, capture, lambda *noted: notes.append(noted))
    calls = {shape: engine.open(shape) for shape in shapes}
    reason = "2 x 8 runs without a CUDA graph (operation not permitted when stream is capturing)"
    assert notes == [("capture", reason)]
    for shape, call in calls.items():
        payloads = [random_payload(np.random.default_rng(0), 5)] * shape.batch
        batch = padded(shape, payloads, model.pad, model.typed)
        np.testing.assert_allclose(call(batch), EagerEngine(model, CPU).open(shape)(batch), atol=1e-5)
    assert good.replayed == 2


@pytest.mark.parametrize("setting", [1, len(SHAPES) - 1])
def test_texts_that_the_device_has_no_memory_for_run_in_smaller_batches_in_the_dynamic_runtime(monkeypatch, setting):
    texts = [random_payload(np.random.default_rng(seed), 3 + seed) for seed in range(4)]
    expected = BinsRuntime(tiny_encoder(), SHAPES, "eager").run(setting, texts).outputs
    runtime = BinsRuntime(tiny_encoder(), SHAPES, "eager")
    call, sizes = EagerEngine._call, []

    def short_of_memory(engine, batch):
        sizes.append(batch["input_ids"].shape)
        if len(batch["input_ids"]) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return call(engine, batch)

    runtime._calls = {
        number: lambda batch: short_of_memory(runtime._engine._engine, batch) for number in runtime._calls
    }
    for _ in range(2):
        np.testing.assert_allclose(runtime.run(setting, texts).outputs, expected, atol=1e-5)
    assert [rows for rows, _ in sizes] == [4, 2, 2, 2, 2], "the larger batch is not tried again"
    assert [length for _, length in sizes[1:]] == [4, 6, 4, 6], "as long as the texts need"
    (text,) = runtime.fallbacks
    assert text.endswith("runs at most 2 at a time: the device lacked memory for 4")


@pytest.mark.parametrize("head", ["classification", "embedding"])
@pytest.mark.parametrize("family", FAMILIES)
def test_weights_may_be_converted_to_half_precision_and_outputs_stay_float32(monkeypatch, family, head):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    encoder = tiny_encoder(family, head)
    half, plain = (BinsRuntime(encoder, SHAPES, "eager", precision=name) for name in ("bfloat16", "float32"))
    assert {weight.dtype for weight in half._engine._engine._model.parameters()} == {torch.bfloat16}
    texts = [random_payload(np.random.default_rng(seed), 5 + seed) for seed in range(3)]
    for low, exact in zip(half.run(4, texts).outputs, plain.run(4, texts).outputs, strict=True):
        assert low.dtype == np.float32
        np.testing.assert_allclose(low, exact, atol=0.05)


def test_a_precision_that_the_engine_or_the_device_lacks_is_refused():
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 with the engine onnx"):
        BinsRuntime(tiny_encoder(), SHAPES, "onnx", precision="bfloat16")
    with pytest.raises(InputError, match="precision is float16, but must be float32 here: float16 is for GPUs"):
        BinsRuntime(tiny_encoder(), SHAPES, "eager", precision="float16")
