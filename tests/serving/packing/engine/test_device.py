"""An engine is built in its process on the device that it was profiled on, or not at all; a predictor as published."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pliant.errors import DeviceError, DigestError, InputError
from pliant.packing.scheduling.reference import rules_of
from pliant.registry import codec
from pliant.serving.packing.engine import device
from pliant.serving.packing.engine.device import build
from pliant.serving.packing.engine.engine_process import EngineBuild, PredictorBuild
from pliant.serving.workers.devices import DevicePlan
from tests.fixtures.packing.published import generator, packing, predictor


@pytest.fixture
def spec(tmp_path):
    def spec(profiled_on: str | None = None, digest: str = "") -> EngineBuild:
        actual, planned = codec.save(generator(), tmp_path / "generator"), packing("g", "p")
        rules = rules_of(planned, 64)
        plan = DevicePlan("cpu", 1, profiled_on, ())
        return EngineBuild(tmp_path / "generator", digest or actual, planned.memory, rules, plan, None)

    return spec


def test_another_class_of_device_than_the_profiles_is_refused(spec):
    with pytest.raises(DeviceError, match="the profile was measured on a large GPU, but this device is"):
        build(spec("a large GPU"), lambda _news: None)


def test_more_pages_than_the_device_has_room_for_are_refused_before_the_model_is_loaded(spec, monkeypatch):
    monkeypatch.setattr(device, "Engine", None)
    monkeypatch.setattr(device, "free_bytes", lambda name: 1 << 20)
    large = replace(spec(), memory=replace(spec().memory, pages=1 << 20), token_bytes=1 << 10)
    with pytest.raises(InputError, match=r"memory is \d+ pages of .* which cpu has free"):
        build(large, lambda _news: None)


TEXTS = ["a text", "a text", "quite another text of several words"]


@pytest.fixture
def published_predictor(tmp_path):
    before, kept = torch.get_num_threads(), torch.backends.mkldnn.enabled
    digest = codec.save(predictor("g"), tmp_path / "predictor")
    yield PredictorBuild(tmp_path / "predictor", digest, DevicePlan("cpu", 1, None, ()))
    torch.set_num_threads(before)
    torch.backends.mkldnn.set_flags(kept)


def test_it_predicts_quantiles_and_a_class_for_each_text_in_one_thread(published_predictor):
    torch.set_num_threads(2)
    device = published_predictor()
    assert torch.get_num_threads() == 1
    (one, same, other), seconds = device.run(0, TEXTS)
    assert len(one.tokens) == 8 and list(one.tokens) == sorted(one.tokens) and isinstance(one.bucket, int)
    assert (same.tokens, same.bucket) == (pytest.approx(one.tokens), one.bucket) and other.tokens != one.tokens
    assert seconds > 0


def test_another_predictor_than_was_published_is_refused(published_predictor):
    with pytest.raises(DigestError):
        PredictorBuild(published_predictor.folder, "0" * 64, published_predictor.plan)()


def test_an_engine_runs_in_the_precision_of_its_plan(spec, monkeypatch):
    made, started = [], SimpleNamespace(start=lambda: None)
    monkeypatch.setattr(device, "Engine", lambda generator, *_rest, **_options: made.append(generator) or started)
    monkeypatch.setattr(device, "check_precision", lambda *given: made.append(given))
    build(replace(spec(), precision="bfloat16"), "deliver")
    assert made[0] == ("bfloat16", "cpu") and made[1].precision == "bfloat16"
