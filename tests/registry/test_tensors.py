"""Arrays come back from their file in their own types, also bfloat16; what is no such file is named."""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest
from safetensors import numpy as safetensors

from pliant.bfloat16 import BFLOAT16
from pliant.registry import codec


def _written(tmp_path, **arrays):
    path = tmp_path / "tensors.safetensors"
    path.write_bytes(codec.write_tensors(arrays))
    return path


@pytest.mark.parametrize("dtype", codec.TYPES.values(), ids=str)
def test_an_array_of_any_type_comes_back_as_it_was(tmp_path, dtype):
    array = np.arange(6, dtype=np.uint16).view(BFLOAT16) if dtype == BFLOAT16 else np.arange(6).astype(dtype)
    array = array.reshape(2, 3)
    content, _ = codec.read_tensors(_written(tmp_path, array=array, none=array[:0], one=array[:1, 1].reshape(())))
    back = codec.parse_tensors(content)
    assert back["array"].dtype == dtype and back["array"].tobytes() == array.tobytes()
    assert (back["array"].shape, back["none"].shape, back["one"].shape) == ((2, 3), (0, 3), ())


@pytest.mark.parametrize("mapped", [0, 1 << 20])
def test_the_arrays_of_a_file_are_views_of_what_was_digested(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(codec, "MAPPED", mapped)
    path = _written(tmp_path, x=np.arange(64, dtype=np.float32), y=np.ones((3, 5)))
    before = path.read_bytes()
    content, digest = codec.read_tensors(path)
    assert (bytes(content), digest) == (before, sha256(before).hexdigest())
    arrays = codec.parse_tensors(content)
    whole = np.frombuffer(content, np.uint8)
    assert all(np.shares_memory(array, whole) for array in arrays.values())
    arrays["x"][:] = 7
    assert path.read_bytes() == before, "what is written to an array is not written to the file"


@pytest.mark.parametrize("mapped", [0, 1 << 20])
def test_a_file_that_is_replaced_or_removed_keeps_its_arrays(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(codec, "MAPPED", mapped)
    path = _written(tmp_path, x=np.arange(5000.0))
    arrays = codec.parse_tensors(codec.read_tensors(path)[0])
    other = tmp_path / "other"
    other.write_bytes(b"other")
    other.replace(path)
    path.unlink()
    np.testing.assert_array_equal(arrays["x"], np.arange(5000.0))


def _file(**entry):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        b"\xff" * 40,
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b'"xy"',
        (10**5).to_bytes(8, "little") + b"[" * 10**5,
        _file(dtype="F4"),
        _file(shape=[3]),
        _file(shape=[-2, -1]),
        _file(shape=["a"]),
        _file(shape=None),
        _file(data_offsets=[8, 16]),
        _file(data_offsets=[-8, 0]),
        _file(data_offsets=[0]),
        _file(data_offsets=[0, "8"]),
    ],
)
def test_what_is_no_file_of_arrays_is_a_value_error(content):
    with pytest.raises(ValueError):
        codec.parse_tensors(content)
    assert codec.parse_tensors(_file())["x"].tolist() == [0.0, 0.0]


def test_arrays_are_written_as_safetensors_itself_writes_them():
    """So the digests of what was stored before there was bfloat16 stay what they were."""
    types = [dtype for dtype in codec.TYPES.values() if dtype != BFLOAT16]
    arrays = {f"{dtype}/{shape}": np.ones(shape, dtype) for dtype in types for shape in ((), (0, 2), (3,), (2, 5))}
    assert codec.write_tensors(arrays) == safetensors.save(arrays)
