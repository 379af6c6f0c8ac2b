"""Compiling and its cache: files are stored whole or not at all, verified before use, and fed exactly padded texts."""

from __future__ import annotations

import json
import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.cache import VERSIONS, check_versions, store, verify, versions
from pliant.bins.runtimes.compile import compile_encoder
from pliant.bins.runtimes.graphs import EagerEngine
from pliant.bins.runtimes.model import load_model
from pliant.bins.runtimes.onnx_session import MODEL, OnnxEngine
from pliant.bins.runtimes.padding import check, padded
from pliant.errors import ArtifactError, DeviceError
from tests.fixtures.bins.encoders import random_payload, tiny_encoder

SHAPES = (Shape(8, 1), Shape(40, 2, dynamic=True))


@pytest.mark.slow  # exports
def test_a_static_session_takes_its_shape_alone_and_progress_ends_at_all(tmp_path):
    reported = []
    files = compile_encoder(tiny_encoder(), "onnx", tmp_path, progress=lambda *at: reported.append(at))
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


@contextmanager
def files_of_at_most(size: int):
    """Limit the size of files, which is as near to a full disk as a test can come."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow  # exports
def test_a_disk_that_takes_no_more_is_one_sentence_and_nothing_is_left(tmp_path):
    with files_of_at_most(1000), pytest.raises(ArtifactError) as caught:
        compile_encoder(tiny_encoder(), "onnx", tmp_path)
    assert "\n" not in str(caught.value)
    assert "File too large" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def write(content: str = "code"):
    return lambda target: (target / "model.bin").write_text(content)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_stored_verifies_and_the_same_again_is_kept_once(tmp_path):
    files = store(tmp_path, "onnx", write())
    verify(tmp_path, files)
    assert sorted(files) == files_in(tmp_path)
    assert store(tmp_path, "onnx", write()) == files
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_an_interrupted_compile_leaves_nothing(tmp_path, raised):
    def interrupted(target: Path) -> None:
        (target / "half.bin").write_text("half")
        raise raised

    with pytest.raises(raised):
        store(tmp_path, "onnx", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_each_version_and_the_processor_must_be_those_of_then(tmp_path):
    files = store(tmp_path, "eager", write())
    record = next(tmp_path.glob(f"*/{VERSIONS}"))
    assert check_versions(tmp_path, files, "eager") == record.parent
    for name, present in versions("eager").items():
        record.write_text(json.dumps({**versions("eager"), name: "0.0"}))
        words = f"compiled with {name} 0.0, but here is {present}; `pliant profile bins` compiles again"
        with pytest.raises(DeviceError) as caught:
            check_versions(tmp_path, files, "eager")
        assert str(caught.value) == words
    record.write_text(json.dumps({**versions("eager"), "more": "1"}))
    assert check_versions(tmp_path, files, "eager") == record.parent


shapes = st.builds(Shape, st.integers(1, 30), st.integers(1, 6), st.booleans())


def texts(draw, shape: Shape):
    lengths = draw(st.lists(st.integers(1, shape.length), min_size=1, max_size=shape.batch))
    return [random_payload(np.random.default_rng(n), length) for n, length in enumerate(lengths)]


@given(st.data(), shapes)
def test_valid_tokens_are_the_texts_and_rows_without_one_repeat_the_first(data, shape):
    payloads = texts(data.draw, shape)
    check(shape, payloads)
    batch = padded(shape, payloads, pad=99, typed=True)
    rows, length = (
        (len(payloads), max(len(ids) for ids, _ in payloads)) if shape.dynamic else (shape.batch, shape.length)
    )
    assert {array.shape for array in batch.values()} == {(rows, length)}
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}
    for row in range(rows):
        ids, types = payloads[row] if row < len(payloads) else payloads[0]
        valid = batch["attention_mask"][row]
        assert valid.tolist() == [1] * len(ids) + [0] * (length - len(ids))
        assert batch["input_ids"][row].tolist() == ids.tolist() + [99] * (length - len(ids))
        assert batch["token_type_ids"][row].tolist() == types.tolist() + [0] * (length - len(ids))


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
            "pliant.bins.runtimes.onnx_session.optimise", lambda exported, target: (target / MODEL).touch()
        )
        monkeypatch.setattr("pliant.bins.runtimes.onnx_session.OnnxEngine", Off)

    def compile(self, folder, family: str = "bert") -> dict[str, str]:
        report = lambda *at: self.reported.append(at)  # noqa: E731
        return compile_encoder(tiny_encoder(family), "onnx", folder, progress=report)


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
