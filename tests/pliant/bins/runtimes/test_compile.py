"""Compiling: which engines have files, its progress, and that a failure is one sentence and leaves nothing."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.cache import VERSIONS, verify
from pliant.bins.runtimes.compile import compile_shapes, package
from pliant.bins.runtimes.graphs import EagerEngine
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.onnx_export import MODEL
from pliant.bins.runtimes.onnx_session import OnnxEngine
from pliant.bins.runtimes.padding import padded
from pliant.errors import ArtifactError, InputError
from tests.fixtures.bins.encoders import random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(40, 2, dynamic=True))


@pytest.mark.parametrize(("engine", "device"), [("eager", "cpu"), ("graphs", "cuda:0")])
def test_engines_that_compile_nothing_ahead_have_no_files(tmp_path, engine, device):
    assert compile_shapes(tiny_encoder(), SHAPES, engine, tmp_path, device) == {}
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
    [
        ("magic", "cpu", "engine is magic"),
        ("onnx", "cuda", "engine is onnx, but must be graphs or eager on cuda"),
        ("aot", "cuda:0", "engine is aot, but must be graphs or eager on cuda:0"),
        ("graphs", "cpu", "engine is graphs, but must be onnx, aot or eager on cpu"),
    ],
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


class Exporting:
    """Exports that write nothing, and a runtime whose outputs are off by a share. Some opsets cannot be exported."""

    def __init__(self, monkeypatch, off: float = 0.0, unable: tuple[int, ...] = ()) -> None:
        self.tried, self.reported = [], []

        def export(model, opset, path) -> None:
            self.tried.append((opset, model.model.config._attn_implementation))
            if opset in unable:
                raise NotImplementedError(f"opset {opset}")

        class Off:
            def __init__(self, target, threads) -> None: ...

            def open(self, shape):
                eager = EagerEngine(load_model(tiny_encoder()), torch.device("cpu")).open(shape)
                return lambda batch: eager(batch) * np.float32(1 + off)

        monkeypatch.setattr("pliant.bins.runtimes.compile._export", export)
        monkeypatch.setattr(
            "pliant.bins.runtimes.onnx_export.optimise", lambda exported, target: (target / MODEL).touch()
        )
        monkeypatch.setattr("pliant.bins.runtimes.onnx_session.OnnxEngine", Off)

    def compile(self, folder, family: str = "bert") -> dict[str, str]:
        report = lambda *at: self.reported.append(at)  # noqa: E731
        return compile_shapes(tiny_encoder(family), SHAPES, "onnx", folder, progress=report)


def test_the_first_export_that_gives_the_models_outputs_is_kept(tmp_path, monkeypatch):
    exporting = Exporting(monkeypatch)
    files = exporting.compile(tmp_path)
    assert exporting.tried == [(23, "sdpa")]
    assert exporting.reported == [(16, 100), (33, 100), (100, 100)]
    assert sorted(name.partition("/")[2] for name in files) == [MODEL, VERSIONS]
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(
        [next(iter(files)).partition("/")[0], MODEL, VERSIONS]
    )


def test_a_second_export_is_tried_where_the_first_one_fails(tmp_path, monkeypatch):
    exporting = Exporting(monkeypatch, unable=(23,))
    assert exporting.compile(tmp_path)
    assert exporting.tried == [(23, "sdpa"), (20, "eager")]
    assert exporting.reported == [(66, 100), (83, 100), (100, 100)]


def test_a_model_with_rotary_embeddings_is_exported_in_one_way_alone(tmp_path, monkeypatch):
    exporting = Exporting(monkeypatch, unable=(20,))
    with pytest.raises(ArtifactError, match="tiny could not be compiled for onnx: NotImplementedError: opset 20"):
        exporting.compile(tmp_path, "modernbert")
    assert exporting.tried == [(20, "eager")]


@pytest.mark.parametrize(("off", "kept"), [(0.0005, True), (-0.0005, True), (0.002, False), (-0.02, False)])
def test_an_export_whose_outputs_are_off_by_more_than_a_thousandth_is_refused(tmp_path, monkeypatch, off, kept):
    exporting = Exporting(monkeypatch, off)
    if kept:
        assert exporting.compile(tmp_path)
        return
    with pytest.raises(ArtifactError, match=f"for onnx: outputs differ from the model's by {abs(off):.1%}$"):
        exporting.compile(tmp_path)
    assert exporting.tried == [(23, "sdpa"), (20, "eager")]
    assert list(tmp_path.iterdir()) == []


def test_a_package_is_written_for_each_shape_and_a_dynamic_one_is_traced_at_free_sizes(tmp_path, monkeypatch):
    traced, written, reported = [], [], []

    def export(model, example, dynamic_shapes):
        assert not torch.is_grad_enabled()
        traced.append(([tuple(each.shape) for each in example], dynamic_shapes))
        return f"program {len(traced)}"

    def compile_and_package(program, package_path, inductor_configs) -> None:
        written.append((program, inductor_configs))
        Path(package_path).write_text(program)

    monkeypatch.setattr(torch.export, "export", export)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compile_and_package)
    shapes = (Shape(8, 1), Shape(8, 4), Shape(40, 2, dynamic=True))
    files = compile_shapes(tiny_encoder(), shapes, "aot", tmp_path, progress=lambda *at: reported.append(at))
    free = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    assert traced == [([(1, 8)] * 3, None), ([(4, 8)] * 3, None), ([(2, 16)] * 3, (free,) * 3)]
    options = {"aot_inductor.package_constants_in_so": False, "cpp.dynamic_threads": True}
    assert written == [(f"program {number}", options) for number in (1, 2, 3)]
    assert reported == [(1, 3), (2, 3), (3, 3)]
    names = ["8x1.pt2", "8x4.pt2", "dynamic.pt2"]
    assert [package(shape) for shape in shapes] == names
    assert sorted(name.partition("/")[2] for name in files) == sorted([*names, VERSIONS])
    verify(tmp_path, files)
