"""The runtimes of bins in a device process: several streams, warmed up and verified, or one length under "single"."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import ArtifactError, DeviceError, DigestError, InputError
from pliant.registry import codec
from pliant.serving.bins.messages import BinsBuild, StreamBuild
from pliant.serving.workers.devices import DevicePlan
from tests.fixtures.bins.encoders import random_payload
from tests.fixtures.bins.published import DEVICE, SHAPES, encoder

NAMES = ("colours", "meanings")
ENCODERS = [encoder(name) for name in NAMES]


@pytest.fixture
def told(tmp_path):
    digests = [codec.save(one, tmp_path / one.name) for one in ENCODERS]
    streams = [
        StreamBuild(tmp_path / name, digest, "eager", SHAPES, tmp_path / "none", {})
        for name, digest in zip(NAMES, digests, strict=True)
    ]
    return BinsBuild(tuple(streams), "shared", None, DevicePlan("cpu", 1, DEVICE, ()))


def payloads(count: int = 1, length: int = 7):
    rng = np.random.default_rng(3)
    return [random_payload(rng, length) for _ in range(count)]


def test_a_launchs_setting_counts_the_shapes_of_all_streams(told):
    model = told()
    for number, made in enumerate(ENCODERS):
        plain = BinsRuntime(made, SHAPES, "eager")
        for local, shape in enumerate(SHAPES):
            given = payloads(shape.batch)
            outputs, seconds = model.run(number * len(SHAPES) + local, given)
            np.testing.assert_allclose(outputs, plain.run(local, given).outputs, atol=1e-5)
            assert seconds > 0
    with pytest.raises(InputError, match="setting is 8, but must be the number of a shape, from 0 to 7"):
        model.run(8, payloads())


SHORTER, LONGER = [(0, 1, 8), (1, 4, 8)], [(2, 1, 40), (3, 8, 8), (3, 8, 40)]  # shapes, texts and their tokens


@pytest.mark.parametrize(
    "placement, first, ran, streams", [("shared", None, SHORTER + LONGER, 2), ("single", 4, SHORTER, 1)]
)
def test_every_shape_runs_before_the_first_request(told, monkeypatch, placement, first, ran, streams):
    runs, run = Counter(), BinsRuntime.run

    def count_and_run(self, local, texts, unpooled):
        assert not unpooled
        runs[local, len(texts), len(texts[0][0])] += 1
        return run(self, local, texts)

    monkeypatch.setattr(BinsRuntime, "run", count_and_run)
    replace(told, placement=placement, first=first)()
    assert runs == dict.fromkeys(ran, streams)


def test_what_does_not_fit_a_shape_is_refused_before_it_runs(told):
    with pytest.raises(InputError):
        told().run(0, payloads(2))
    with pytest.raises(InputError):
        told().run(0, payloads(1, 9))


def test_under_placement_single_a_stream_has_the_runtimes_of_one_length(told):
    model = replace(told, placement="single", first=4)()
    assert len(model.run(5, payloads(4))[0]) == 4  # the other batch of that length
    with pytest.raises(InputError, match="one that is loaded"):
        model.run(6, payloads(1, 20))
    model.load(6)
    model.run(6, payloads(1, 20))
    with pytest.raises(InputError, match="one that is loaded"):
        model.run(4, payloads())


def test_an_encoder_or_a_compiled_file_that_changed_is_refused(told, tmp_path):
    stream = replace(told.streams[0], files={"model.so": "0" * 64}, engine="onnx")
    with pytest.raises(ArtifactError, match=r"model.so is missing .* `pliant profile bins` compiles again"):
        replace(told, streams=(stream,))()
    stream.compiled.mkdir()
    (stream.compiled / "model.so").write_bytes(b"native code of somebody else's")
    with pytest.raises(DigestError, match=r"model.so was altered or truncated"):
        replace(told, streams=(stream,))()
    tensors = told.streams[0].folder / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(DigestError, match="was altered or truncated"):
        told()


def test_another_class_of_device_than_the_profiles_is_refused(told):
    with pytest.raises(DeviceError, match="the profile was measured on a large GPU"):
        replace(told, plan=replace(told.plan, profiled_on="a large GPU"))()
