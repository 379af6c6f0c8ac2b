"""The predictor learns which words make an output long, gives quantiles, and can be trained further on its errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

from pliant.errors import InputError
from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import LinearModel, PredictorModel
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.registry import codec
from pliant.training.packing.lengths import LengthData, observed
from pliant.training.packing.predictor import PredictorConfig, earns, judge, mispredicted, retrain, saving, train
from pliant.training.starts import new_tokenizer

KINDS = {"word": 2, "sentence": 20, "paragraph": 80, "essay": 300}
FILLERS = ("about dogs", "on the sea", "with care", "for me", "of the old town", "that rhymes")
SIZES = {"width": 32, "heads": 2, "vocabulary": 120, "max_length": 16, "limit": 600}
SMALL = PredictorConfig(kind="encoder", epochs=20, batch=16, rate=5e-3, **SIZES)
LINEAR = replace(SMALL, kind="linear")


def data(count: int = 400, seed: int = 0, factor: float = 1.0) -> LengthData:
    """Return lengths that are log-normal around the kind that the prompt names; `factor` makes all longer."""
    rng = np.random.default_rng(seed)
    pairs = []
    for n in range(count):
        kind = list(KINDS)[rng.integers(len(KINDS))]
        length = KINDS[kind] * factor * np.exp(0.3 * rng.normal())
        pairs.append((f"write a {kind} {FILLERS[rng.integers(len(FILLERS))]} {n}", max(1, round(length))))
    return observed("kinds", pairs)


@pytest.fixture(scope="module")
def predictor():
    return train(SMALL, data(1000), name="small", generator="abc")


@pytest.fixture(scope="module")
def judged(predictor):
    return judge(predictor, data(300, seed=1))


def test_it_beats_the_majority_class_and_the_constant_quantiles(judged):
    assert judged["bucket_accuracy"] > judged["majority_class"] + 0.2
    assert judged["pinball"] < 0.4 * judged["constant_pinball"] < 0.4 * judged["majority_pinball"]
    assert judged["tau"] > 0.7


def test_the_better_of_an_encoder_and_a_linear_model_is_taken_and_both_are_noted():
    test = data(100, seed=2)
    hasty = train(replace(SMALL, kind="best", epochs=1), data(200), test=test)
    assert isinstance(PredictorModel.of(hasty).model, LinearModel)
    assert hasty.metrics["pinball"] == hasty.metrics["linear_pinball"] < hasty.metrics["encoder_pinball"]
    with pytest.raises(InputError, match="kind"):
        replace(SMALL, kind="quadratic")


def test_where_neither_earns_anything_the_same_quantiles_are_forecast_for_all_and_a_later_one_can_learn():
    random = observed("random", [(prompt, 1 + 7 * n % 97) for n, prompt in enumerate(data(300).prompts)])
    nothing = train(replace(SMALL, kind="best", epochs=1), random)
    forecasts = PredictorModel.of(nothing).predict(["write a word", "", "write an essay"])
    assert forecasts[0] == forecasts[1] == forecasts[2]
    assert {"linear_pinball", "encoder_pinball"} <= set(nothing.metrics)
    assert all(abs(nothing.metrics[f"coverage_{level:g}"] - level) < 0.1 for level in QUANTILES)
    after = retrain(nothing, data(600), np.ones(600))
    assert after.metrics["pinball"] < 0.6 * judge(nothing, data(300, seed=1))["pinball"]


def test_one_that_orders_prompts_beyond_chance_stays_though_its_loss_is_within_chance(predictor):
    rng = np.random.default_rng(0)
    tokens = np.rint(np.exp(rng.normal(4, 1, 300))).astype(np.int32)
    hint = 0.1 * (np.log(tokens) - 4) + rng.normal(0, 0.2, 300)
    constant = replace(predictor, marginal=tuple(np.quantile(tokens, QUANTILES)))
    ordered = np.array(constant.marginal) * np.exp(0.2 * hint)[:, None]
    assert saving(constant, ordered, tokens)[0] > 0 and earns(constant, ordered, tokens)
    assert not earns(constant, ordered[rng.permutation(300)], tokens)


def test_a_linear_predictor_beats_the_majority_is_kept_without_a_pickle_and_learns_on(tmp_path):
    predictor = train(LINEAR, data(600))
    judged = judge(predictor, data(300, seed=1))
    assert judged["bucket_accuracy"] > judged["majority_class"] + 0.2
    assert judged["pinball"] < 0.5 * judged["constant_pinball"]
    codec.save(predictor, tmp_path / "kept")
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".json", ".safetensors"}
    loaded, prompts = codec.load(Predictor, tmp_path / "kept"), ["write a word", "", "x" * 10_000]
    assert PredictorModel.of(loaded).predict(prompts) == PredictorModel.of(predictor).predict(prompts)
    later, test = data(300, seed=4, factor=1.7), data(200, seed=5, factor=1.7)
    after = retrain(predictor, later, mispredicted(predictor, later), test=test)
    assert after.metrics["pinball"] < 0.8 * judge(predictor, test)["pinball"]
    assert isinstance(PredictorModel.of(after).model, LinearModel)


def test_a_predictor_learns_on_from_a_generator_that_has_become_longer(predictor):
    later = data(400, seed=4, factor=1.7)
    weight_R = mispredicted(predictor, later, 3.0)
    assert 0.3 < np.mean(weight_R == 3.0) < 1.0
    test = data(200, seed=5, factor=1.7)
    before, after = (
        judge(predictor, test),
        retrain(predictor, later, weight_R, replace(SMALL, epochs=6, rate=2e-3), test=test),
    )
    assert after.metrics["pinball"] < 0.8 * before["pinball"]
    assert abs(after.metrics["coverage_0.5"] - 0.5) < 0.15 < before["coverage_0.9"]
    assert (after.bucket_tokens, after.generator, after.max_length) == (predictor.bucket_tokens, "abc", 16)


def test_figures_are_those_of_a_plain_computation(predictor):
    observed_ = data(50, seed=7)
    said = PredictorModel.of(predictor).predict(observed_.prompts)
    figures, lengths = judge(predictor, observed_), observed_.tokens.tolist()
    loss = []
    for forecast, length in zip(said, lengths, strict=True):
        for level, tokens in zip(QUANTILES, forecast.tokens, strict=True):
            over = np.log(length) - np.log(tokens)
            loss.append(level * over if over > 0 else (level - 1) * over)
    assert figures["pinball"] == pytest.approx(np.mean(loss))
    right = [forecast.bucket - 60 < length <= forecast.bucket for forecast, length in zip(said, lengths, strict=True)]
    assert figures["bucket_accuracy"] == pytest.approx(np.mean(right))
    assert figures["over_bucket"] == pytest.approx(
        np.mean([max(0, s.bucket - n) for s, n in zip(said, lengths, strict=True)])
    )
    assert figures["tau"] == pytest.approx(kendalltau([forecast.tokens[3] for forecast in said], lengths).statistic)


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_an_encoder_in_a_folder_is_taken_and_keeps_what_it_knows(tmp_path, family):
    tokenizer = new_tokenizer(data(60).prompts, 120)
    size = {"vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": 20}
    torch.manual_seed(0)
    if family == "bert":
        model = BertModel(
            BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, **size)
        )
    else:
        model = DistilBertModel(DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=16, **size))
    model.save_pretrained(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    config = replace(SMALL, encoder=f"path:{tmp_path}", epochs=1, pretrained_rate=0.0, decay=0.0)
    predictor = train(config, data(60))
    kept = predictor.weights["encoder.embeddings.word_embeddings.weight"]
    assert np.array_equal(kept, model.get_input_embeddings().weight.detach().numpy())
    assert len(PredictorModel.of(predictor).predict(["write a word", "write an essay"])) == 2
    with pytest.raises(InputError, match="max_length is 21, but must be at most 20"):
        train(replace(config, max_length=21), data(60))
