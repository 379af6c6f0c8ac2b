"""The cascade's runtime on a CPU: the same answers as transformers' plain model, alone and in a batch."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.cascade.runtime import CascadeRuntime, Execution, pack
from pliant.errors import ArtifactError, InputError
from pliant.fallbacks import Collector
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, positions
from pliant.models.packed import PackedLinear, can_pack
from tests.fixtures.cascade.classifiers import tiny_classifier

LENGTHS = (12, 5, 20, 12)


def payloads(lengths=LENGTHS, typed: bool = True):
    rng = np.random.default_rng(1)
    drawn = []
    for length in lengths:
        types = (np.arange(length) >= length // 2) & typed
        drawn.append((rng.integers(5, 80, length).astype(np.int32), types.astype(np.int8)))
    return drawn


def alone(classifier: Classifier, payload, **options) -> torch.Tensor:
    """Return the logits of transformers' unchanged model."""
    ids, types = (torch.from_numpy(each.astype(np.int64))[None] for each in payload)
    with torch.inference_mode():
        options = {"token_type_ids": types} if options.get("typed", True) else {}
        return load_model(classifier)(input_ids=ids, attention_mask=torch.ones_like(ids), **options).logits[0]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
@pytest.mark.parametrize("family", ["bert", "electra", "albert"])
def test_a_padded_batch_gives_each_text_what_it_gets_alone(family, importance, packed):
    classifier = tiny_classifier(family=family)
    run = CascadeRuntime({4: classifier}, execution=Execution(packed=packed)).run(4, payloads(), importance)
    assert [row.dtype for row in run.logits] == [np.float32] * 4
    for row, payload in zip(run.logits, payloads(), strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload), atol=1e-5)


@pytest.mark.parametrize("family", ["roberta", "distilbert", "modernbert", "t5"])
def test_families_without_token_types_or_with_one_are_given_none(family):
    classifier = tiny_classifier(family=family)
    some = [
        (np.append(ids, 3).astype(np.int32), np.append(types, 1)) for ids, types in payloads((9, 9))
    ]  # T5 needs an end token
    run = CascadeRuntime({0: classifier}).run(0, some)
    for row, payload in zip(run.logits, some, strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload, typed=False), atol=1e-5)


def test_models_go_by_their_numbers():
    models = {2: tiny_classifier(seed=1), 7: tiny_classifier("large", "electra", seed=2)}
    runtime = CascadeRuntime(models)
    for number, classifier in models.items():
        [row] = runtime.run(number, payloads((8,))).logits
        np.testing.assert_allclose(row, alone(classifier, payloads((8,))[0]), atol=1e-5)
    with pytest.raises(InputError, match=r"model is 3, but must be one of \[2, 7\]"):
        runtime.run(3, payloads())


@pytest.mark.parametrize(("family", "most"), [("bert", 40), ("roberta", 38), ("distilbert", 40), ("electra", 40)])
def test_a_text_beyond_the_models_positions_is_refused_with_the_limit(family, most):
    """RoBERTa's table of 40 positions serves 38 tokens: those up to the padding's own are unused."""
    classifier = tiny_classifier("base", family)
    assert positions(load_model(classifier)) == most
    runtime = CascadeRuntime({0: classifier})
    assert len(runtime.run(0, payloads((most,))).logits) == 1
    with pytest.raises(InputError, match=f"text is {most + 1} tokens long, but must be at most {most} for base"):
        runtime.run(0, payloads((5, most + 1)))


def test_importance_of_a_model_without_the_attention_interface_is_refused_by_name():
    runtime = CascadeRuntime({0: tiny_classifier("odd", "falcon")})
    assert len(runtime.run(0, payloads((6,))).logits) == 1
    with pytest.raises(InputError, match="importance is asked of odd"):
        runtime.run(0, payloads((6,)), importance=True)


def test_a_precision_that_is_unknown_or_slow_on_this_device_is_refused(monkeypatch):
    with pytest.raises(InputError, match="precision is float8, but must be one of float32, bfloat16, float16"):
        Execution("float8")
    with pytest.raises(InputError, match="precision is float16, but must be float32 here: float16 is for GPUs"):
        CascadeRuntime({0: tiny_classifier()}, execution=Execution("float16"))
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 here"):
        CascadeRuntime({0: tiny_classifier()}, execution=Execution("bfloat16"))


@pytest.fixture
def with_bfloat16(monkeypatch):
    """On every processor, though slowly where it has no instructions for it. Packing needs them."""
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)


