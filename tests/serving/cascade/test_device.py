"""The classifiers of cascade in a device process: several in one, with importance only if a candidate prunes."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.cascade.runtime import CascadeRuntime, Part
from pliant.cascade.trunk import Trunk
from pliant.errors import DeviceError, DigestError, InputError
from pliant.models.artifact import Classifier
from pliant.models.text import Reader
from pliant.registry import codec
from pliant.serving.cascade.messages import (
    LARGE_BLOCK,
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    SHAPE_CACHES,
    SHAPES,
    CascadeBuild,
    ModelBuild,
)
from pliant.serving.workers.devices import DevicePlan
from tests.fixtures.cascade.classifiers import tiny_exit
from tests.fixtures.cascade.published import DEVICE, SURE, UNSURE, WIDTH, tiny_classifier

CLASSIFIERS = {3: tiny_classifier("colours", "small"), 5: tiny_classifier("colours", "large")}


@pytest.fixture
def told(tmp_path):
    folders = {number: tmp_path / str(number) for number in CLASSIFIERS}
    digests = {number: codec.save(one, folders[number]) for number, one in CLASSIFIERS.items()}
    models = tuple(ModelBuild(number, folders[number], digests[number], number == 3) for number in CLASSIFIERS)
    return CascadeBuild(models, DevicePlan("cpu", 1, DEVICE, (1, 2)))


def payloads(number: int):
    reader = Reader(CLASSIFIERS[number].tokenizer, CLASSIFIERS[number].max_length)
    readings = [reader.read(text) for text in (SURE, UNSURE)]
    return [(reading.ids, reading.types) for reading in readings]


def test_a_launch_runs_the_classifier_of_its_number_and_only_the_pruning_one_tells_importance(told):
    model = told()
    for number in CLASSIFIERS:
        outputs, seconds = model.run(number, payloads(number))
        expected = CascadeRuntime(CLASSIFIERS).run(number, payloads(number)).logits
        np.testing.assert_allclose([logits for logits, _ in outputs], expected, atol=1e-5)
        lengths = [len(importance) for _, importance in outputs if importance is not None]
        assert lengths == ([len(ids) for ids, _ in payloads(number)] if number == 3 else [])
        assert seconds > 0


def test_an_exit_and_what_is_left_behind_it_are_parts_of_one_classifier_and_warmed_up_as_they_will_run(
    told, tmp_path, monkeypatch
):
    one = tiny_exit(1, classes=CLASSIFIERS[5].classes, width=WIDTH)
    digest = codec.save(one, tmp_path / "exit")
    large = replace(told.models[1], importance=False)
    models = (replace(large, number=7, begin=1), replace(large, number=6, exit=tmp_path / "exit", exit_digest=digest))
    loads, load, rests, rest = [], codec.load, [], Trunk.rest
    monkeypatch.setattr(codec, "load", lambda kind, *where: loads.append(kind) or load(kind, *where))
    monkeypatch.setattr(Trunk, "rest", lambda self, *given: rests.append(given) or rest(self, *given))
    model = replace(told, models=(*models, large))()
    assert loads.count(Classifier) == 1
    assert len(rests) == 1 + 2 * 2, "the trial of the cut, and two lengths in two batches"
    parts = {5: CLASSIFIERS[5], 6: Part(CLASSIFIERS[5], 0, one), 7: Part(CLASSIFIERS[5], 1)}
    for number in (6, 7):
        outputs, _ = model.run(number, payloads(5))
        expected = CascadeRuntime(parts).run(number, payloads(5)).logits
        np.testing.assert_allclose([logits for logits, _ in outputs], expected, atol=1e-5)


def test_a_model_that_another_worker_has_is_refused(told):
    with pytest.raises(InputError, match=r"model is 4, but must be one of those loaded here, \[3, 5\]"):
        told().run(4, payloads(3))


def test_a_classifier_that_changed_since_it_was_verified_is_refused(told):
    tensors = told.models[0].folder / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(DigestError, match="was altered or truncated"):
        told()


def test_another_class_of_device_than_the_profiles_is_refused(told):
    with pytest.raises(DeviceError, match="the profile was measured on a large GPU"):
        replace(told, plan=replace(told.plan, profiled_on="a large GPU"))()


def test_nothing_is_changed_in_a_running_process(told):
    model = told()
    with pytest.raises(InputError, match="left as it is"):
        model.update("task")
    with pytest.raises(InputError, match="left as it is"):
        model.load(1)


def capacities(spec, *arguments) -> list[str | None]:
    """Stands for a builder: what the process's caches are bounded to when torch is imported."""
    return [os.environ.get(name) for name in SHAPE_CACHES]


def test_large_blocks_are_given_back_where_the_allocator_can_and_it_is_no_error_where_not(monkeypatch):
    calls = []
    monkeypatch.setattr(CascadeBuild, "BUILDER", f"{__name__}:capacities")
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(mallopt=lambda *limit: calls.append(limit)))
    spec = CascadeBuild((), DevicePlan("cpu", 1, None, ()))
    spec()
    assert calls == [(M_MMAP_THRESHOLD, LARGE_BLOCK), (M_TRIM_THRESHOLD, LARGE_BLOCK)]
    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace())
    assert spec() == [os.environ.get(name) for name in SHAPE_CACHES]


def test_the_caches_by_shape_are_bounded_before_torch_is_imported_unless_somebody_says_otherwise(monkeypatch):
    for name in SHAPE_CACHES:
        monkeypatch.setenv(name, "0")  # so that it is restored
        monkeypatch.delenv(name)
    monkeypatch.setattr(CascadeBuild, "BUILDER", f"{__name__}:capacities")
    spec = CascadeBuild((), DevicePlan("cpu", 1, None, ()))
    assert spec() == [str(SHAPES)] * 2
    monkeypatch.setenv(SHAPE_CACHES[0], "7")
    assert spec() == ["7", str(SHAPES)]
