"""A generator is stored in the precision that is configured or best on the device, and its plan names its own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pliant.flows.packing import stages
from pliant.flows.packing.config import MemoryConfig, PackingFlowConfig
from pliant.flows.packing.stages import GENERATOR, STEPS, converted, make_steps, measure, on_device
from pliant.flows.stage import StageResult
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import in_precision
from pliant.packing.scheduling.iteration_cost import Point
from pliant.progress import silent
from pliant.registry.store import FolderStore
from tests.fixtures.packing.generators import tiny_generator

AUTO = PackingFlowConfig(memory=MemoryConfig(megabytes=0.01, page_tokens=4))
POINTS = tuple(Point(queries, 1, queries + 1, 1e-3 * queries) for queries in (1, 2, 4, 8))


@pytest.fixture
def processor(monkeypatch):
    """Say whether the device has bfloat16, and which precision is measured to be the fastest on it."""

    def processor(native: bool, fastest: str = "bfloat16") -> None:
        monkeypatch.setattr(stages, "has_bfloat16", lambda _device: native)
        monkeypatch.setattr("pliant.precision.has_bfloat16", lambda _device: native)
        monkeypatch.setattr(stages, "fastest", lambda *_: (fastest, {"float32": 2.0, "bfloat16": 1.0}))

    return processor


@pytest.fixture
def measured(monkeypatch):
    """The precisions of the generators whose iterations were measured."""
    seen = []

    def profile(generator, *_rest):
        seen.append(generator.precision)
        return SimpleNamespace(points=POINTS, swap=1e-6)

    monkeypatch.setattr(stages, "profile", profile)
    return seen


@pytest.mark.parametrize("fastest", ["float32", "bfloat16"])
def test_of_two_precisions_the_one_that_was_measured_faster_is_taken(processor, fastest):
    processor(True, fastest)
    generator, seconds = converted(tiny_generator(), AUTO)
    assert (generator.precision, seconds) == (fastest, {"float32": 2.0, "bfloat16": 1.0})
    processor(False)
    assert converted(tiny_generator(), AUTO) == (tiny_generator(), {})


def test_what_was_made_in_one_precision_is_not_taken_for_another(processor):
    processor(True)
    generator = StageResult(Generator, None, "g", "d")
    keys = {GENERATOR.key(replace(AUTO, precision=precision), None) for precision in ("auto", "float32", "bfloat16")}
    assert len(keys) == 3
    native = STEPS.key(AUTO, generator), GENERATOR.key(AUTO, None)
    processor(False)
    assert STEPS.key(AUTO, generator) != native[0], "another device of the same class may lack bfloat16"
    assert GENERATOR.key(AUTO, None) != native[1]
    fixed = replace(AUTO, precision="float32")
    before = GENERATOR.key(fixed, None)
    processor(True)
    assert GENERATOR.key(fixed, None) == before, "which is measured nowhere"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_steps_are_measured_in_the_generators_precision_and_say_so(processor, measured, tmp_path, precision):
    processor(True)
    store = FolderStore(tmp_path)
    digest = store.save("generator", in_precision(tiny_generator(), precision))
    found, _ = make_steps(AUTO, StageResult(Generator, store, "generator", digest), silent)
    assert measured == [precision] and found.precision == precision
    pages = {"float32": 10, "bfloat16": 20}  # 10,485 bytes; a page of 4 tokens has 1,024 in float32
    assert found.memory.pages == pages[precision]


def test_where_the_device_lacks_a_generators_precision_it_is_measured_in_float32(processor, measured):
    processor(False)
    low = in_precision(tiny_generator(), "bfloat16")
    assert on_device(low, "cpu").precision == "float32"
    assert measure(AUTO, low, silent).precision == "float32" and measured == ["float32"]
    processor(True)
    assert on_device(low, "cpu") is low
    assert on_device(in_precision(tiny_generator(), "float16"), "cpu").precision == "float32"
