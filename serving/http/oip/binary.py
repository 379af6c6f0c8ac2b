"""The binary tensor data extension: elements as bytes, little-endian and row-major, after the JSON of a body.

An element of BYTES is its length, a 32-bit unsigned integer, and then its bytes. BOOL is a byte, 0 or 1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

import numpy as np

from pliant.errors import InputError
from pliant.serving.http.oip.tensors import BYTES, DTYPES, Tensor

LENGTH = struct.Struct("<I")


def from_binary(name: str, datatype: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
    """Return the tensor whose elements are `data`. Raises `InputError` if these are more or fewer than the shape says."""
    count, field_name = math.prod(shape), f"binary data of {name}"
    if datatype == BYTES:
        return Tensor(name, datatype, shape, _split(field_name, count, data))
    size = count * DTYPES[datatype].itemsize
    if len(data) != size:
        raise InputError(field_name, f"{len(data)} bytes", f"{size} bytes, as datatype and shape say")
    if datatype == "BOOL" and (np.frombuffer(data, np.uint8) > 1).any():
        raise InputError(field_name, "with another byte than 0 and 1", "bytes of 0 and 1, as the datatype is BOOL")
    return Tensor(name, datatype, shape, np.frombuffer(data, DTYPES[datatype]))


def to_binary(tensor: Tensor) -> bytes:
    """Return the elements of a tensor as bytes."""
    if isinstance(tensor.elements, np.ndarray):
        return tensor.elements.astype(DTYPES[tensor.datatype], copy=False).tobytes()
    parts = [element.encode() if isinstance(element, str) else element for element in tensor.elements]
    return b"".join(piece for part in parts for piece in (LENGTH.pack(len(part)), part))


def _split(field_name: str, count: int, data: memoryview) -> Sequence[bytes]:
    """Return `count` elements. Raises `InputError` unless they take all of the data."""
    least = count * LENGTH.size
    if len(data) < least:
        raise InputError(field_name, f"{len(data)} bytes", f"at least {least} bytes, for {count} elements")
    elements, at = [], 0
    for index in range(count):
        begin = at + LENGTH.size
        if begin > len(data):
            raise InputError(field_name, f"too short for element {index}", "whole elements, each after its length")
        (length,) = LENGTH.unpack_from(data, at)
        at = begin + length
        if at > len(data):
            raise InputError(field_name, f"too short for element {index} of {length} bytes", "whole elements")
        elements.append(bytes(data[begin:at]))
    if at < len(data):
        raise InputError(field_name, f"{len(data)} bytes", f"{at} bytes, as the {count} elements take")
    return elements
