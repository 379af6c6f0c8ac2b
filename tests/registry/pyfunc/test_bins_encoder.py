"""An encoder of bins that is loaded by MLflow answers a row a text: labels with their confidence, or embeddings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pliant.models.text import Reader
from registry import codec
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.cascade.classifiers import TEXTS
from tests.fixtures.pyfunc import served


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    codec.save(tiny_encoder(head="embedding"), folder)
    return served("bins-encoder", folder)[1]


def answering(classes: tuple[str, ...], *outputs: list[float]):
    """A model whose runtime gives `outputs`, one a text; what it was given to read is kept."""
    rest, read = list(outputs), []

    def run(index, payloads):
        assert (index, len(payloads)) == (0, 1)
        read.append(payloads[0])
        return SimpleNamespace(outputs=[np.array(rest.pop(0), np.float32)])

    model = served("bins-encoder")[1]
    model.encoder = SimpleNamespace(classes=classes, head="classification")
    model.reader = Reader(tiny_encoder().tokenizer, 40)
    model.runtime = SimpleNamespace(run=run)
    return model, read


def test_embeddings_are_of_length_1_a_row_a_text_and_do_not_depend_on_the_others(sentences):
    rows = sentences.predict(pd.DataFrame({"text": TEXTS[:3]}))
    assert rows.dtype == np.float32 and rows.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(rows[2:], sentences.predict(pd.DataFrame({"text": TEXTS[2:3]})), atol=1e-6)
    assert np.abs(rows[0] - rows[1]).max() > 0.01


def test_the_second_text_of_a_pair_is_read(sentences):
    pairs = pd.DataFrame({"text": TEXTS[:1], "text_pair": TEXTS[1:2]})
    alone = sentences.predict(pairs[["text"]])
    assert np.abs(sentences.predict(pairs) - alone).max() > 0.01


def test_a_classifier_names_the_likeliest_class_and_its_probability():
    model, read = answering(("x", "y", "z"), [0, np.log(2), 0], [np.log(8), 0, 0])
    frame = model.predict(pd.DataFrame({"text": ["the dogs", "cats"], "text_pair": ["a", "b"]}))
    assert list(frame["label"]) == ["y", "x"]
    assert list(frame["confidence"]) == pytest.approx([2 / 4, 8 / 10])
    pair, single = (model.reader.read("the dogs", second).ids for second in ("a", None))
    assert read[0][0].tolist() == pair.tolist() != single.tolist()


def test_a_regressor_gives_its_value_and_no_confidence():
    frame = answering((), [2.5], [-1.0])[0].predict(pd.DataFrame({"text": ["the", "a"]}))
    assert frame.to_dict("list") == {"label": [2.5, -1.0]}
