"""Training classifiers of any family, on pairs and regressions: the best epoch is kept, only the fit split is used."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, module
from pliant.training.classifier import ClassifierConfig, encode, train
from pliant.training.data import split
from pliant.training.starts import ScratchConfig, Start, new_tokenizer, scratch
from pliant.training.text_data import TextData, assemble
from tests.fixtures.cascade.classifiers import TEXTS, WORDS, tiny_config

SHORT = ClassifierConfig(epochs=2, batch=16, rate=5e-3, head_rate=5e-3, max_length=16, precision="float32")
TINY = ScratchConfig(width=16, layers=2, heads=2, vocabulary=80, positions=32, dropout=0.0)
START = scratch(TINY, TEXTS)


def sentences(count: int = 200, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(count)]


def data(kind: str = "single", count: int = 200) -> TextData:
    """Return a data set of one kind.

    single: does the text name an animal? pair: are there more words in the second text? regression: the number of
    words.
    """
    first, second = sentences(count), sentences(count, seed=1)
    rows_split = split(count, 0)
    if kind == "pair":
        labels = np.array([len(b.split()) > len(a.split()) for a, b in zip(first, second, strict=True)], dtype=np.int64)
        return assemble("pairs", first, second, labels, ("shorter", "longer"), rows_split)
    if kind == "regression":
        return assemble(
            "count", first, None, np.array([100.0 + 10 * len(text.split()) for text in first]), (), rows_split
        )
    labels = np.array(["dogs" in text or "cats" in text for text in first], dtype=np.int64)
    return assemble("animals", first, None, labels, ("none", "animals"), rows_split)


def family(name: str) -> Start:
    return Start(lambda outputs: module(tiny_config(name, outputs)), new_tokenizer(TEXTS, 80), fresh=True)


@torch.no_grad()
def answers(classifier: Classifier, texts: TextData, rows) -> np.ndarray:
    model = load_model(classifier)
    encodings = encode(START.tokenizer, texts.texts(rows), classifier.max_length)
    return np.array([model(input_ids=torch.tensor([encoding.ids])).logits[0].numpy() for encoding in encodings])


def test_a_classifier_learns_and_says_what_it_was_trained_on():
    texts = data(count=600)
    classifier, curves = train(replace(SHORT, epochs=6), "small", texts, START)
    right = answers(classifier, texts, texts.split.test).argmax(1) == texts.labels[texts.split.test]
    assert right.mean() > 0.9
    assert (classifier.name, classifier.task, classifier.classes, classifier.data) == (
        "small",
        "animals",
        texts.classes,
        texts.fingerprint,
    )
    assert curves.score[-1] > 0.9
    assert curves.train_loss[-1] < curves.train_loss[0]


@pytest.mark.parametrize("name", ["bert", "roberta", "electra", "distilbert", "albert", "modernbert"])
@pytest.mark.parametrize("kind", ["single", "pair", "regression"])
def test_every_family_trains_with_the_arguments_it_takes(name, kind):
    """DistilBERT takes no token types, and RoBERTa has a single one: the second text's was once out of its table."""
    classifier, _ = train(replace(SHORT, epochs=1), "small", data(kind, 40), family(name))
    assert all(np.isfinite(array).all() for array in classifier.weights.values())
    load_model(classifier)


def test_the_best_epoch_is_kept_and_training_ends_when_it_gets_no_better():
    """Random labels cannot be learnt: the held-out loss only rises."""
    texts = replace(data(), labels=np.random.default_rng(0).integers(0, 2, 200))
    seen: list[tuple[int, Classifier]] = []
    config = replace(SHORT, epochs=30, patience=1, rate=1e-2, head_rate=1e-2)
    classifier, curves = train(config, "small", texts, START, checkpoint=lambda epoch, best: seen.append((epoch, best)))
    best = int(np.argmin(curves.loss))
    assert len(curves.loss) == best + 3 < 30
    assert seen[-1][0] == best
    assert all(np.array_equal(array, seen[-1][1].weights[name]) for name, array in classifier.weights.items())


def test_the_first_layers_are_kept_where_fewer_are_asked_for():
    classifier, _ = train(replace(SHORT, epochs=1, layers=1), "small", data(count=40), START)
    assert json.loads(classifier.config)["num_hidden_layers"] == len(layers(load_model(classifier))) == 1
    modern, _ = train(replace(SHORT, epochs=1, layers=1), "small", data(count=40), family("modernbert"))
    assert len(layers(load_model(modern))) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layers": 3}, "layers is 3, but must be from 1 to 2"),
        ({"max_length": 33}, "max_length is 33, but must be at most 32 for this model"),
    ],
)
def test_what_a_model_does_not_have_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        train(replace(SHORT, **change), "small", data(count=40), START)
