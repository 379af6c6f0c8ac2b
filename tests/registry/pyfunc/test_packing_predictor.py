"""A predictor of lengths that is loaded by MLflow answers a row a prompt, a column a quantile."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd

from pliant.packing.artifact import Predictor
from tests.fixtures.pyfunc import served


def test_the_quantiles_have_their_probabilities_as_names_and_the_bucket_is_the_last_column(monkeypatch, tmp_path):
    read = []

    def predict(texts):
        read.append(texts)
        return [SimpleNamespace(tokens=(2.0, 7.0), bucket=10), SimpleNamespace(tokens=(3.0, 9.0), bucket=20)]

    module, model = served("packing-predictor")
    predictor = SimpleNamespace(levels=(0.05, 0.99))
    stored = {(Predictor, tmp_path): predictor}
    monkeypatch.setattr(module.codec, "load", lambda *given: stored[given])
    monkeypatch.setattr(module.PredictorModel, "of", lambda given: SimpleNamespace(predict=predict, given=given))
    model.load_context(SimpleNamespace(artifacts={"bundle": str(tmp_path)}))
    frame = model.predict(pd.DataFrame({"text": ["why", "how"]}))
    assert frame.to_dict("list") == {"q0.05": [2.0, 3.0], "q0.99": [7.0, 9.0], "bucket": [10, 20]}
    assert list(frame)[-1] == "bucket"
    assert read == [["why", "how"]] and model.model.given is predictor
