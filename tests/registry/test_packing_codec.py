"""Generators, predictors and plans of packing come back from their folders as they were, or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from pliant.errors import ArtifactError, DigestError, SchemaError
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.registry import codec
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.tiny import some_packing, some_predictor


@pytest.mark.parametrize(
    "artifact", [tiny_generator(), some_predictor(), some_packing()], ids=lambda artifact: artifact.KIND
)
def test_every_packing_artifact_comes_back_as_it_was(tmp_path, artifact):
    digest = codec.save(artifact, tmp_path / "a")
    np.testing.assert_equal(asdict(codec.load(type(artifact), tmp_path / "a", digest)), asdict(artifact))
    assert codec.save(artifact, tmp_path / "b") == digest


def test_a_plans_arrays_keep_their_types(tmp_path):
    codec.save(some_packing(), tmp_path)
    packing = codec.load(Packing, tmp_path)
    assert packing.prompt_tokens.dtype == packing.output_tokens.dtype == packing.buckets.dtype == np.int32
    assert packing.forecasts.dtype == np.float32
    assert packing.memory == some_packing().memory
    assert packing.steps == some_packing().steps


def test_a_predictor_that_was_stored_says_the_same(tmp_path):
    predictor = some_predictor()
    codec.save(predictor, tmp_path)
    texts = ["explain the old oak", "say it", ""]
    stored = PredictorModel.of(codec.load(Predictor, tmp_path)).predict(texts)
    assert stored == PredictorModel.of(predictor).predict(texts)


def test_arrays_of_other_types_and_levels_of_another_time_are_refused(tmp_path):
    codec.save(some_packing(), tmp_path / "a")
    with pytest.raises(ArtifactError, match="int64 where int32 is needed"):
        codec.save(replace(some_packing(), output_tokens=np.arange(3)), tmp_path / "b")
    codec.save(some_predictor(), tmp_path / "p")
    document = json.loads((tmp_path / "p" / "artifact.json").read_text())
    document["values"]["levels"] = [0.5]
    (tmp_path / "p" / "artifact.json").write_text(json.dumps(document))
    with pytest.raises(DigestError):
        codec.load(Predictor, tmp_path / "p")
    with pytest.raises(SchemaError, match="packing-plan of schema 1, but packing-generator"):
        codec.load(Generator, tmp_path / "a")
