"""Generators and predictors come back from their artifacts unchanged; what does not fit is reported."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from pliant.errors import ArtifactError, InputError
from pliant.packing.artifact import BUCKETS, PRECISIONS, TYPES, Generator, Predictor
from pliant.packing.engine import model as module
from pliant.packing.engine.model import (
    LengthModel,
    PredictorModel,
    in_precision,
    load_generator,
    new_encoder,
    weights,
)
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.request import Memory, check_fits, pages_within
from pliant.registry import codec
from pliant.training.starts import new_tokenizer
from tests.fixtures.packing.published import predictor as published_predictor

TEXTS = ["write a word about dogs", "write an essay on the old sea", "say a sentence", ""]


def generator(tied: bool) -> tuple[Generator, LlamaForCausalLM]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=tied,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    return Generator("g", config.to_json_string(use_diff=False), "", "", 64, (3, 5), "", weights(model)), model


ENCODERS = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
}


@pytest.fixture(params=ENCODERS)
def predictor(request) -> Predictor:
    torch.manual_seed(0)
    tokenizer = new_tokenizer(TEXTS, 60)
    size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 12}
    encoder = new_encoder({"model_type": request.param, **ENCODERS[request.param], **size})
    model = LengthModel(encoder)
    config = encoder.config.to_json_string(use_diff=False)
    return Predictor(
        *("p", "", config, tokenizer.to_str(), 12, QUANTILES, 20, (1.0,) * len(QUANTILES)),
        metrics={},
        data="",
        weights=weights(model),
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model.norm.weight": None}, "do not fit its configuration: model.norm.weight"),
        ({"extra": np.zeros(1, np.float32)}, "do not fit its configuration: extra"),
        ({"model.norm.weight": np.zeros(3, np.float32)}, "do not fit its configuration: Error"),
    ],
)
def test_weights_that_do_not_fit_are_told(change, sentence):
    stored, _ = generator(tied=True)
    changed = {name: array for name, array in (dict(stored.weights) | change).items() if array is not None}
    with pytest.raises(ArtifactError, match=sentence):
        load_generator(replace(stored, weights=changed))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_generator_is_stored_and_loaded_in_its_precision(tmp_path, tied, precision):
    whole, model = generator(tied)
    stored = in_precision(whole, precision)
    digest = codec.save(stored, tmp_path)
    read = codec.load(Generator, tmp_path, digest)
    assert read.precision == stored.precision == precision
    assert {array.dtype for array in read.weights.values()} == {TYPES[precision]}
    assert codec.save(replace(whole, weights=weights(model, precision)), tmp_path / "again") == digest
    loaded, ids = load_generator(read), torch.tensor([[1, 7, 22, 9]])
    assert loaded.dtype == loaded.config.dtype == getattr(torch, precision)
    assert loaded.generation_config.eos_token_id == [3, 5] and not loaded.training
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied
    direct = LlamaForCausalLM._from_config(model.config, attn_implementation="sdpa", dtype=loaded.dtype).eval()
    direct.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(loaded(ids).logits, direct(ids).logits)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_frequencies_of_rotary_embeddings_are_computed_as_without_loading(precision):
    _, model = generator(tied=True)
    rope = {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**(model.config.to_dict() | {"rope_parameters": rope})))
    config = model.config.to_json_string(use_diff=False)
    loaded = load_generator(Generator("g", config, "", "", 64, (3,), "", weights(model, precision)))
    for own, other in zip(loaded.buffers(), model.buffers(), strict=True):
        assert torch.equal(own, other) and own.dtype == other.dtype == torch.float32


@pytest.mark.parametrize(
    ("arrays", "found"),
    [((np.float32, np.float16), "float16, float32"), ((np.float64,), "float64"), ((np.int8,), "int8")],
)
def test_weights_of_several_precisions_or_of_an_unknown_one_are_refused(arrays, found):
    values = {str(dtype): np.ones(1, dtype) for dtype in arrays}
    with pytest.raises(InputError) as caught:
        Generator("g", "{}", "", "", 64, (1,), "", values)
    assert str(caught.value) == f"weights is of {found}, but must be all of one of float32, bfloat16, float16"


def test_a_prompt_is_predicted_alike_alone_and_beside_longer_ones(predictor):
    model = PredictorModel.of(predictor)
    for text, beside in zip(TEXTS, model.predict(TEXTS), strict=True):
        (alone,) = model.predict([text])
        assert alone.bucket == beside.bucket
        np.testing.assert_allclose(alone.tokens, beside.tokens, rtol=1e-4)


def test_quantiles_ascend_whatever_the_weights_and_the_shift(predictor):
    rng = np.random.default_rng(0)
    wild = {name: rng.normal(0, 2, array.shape).astype(np.float32) for name, array in predictor.weights.items()}
    for said in PredictorModel.of(replace(predictor, weights=wild)).predict(TEXTS):
        assert list(said.tokens) == sorted(said.tokens)
        assert min(said.tokens) >= 1 and max(said.tokens) <= BUCKETS * 20
        assert said.bucket in range(20, 201, 20)


class Given(torch.nn.Module):
    """An encoder of two hidden values, which are those of the words times ten."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=2)
        self.words = torch.nn.Embedding.from_pretrained(torch.tensor([[9.0, 9.0], [1.0, -2.0], [3.0, -4.0]]))

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.words

    def forward(self, input_ids, attention_mask):
        return SimpleNamespace(last_hidden_state=10 * self.words(input_ids))


