"""Tensors of the Open Inference Protocol: their datatypes, and how they are read from and written as JSON.

Elements are in row-major order. JSON may nest them as the shape says, or give them in one flat list.
As the extension binary_tensor_data says, they may also come as bytes after the JSON of a body, little-endian: an element of
BYTES is its length, a 32-bit unsigned integer, and then its bytes; BOOL is a byte, 0 or 1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.serving.http.bodies import shorten

BYTES = "BYTES"
_CODES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
_WHOLE = {f"{sign}INT{8 * size}": f"<{sign.lower() or 'i'}{size}" for sign in ("U", "") for size in (1, 2, 4, 8)}
DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(code) for name, code in (_CODES | _WHOLE).items()}
)
"""Datatypes of numbers. The protocol has BYTES besides, and some servers BF16, which is not supported."""
MAX_RANK = 8
MAX_SIZE = 2**62  # of one dimension

Elements = NDArray[Any] | Sequence[str | bytes]
"""The elements of a tensor in one dimension: numbers, or for BYTES texts (from JSON) or bytes."""

LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor with its elements."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    elements: Elements


@dataclass(frozen=True, slots=True)
class Form:
    """A datatype and shape in which a tensor may come. A dimension of -1 has any size."""

    datatype: str
    shape: tuple[int, ...]

    def fits(self, datatype: str, shape: Sequence[int]) -> bool:
        """Whether a tensor of this datatype and shape has this form."""
        if datatype != self.datatype or len(shape) != len(self.shape):
            return False
        return all(own in (-1, size) for own, size in zip(self.shape, shape, strict=True))

    def __str__(self) -> str:
        return f"{self.datatype} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that a model takes or gives. The first of its `forms` is the one that its metadata show.

    `optional`: a request may lack it, and metadata do not list it. `classes`: of its last dimension, if it has any.
    """

    name: str
    forms: tuple[Form, ...]
    optional: bool = False
    classes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return the tensor as the metadata of its model list it."""
        form = self.forms[0]
        content: dict[str, Any] = {"name": self.name, "datatype": form.datatype, "shape": list(form.shape)}
        return {**content, "parameters": {"classes": list(self.classes)}} if self.classes else content


def numbers(name: str, datatype: str, values: Any) -> Tensor:
    """Return a tensor of numbers, with the shape of `values`."""
    array = np.asarray(values, DTYPES[datatype])
    return Tensor(name, datatype, array.shape, array.reshape(-1))


def texts(name: str, values: Sequence[str], shape: tuple[int, ...] = ()) -> Tensor:
    """Return a tensor of texts, in one dimension unless a shape is given."""
    return Tensor(name, BYTES, shape or (len(values),), tuple(values))


def from_json(name: str, datatype: str, shape: tuple[int, ...], data: object) -> Tensor:
    """Return the tensor whose elements a request has in `data`. Raises `InputError` if they do not fit.

    Numbers are finite, and within their datatype; elements of BYTES are texts.
    """
    field_name = f"data of {name}"
    values = _flat(field_name, data, shape)
    if datatype != BYTES:
        return Tensor(name, datatype, shape, _array(field_name, datatype, values))
    _check_types(field_name, values, (str,), "texts, as the datatype is BYTES")
    return Tensor(name, datatype, shape, values)


def to_json(tensor: Tensor) -> Any:
    """Return the elements of a tensor as `data` of JSON, in one list: what orjson can write."""
    if isinstance(tensor.elements, np.ndarray):
        return tensor.elements if tensor.elements.dtype != np.float16 else tensor.elements.astype(np.float32)
    return [element if isinstance(element, str) else element.decode() for element in tensor.elements]


def _flat(field_name: str, data: object, shape: tuple[int, ...]) -> list[Any]:
    """Return the elements in one list. Raises `InputError` if there are more or fewer than the shape says."""
    if not isinstance(data, list):
        raise InputError(field_name, shorten(data), "a list")
    if not (len(shape) > 1 and data and isinstance(data[0], list)):
        _check_size(field_name, len(data), math.prod(shape))
        return data
    level = [data]
    for size in shape:
        for part in level:
            if not isinstance(part, list) or len(part) != size:
                raise InputError(field_name, shorten(part), f"nested as the shape {list(shape)} says, or flat")
        level = [value for part in level for value in part]
    return level


def _check_size(field_name: str, size: int, expected: int) -> None:
    if size != expected:
        raise InputError(field_name, f"a list of {size}", f"of {expected} elements, as the shape says")


def _check_types(field_name: str, values: list[Any], kinds: tuple[type, ...], limit: str) -> None:
    if not set(map(type, values)) <= set(kinds):
        wrong = next(value for value in values if type(value) not in kinds)
        raise InputError(field_name, f"with the element {shorten(wrong)}", limit)


def _array(field_name: str, datatype: str, values: list[Any]) -> NDArray[Any]:
    dtype = DTYPES[datatype]
    kinds = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
    _check_types(field_name, values, kinds, f"of datatype {datatype}")
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        for value in (min(values), max(values)):
            if not limits.min <= value <= limits.max:
                raise InputError(field_name, f"with the element {shorten(value)}", f"within {datatype}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype)
    except OverflowError:  # a whole number beyond any float
        raise InputError(field_name, "with too large a number", f"within {datatype}") from None
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(field_name, "with a number that is not finite", f"finite and within {datatype}")
    return array


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
