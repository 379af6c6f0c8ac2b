"""The file of an artifact's arrays: safetensors, in which an array may also be of bfloat16.

A file is read once, into memory of its own, and digested meanwhile. Its arrays are views of that memory, so that loading
takes little longer than reading, and no array is ever there twice. Knows no artifact.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import numpy as safetensors

Array = NDArray[Any]

TYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The types of safetensors that an artifact can hold."""

LENGTH = 8  # bytes in front, which say how many the header has
LINE = 64  # bytes of a processor's cache line, with which the arrays begin
PART = 1 << 23  # bytes that are read while those before them are digested


def can_hold(array: Array) -> bool:
    """Return whether a file of ours can hold an array of this type."""
    return array.dtype.newbyteorder("=") in TYPES.values()


def write(arrays: dict[str, Array]) -> bytes:
    """Return the content of a file with these arrays, each in C order and of the machine's byte order."""
    content: bytes = safetensors.save(arrays)
    return content


def read(path: Path) -> tuple[memoryview, str]:
    """Return a file's content, which nothing else holds, and the sha256 of just that. Raises `OSError`."""
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(1) as beside:
        first = file.read(LENGTH)
        content = _aligned(max(path.stat().st_size, len(first)), LENGTH + int.from_bytes(first, "little"))
        content[: len(first)] = first
        digest, size = sha256(first), len(first)
        while count := file.readinto(content[size : size + PART]):
            part = content[size : size + count]
            size += count
            if len(content) > PART:
                beside.submit(digest.update, part)  # both without Python's lock
            else:
                digest.update(part)
    return content[:size], digest.hexdigest()


def _aligned(size: int, start: int) -> memoryview:
    """Return new memory of `size` bytes, of which the one at `start` lies at the beginning of a cache line."""
    whole = np.empty(size + LINE, np.uint8)
    skip = -(whole.ctypes.data + start) % LINE
    return whole.data[skip : skip + size]


def parse(content: bytes | memoryview) -> dict[str, Array]:
    """Return the arrays of a file as views of its content. Raises `ValueError` for what is no such file."""
    size = int.from_bytes(content[:LENGTH], "little")
    try:
        header = json.loads(bytes(content[LENGTH : LENGTH + size]))
        named = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _array(entry, content, LENGTH + size) for name, entry in named.items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is broken ({type(error).__name__}: {error})") from error


def _array(entry: Any, content: bytes | memoryview, start: int) -> Array:
    """Return the array of an entry of the header. `start`: the first byte after the header."""
    dtype, shape, (begin, end) = TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if not 0 <= begin <= end <= len(content) - start or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of {dtype} and shape {list(shape)} lies at bytes {begin} to {end}")
    return np.ndarray(shape, dtype, content, start + begin)
