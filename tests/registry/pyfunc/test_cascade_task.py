"""A cascade that is loaded without its models says what is missing."""

from __future__ import annotations

from types import SimpleNamespace

import mlflow
import pytest

from pliant.errors import BackboneError, InputError, RegistryError
from pliant.models.artifact import Classifier
from registry import codec
from registry.pyfunc.cascade_task import _candidate, _classifier
from tests.fixtures.cascade.classifiers import tiny_classifier

CASCADE = SimpleNamespace(task="mails", candidates=[SimpleNamespace(name="default"), SimpleNamespace(name="single")])
CONFIG = {"model.small": "models:/small/1"}


def test_a_candidate_is_found_by_its_name():
    assert [_candidate(CASCADE, name) for name in ("default", "single")] == [0, 1]
    with pytest.raises(InputError, match="candidate is best, but must be one of default, single"):
        _candidate(CASCADE, "best")


def test_a_model_is_fetched_under_its_address_and_must_be_the_one_that_was_planned_for(tmp_path, monkeypatch):
    digest = codec.save(tiny_classifier(), tmp_path / "bundle")
    fetched = {"models:/small/1/artifacts/bundle": str(tmp_path / "bundle")}
    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fetched.__getitem__)
    assert isinstance(_classifier(CASCADE, SimpleNamespace(name="small", classifier=digest), CONFIG), Classifier)
    with pytest.raises(BackboneError, match="mails was planned for another model than models:/small/1"):
        _classifier(CASCADE, SimpleNamespace(name="small", classifier="0" * 64), CONFIG)


def test_a_model_that_cannot_be_fetched_is_named_with_what_helps(monkeypatch):
    def fail(_uri):
        raise ConnectionError("no route")

    monkeypatch.setattr(mlflow.artifacts, "download_artifacts", fail)
    with pytest.raises(
        RegistryError, match=r"needs its model models:/small/1, .* \(no route\): set MLflow's tracking URI"
    ):
        _classifier(CASCADE, SimpleNamespace(name="small", classifier="0" * 64), CONFIG)