def test_both_heads_read_the_mean_state_beside_the_largest_words_of_what_is_no_padding():
    model = LengthModel(Given())
    assert model.shift.tolist() == [0.0] * len(QUANTILES)
    ids, mask = torch.tensor([[1, 2, 0], [2, 0, 0]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    pooled = torch.tensor([[20.0, -30.0, 3.0, -2.0], [30.0, -40.0, 3.0, -4.0]])
    with torch.no_grad():
        model.quantile.weight.mul_(0.1)
        raw = model.quantile(pooled)
        logs, logits = model(ids, mask)
        expected = [raw[:, 0]]
        for at in range(1, len(QUANTILES)):
            expected.append(expected[-1] + torch.log1p(raw[:, at].exp()))
        torch.testing.assert_close(logs, torch.stack(expected, dim=1))
        torch.testing.assert_close(logits, model.bucket(pooled))
        model.shift += 0.5
        torch.testing.assert_close(model(ids, mask)[0], torch.stack(expected, dim=1) + 0.5)
    assert logits.shape == (2, BUCKETS)


GIB = 1 << 30
MIB = 1 << 20


def test_pages_follow_from_what_the_weights_leave_of_the_free_memory():
    assert pages_within(80 * GIB, 30 * GIB, GIB, on_gpu=True) == 45
    assert pages_within(80 * GIB, 30 * GIB, GIB, on_gpu=False) == 25
    assert pages_within(20 * GIB, 30 * GIB, GIB, on_gpu=True) == 0


def test_what_fits_passes_to_the_byte_and_what_does_not_is_refused_with_the_numbers():
    memory = Memory(pages=64, page_tokens=16, host_pages=32)
    check_fits(memory, MIB, GIB, 2 * GIB, "cuda:1")
    wanted = r"memory is 64 pages of 16 tokens \(1 GiB\) beside 1 GiB of weights, but .* 2 GiB in all, which cuda:1"
    with pytest.raises(InputError, match=wanted) as caught:
        check_fits(memory, MIB, GIB, 2 * GIB - 1, "cuda:1")
    assert "\n" not in str(caught.value)


def test_on_a_cpu_the_pages_of_preempted_sequences_count_too():
    memory = Memory(pages=64, page_tokens=16, host_pages=32)
    check_fits(memory, MIB, 0, 3 * GIB // 2, "cpu")
    with pytest.raises(InputError, match=r"96 pages of 16 tokens \(1.5 GiB\)"):
        check_fits(memory, MIB, 0, 3 * GIB // 2 - 1, "cpu")


def test_a_gpu_takes_its_own_precision_and_a_cpu_float32(monkeypatch):
    monkeypatch.setattr(module, "has_bfloat16", lambda device: device.index == 0)
    precisions = [module.precision_of(torch.device(device)) for device in ("cpu", "cuda:0", "cuda:1")]
    assert precisions == [torch.float32, torch.bfloat16, torch.float16]


def test_on_a_cpu_it_forecasts_as_it_was_trained():
    artifact = published_predictor("g")
    texts = ["word " * (7 * number % 30) for number in range(20)]
    for one, other in zip(
        PredictorModel.of(artifact).predict(texts), module.load(artifact, "cpu").predict(texts), strict=True
    ):
        assert (other.tokens, other.bucket) == (pytest.approx(one.tokens, rel=1e-4), one.bucket)


@pytest.mark.parametrize(
    ("alike", "passes"),
    [
        (2, [["a", "b"], ["cc", "ddd"], ["eeee"]]),
        (64, [["a", "b", "cc", "ddd", "eeee"]]),
        (0, [["ddd", "a", "eeee", "b", "cc"]]),
    ],
)
def test_prompts_of_similar_length_run_together_and_forecasts_keep_their_order(alike, passes, monkeypatch):
    ran = []

    def run(_model, texts):
        ran.append(texts)
        return torch.tensor([[float(len(text))] * len(QUANTILES) for text in texts]), torch.zeros(len(texts))

    monkeypatch.setattr(PredictorModel, "_run", run)
    model = PredictorModel(None, None, 99, 10, alike)
    texts = ["ddd", "a", "eeee", "b", "cc"]
    assert [forecast.tokens[0] for forecast in model.predict(texts)] == [len(text) for text in texts]
    assert ran == passes and model.predict([]) == []
