"""A level of a cascade that is loaded by MLflow alone answers a row a text, with an uncalibrated confidence."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pliant.models.classifier import load_model
from pliant.models.text import Reader
from registry import codec
from tests.fixtures.cascade.classifiers import TEXTS, tiny_classifier
from tests.fixtures.pyfunc import served


@pytest.mark.parametrize("pair", [False, True])
def test_it_answers_as_the_model_of_transformers_does(tmp_path, pair):
    import torch

    classifier = tiny_classifier()
    codec.save(classifier, tmp_path)
    frame = pd.DataFrame({"text": TEXTS[:3]} | ({"text_pair": TEXTS[3:6]} if pair else {}))
    answers = served("cascade-classifier", tmp_path)[1].predict(frame)
    model, reader = load_model(classifier), Reader(classifier.tokenizer, classifier.max_length)
    for row in range(3):
        reading = reader.read(TEXTS[row], TEXTS[3 + row] if pair else None)
        ids, types = (torch.tensor(np.asarray(part, np.int64)[None]) for part in (reading.ids, reading.types))
        with torch.no_grad():
            share_K = model(input_ids=ids, token_type_ids=types).logits.softmax(-1)[0].numpy()
        assert answers["label"][row] == "xyz"[int(share_K.argmax())]
        assert answers["confidence"][row] == pytest.approx(float(share_K.max()), abs=1e-5)


def test_a_regressor_gives_its_value_and_no_confidence():
    model = served("cascade-classifier")[1]
    model.classifier = SimpleNamespace(classes=())
    model.reader = Reader(tiny_classifier().tokenizer, 24)
    model.runtime = SimpleNamespace(run=lambda *_: SimpleNamespace(logits=[np.array([-2.5], np.float32)]))
    assert model.predict(pd.DataFrame({"text": ["a dog"]})).to_dict("list") == {"label": [-2.5]}