@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_weights_are_converted_once_and_no_run_converts_any(with_bfloat16, family, importance):
    """Autocast over weights in float32 converted each of them in every launch, which doubled the operations."""
    classifier = tiny_classifier(family=family)
    runtime = CascadeRuntime({0: classifier}, execution=Execution("bfloat16", packed=False))
    module = runtime._models[0].module
    assert {weight.dtype for weight in module.parameters()} == {torch.bfloat16}
    weights = {weight.data_ptr() for weight in module.parameters()}
    with Conversions(weights) as converted:
        run = runtime.run(0, payloads(typed=family == "bert"), importance)
    assert converted.weights == 0
    plain = CascadeRuntime({0: classifier}, execution=Execution(packed=False))
    expected = plain.run(0, payloads(typed=family == "bert"), importance)
    for row, exact in zip(run.logits, expected.logits, strict=True):
        assert row.dtype == np.float32
        np.testing.assert_allclose(row, exact, atol=0.05)


class Conversions(TorchDispatchMode):
    """Counts the operations that convert a weight, by its address."""

    def __init__(self, addresses) -> None:
        super().__init__()
        self.addresses, self.weights = addresses, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._to_copy.default and args[0].data_ptr() in self.addresses:
            self.weights += 1
        return function(*args, **(kwargs or {}))


def test_a_decoder_in_a_padded_batch_answers_at_the_last_token_of_each_text():
    """transformers finds that token by the padding's id, which therefore must be the model's own."""
    classifier = tiny_classifier(family="llama")
    config = {**json.loads(classifier.config), "pad_token_id": 1}
    classifier = replace(classifier, config=json.dumps(config))
    some = payloads(typed=False)
    run = CascadeRuntime({0: classifier}).run(0, some)
    for row, payload in zip(run.logits, some, strict=True):
        np.testing.assert_allclose(row, alone(classifier, payload, typed=False), atol=1e-5)


@pytest.mark.parametrize("importance", [False, True], ids=["logits", "importance"])
def test_a_batch_that_the_device_lacks_memory_for_runs_in_smaller_ones_and_says_so(monkeypatch, importance):
    runtime, noted = CascadeRuntime({4: tiny_classifier()}), Collector()
    expected = runtime.run(4, payloads(), importance)
    sizes, pad = [], CascadeRuntime._pad

    def short_of_memory(self, loaded, texts):
        sizes.append(len(texts))
        if len(texts) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return pad(self, loaded, texts)

    monkeypatch.setattr(CascadeRuntime, "_pad", short_of_memory)
    for _ in range(2):
        run = runtime.run(4, payloads(), importance)
        for rows, wanted in ((run.logits, expected.logits), (run.importance or [], expected.importance or [])):
            for row, exact in zip(rows, wanted, strict=True):
                np.testing.assert_allclose(row, exact, atol=1e-4, rtol=1e-4)
    assert sizes == [4, 2, 2, 2, 2], "the larger batch is not tried again"
    (fallback,) = noted.take()
    assert fallback.kind == "memory"
    assert fallback.reason.endswith("runs at most 2 at a time: the device lacked memory for 4")


PACKS = pytest.mark.skipif(not can_pack(), reason="oneDNN's linear layers are for x86")


def linear(model: nn.Module, kind: type) -> list[nn.Module]:
    return [child for child in layers(model).modules() if type(child) is kind]


@PACKS
@pytest.mark.parametrize("family", ["bert", "distilbert"])
@torch.no_grad()
def test_a_packed_encoder_gives_the_same_logits(family):
    plain, packed = (load_model(tiny_classifier(family=family)) for _ in range(2))
    count = len(linear(plain, nn.Linear))
    pack(packed)
    assert not linear(packed, nn.Linear) and len(linear(packed, PackedLinear)) == count > 0
    assert sum(layer._activation == "gelu" for layer in linear(packed, PackedLinear)) == 2, "one a layer"
    ids = torch.randint(5, 80, (3, 12), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(packed(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


class Block(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.dense, self.intermediate_act_fn = nn.Linear(4, 4), activation

    def forward(self, x):
        return self.intermediate_act_fn(self.dense(x))


@PACKS
@pytest.mark.parametrize(
    ("activation", "fused"), [(nn.GELU(), True), (nn.GELU("tanh"), False), (nn.ReLU(), False)], ids=repr
)
@torch.no_grad()
def test_only_the_exact_gelu_becomes_one_with_its_layer(activation, fused):
    model = nn.Sequential(nn.ModuleList([Block(activation)]))
    block, x = model[0][0], torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = block(x)
    pack(model)
    assert isinstance(block.intermediate_act_fn, nn.Identity) == fused
    torch.testing.assert_close(block(x), expected, atol=1e-5, rtol=1e-4)


@PACKS
def test_a_model_without_layers_is_refused():
    with pytest.raises(ArtifactError, match="has no list of layers"):
        pack(nn.Linear(2, 2))
