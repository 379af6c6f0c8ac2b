"""The file of an artifact's arrays: safetensors, in which an array may also be of bfloat16.

The arrays of a file are views of its content, so that loading takes little longer than its digest, and no array is ever
there twice. Knows no artifact.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from math import prod
from mmap import ACCESS_COPY, MADV_WILLNEED, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize

from pliant.bfloat16 import BFLOAT16

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
    "BF16": BFLOAT16,
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The types of safetensors that an artifact can hold."""

LENGTH = 8  # bytes in front, which say how many the header has
LINE = 64  # bytes of a line of a processor's cache
MAPPED = 1 << 26  # bytes from which a file is mapped; copying 2 GB costs a core as long as digesting it


def write(arrays: dict[str, Array]) -> bytes:
    """Return the content of a file with these arrays, each in C order and of the machine's byte order."""
    specs = {}
    for name, array in arrays.items():
        dtype = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.name
        specs[name] = TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
    return bytes(serialize(specs))


def read(path: Path) -> tuple[memoryview, str]:
    """Return a file's content and the sha256 of just that. Raises `OSError`.

    A large file is mapped: its pages are the system's own copy, which other processes share. It may therefore be
    replaced or removed, but not be overwritten while it is used.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size < MAPPED:
            content = _copied(file.readall())
        else:
            mapping = mmap(file.fileno(), 0, access=ACCESS_COPY)  # what is written to its pages stays in this process
            mapping.madvise(MADV_WILLNEED)  # the disk reads ahead of the digest
            content = memoryview(mapping)
    return content, sha256(content).hexdigest()


def _copied(content: bytes) -> memoryview:
    """Return a copy that may be written to, in which the arrays begin with a line of the processor's cache."""
    whole = np.empty(len(content) + LINE, np.uint8)
    start = LENGTH + int.from_bytes(content[:LENGTH], "little")
    skip = -(whole.ctypes.data + start) % LINE
    copy = whole.data[skip : skip + len(content)]
    copy[:] = content
    return copy


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
