"""Compiling: which engines have files, its progress, and that a failure is one sentence and leaves nothing."""

from __future__ import annotations

import resource
from contextlib import contextmanager

import numpy as np
import pytest

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.cache import verify
from pliant.bins.runtimes.compile import compile_shapes
from pliant.bins.runtimes.onnx_export import MODEL
from pliant.bins.runtimes.onnx_session import OnnxEngine
from pliant.bins.runtimes.padding import padded
from pliant.errors import ArtifactError, InputError
from tests.fixtures.bins.encoders import random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(40, 2, dynamic=True))


@pytest.mark.parametrize("engine", ["eager", "graphs"])
def test_engines_that_compile_nothing_ahead_have_no_files(tmp_path, engine):
    assert compile_shapes(tiny_encoder(), SHAPES, engine, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_static_session_takes_its_shape_alone_and_progress_ends_at_all(tmp_path):
    reported = []
    files = compile_shapes(tiny_encoder(), SHAPES, "onnx", tmp_path, progress=lambda *at: reported.append(at))
    verify(tmp_path, files)
    assert reported == sorted(reported)
    assert (len(reported), reported[-1]) == (3, (100, 100))
    [model] = [name for name in files if name.endswith(MODEL)]
    engine = OnnxEngine((tmp_path / model).parent, threads=1)
    static, dynamic = engine.open(Shape(8, 1)), engine.open(SHAPES[-1])
    rng = np.random.default_rng(0)
    for length, rows in [(8, 1), (9, 1), (7, 1), (8, 2)]:
        shape = Shape(length, rows)
        batch = padded(shape, [random_payload(rng, length)], pad=0, typed=True)
        assert dynamic(batch).shape == (rows, 3)
        if (length, rows) == (8, 1):
            assert static(batch).shape == (1, 3)
        else:
            with pytest.raises(Exception, match="Got invalid dimensions"):
                static(batch)


@pytest.mark.parametrize(
    ("engine", "device", "message"),
    [("magic", "cpu", "engine is magic"), ("onnx", "cuda", "engine is onnx, but must be graphs, aot or eager on cuda")],
)
def test_an_engine_that_cannot_compile_for_the_device_is_refused(tmp_path, engine, device, message):
    with pytest.raises(InputError, match=message):
        compile_shapes(tiny_encoder(), SHAPES, engine, tmp_path, device)


@contextmanager
def files_of_at_most(size: int):
    """Limit the size of files, which is as near to a full disk as a test can come."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_takes_no_more_is_one_sentence_and_nothing_is_left(tmp_path):
    with files_of_at_most(1000), pytest.raises(ArtifactError) as caught:
        compile_shapes(tiny_encoder(), SHAPES, "onnx", tmp_path)
    assert "\n" not in str(caught.value)
    assert "File too large" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_exported_is_told_with_its_name(tmp_path, monkeypatch):
    def refuse(*arguments) -> None:
        raise NotImplementedError("no such operator\nand a page more")

    monkeypatch.setattr("pliant.bins.runtimes.compile._export", refuse)
    with pytest.raises(ArtifactError, match=r"^tiny could not be compiled for onnx: .*no such operator$"):
        compile_shapes(tiny_encoder(), SHAPES, "onnx", tmp_path)
    assert list(tmp_path.iterdir()) == []
