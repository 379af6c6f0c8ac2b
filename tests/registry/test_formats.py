"""What registries hold can still be read: a version that calls its artifacts otherwise can read none of the former ones."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from pliant.bins.artifact import Bins, Encoder
from pliant.cascade.artifact import Cascade, Outputs
from pliant.models.artifact import Classifier
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.registry import codec
from pliant.tokens.artifact import Backbone, Profile, Task
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade.tiny import some_cascade, some_outputs
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.in_process import generator
from tests.fixtures.packing.tiny import some_packing, some_predictor
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

STORED = {
    Backbone: ("tokens-backbone", 1),
    Task: ("tokens-task", 1),
    Profile: ("tokens-profile", 1),
    Encoder: ("bins-encoder", 1),
    Bins: ("bins-plan", 1),
    Classifier: ("cascade-classifier", 1),
    Outputs: ("cascade-outputs", 1),
    Cascade: ("cascade-task", 1),
    Generator: ("packing-generator", 1),
    Predictor: ("packing-predictor", 1),
    Packing: ("packing-plan", 1),
}
"""Kind and schema of the artifacts that were released; a new schema comes with what reads the former one."""


WHOLE = [
    *(tiny_backbone(), tiny_task("t", "xyz", "d" * 64), tiny_profile("d" * 64, "cpu")),
    *(tiny_encoder(), some_bins(), some_outputs(), some_cascade(some_outputs())),
    *(tiny_generator(), some_predictor(), some_packing()),
]


@pytest.mark.parametrize("artifact", STORED, ids=lambda artifact: artifact.KIND)
def test_kinds_and_schemas_are_those_that_were_released(artifact):
    assert STORED[artifact] == (artifact.KIND, artifact.SCHEMA)


@pytest.mark.parametrize("artifact", WHOLE, ids=lambda artifact: artifact.KIND)
def test_every_artifact_comes_back_as_it_was(artifact, tmp_path):
    digest = codec.save(artifact, tmp_path / "a")
    np.testing.assert_equal(asdict(codec.load(type(artifact), tmp_path / "a", digest)), asdict(artifact))
    assert codec.save(artifact, tmp_path / "b") == digest


def test_artifacts_of_former_versions_are_read_without_what_they_did_not_have(tmp_path):
    lacking = {
        Encoder: ("prompts", tiny_encoder(prompts={"query": "q: "})),
        Bins: ("unpooled", some_bins(unpooled=True)),
        Generator: ("special_tokens", generator(special_tokens={"bos_token": "<s>"})),
    }
    for kind, (name, artifact) in lacking.items():
        files = codec.encode(artifact)
        document = json.loads(files[codec.VALUES])
        del document["values"][name]
        former = codec.decode(kind, {**files, codec.VALUES: json.dumps(document).encode()}, tmp_path)
        assert not getattr(former, name) and getattr(codec.decode(kind, files, tmp_path), name)
