"""A task of tokens that is loaded by MLflow answers a row an image, and says what is missing."""

from __future__ import annotations

from types import SimpleNamespace

import mlflow
import numpy as np
import pytest

from pliant.errors import BackboneError, RegistryError
from registry import codec
from registry.pyfunc.tokens_task import BATCH, TokensTask, _backbone
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task


@pytest.fixture
def model(tmp_path, monkeypatch):
    digest = codec.save(tiny_backbone(), tmp_path / "backbone")
    codec.save(tiny_task("digits", ["zero", "one", "two"], digest), tmp_path / "task")
    fetched = {"models:/backbone/1/artifacts/bundle": str(tmp_path / "backbone")}
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fetched.__getitem__)
    model = TokensTask()
    config = {"backbone": "models:/backbone/1", "device": "cpu"}
    model.load_context(SimpleNamespace(model_config=config, artifacts={"bundle": str(tmp_path / "task")}))
    return model


@pytest.mark.parametrize("count", [0, 1, 2, BATCH + 1])
def test_it_answers_a_row_an_image_in_their_order(model, count):
    images = np.stack(random_images(BATCH + 1))[:count]
    frame = model.predict(images)
    assert list(frame.columns) == ["zero", "one", "two"] and len(frame) == count
    np.testing.assert_allclose(frame.to_numpy(float).sum(axis=1), 1, atol=1e-5)
    if count > 1:
        np.testing.assert_allclose(frame.iloc[-1], model.predict(images[-1:]).iloc[0], atol=1e-5)


def test_gamma_is_a_parameter_of_the_prediction_and_0_without_one(model):
    images = np.stack(random_images(1))
    plain, zero, merged = (model.predict(images, params) for params in (None, {"gamma": 0}, {"gamma": 4}))
    assert plain.equals(zero) and not plain.equals(merged)


def test_another_backbone_or_none_is_named(model, monkeypatch):
    with pytest.raises(BackboneError, match="task digits was made for another backbone than models:/backbone/1"):
        _backbone(SimpleNamespace(name="digits", backbone="0" * 64), "models:/backbone/1")

    def fail(_uri):
        raise ConnectionError("no route")

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fail)
    with pytest.raises(RegistryError, match=r"needs its backbone models:/backbone/1, .* \(no route\)"):
        _backbone(SimpleNamespace(name="digits", backbone="0" * 64), "models:/backbone/1")
