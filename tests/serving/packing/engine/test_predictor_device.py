"""The predictor is read as it was published, warmed up, and predicts in a process of its own, as its device is fastest."""

from __future__ import annotations

import pytest
import torch

from pliant.errors import DigestError
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import PredictorBuild
from pliant.serving.workers.devices import DevicePlan
from tests.fixtures.packing.published import predictor

TEXTS = ["a text", "a text", "quite another text of several words"]


@pytest.fixture
def published(tmp_path):
    before, kept = torch.get_num_threads(), torch.backends.mkldnn.enabled
    digest = codec.save(predictor("g"), tmp_path / "predictor")
    yield PredictorBuild(tmp_path / "predictor", digest, DevicePlan("cpu", 1, None, ()))
    torch.set_num_threads(before)
    torch.backends.mkldnn.set_flags(kept)


def test_it_predicts_quantiles_and_a_class_for_each_text_in_one_thread(published):
    torch.set_num_threads(2)
    device = published()
    assert torch.get_num_threads() == 1
    ((tokens, bucket), same, other), seconds = device.run(0, TEXTS)
    assert len(tokens) == 8 and list(tokens) == sorted(tokens) and isinstance(bucket, int)
    assert same == (pytest.approx(tokens), bucket) and other[0] != tokens
    assert seconds > 0


def test_another_predictor_than_was_published_is_refused(published):
    with pytest.raises(DigestError):
        PredictorBuild(published.folder, "0" * 64, published.plan)()
