"""The predictor is read as it was published, warmed up, and runs in one thread of the service's process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pliant.errors import DigestError
from registry import codec
from serving.packing.engine import predictor_device
from serving.packing.engine.forecaster import MAX_TEXTS
from tests.fixtures.packing.published import predictor


@pytest.fixture
def published(tmp_path):
    before, kept = torch.get_num_threads(), torch.backends.mkldnn.enabled
    yield tmp_path / "predictor", codec.save(predictor("g"), tmp_path / "predictor")
    torch.set_num_threads(before)
    torch.backends.mkldnn.set_flags(kept)


def test_it_predicts_quantiles_and_a_class_for_each_text_in_one_thread(published):
    torch.set_num_threads(2)
    predict = predictor_device.load(*published)
    assert torch.get_num_threads() == 1
    (tokens, bucket), same, other = predict(["a text", "a text", "quite another text of several words"])
    assert len(tokens) == 8 and list(tokens) == sorted(tokens) and isinstance(bucket, int)
    assert same == (pytest.approx(tokens), bucket) and other[0] != tokens


def test_it_has_run_before_its_first_request(published, monkeypatch):
    seen = []

    def predict(texts):
        seen.append(len(texts))
        return [SimpleNamespace(tokens=[1.0, 2.0], bucket=3) for _ in texts]

    monkeypatch.setattr(predictor_device.PredictorModel, "of", lambda artifact: SimpleNamespace(predict=predict))
    loaded = predictor_device.load(*published)
    assert seen == [MAX_TEXTS, 2]
    assert loaded(["a"]) == [((1.0, 2.0), 3)] and seen == [MAX_TEXTS, 2, 1]


def test_it_runs_without_onednn_which_keeps_something_of_every_shape(published):
    torch.backends.mkldnn.set_flags(True)
    predictor_device.load(*published)
    assert not torch.backends.mkldnn.enabled


def test_another_predictor_than_was_published_is_refused(published):
    with pytest.raises(DigestError):
        predictor_device.load(published[0], "0" * 64)
