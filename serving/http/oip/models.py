"""Tensors of the Open Inference Protocol, what a system says of its models to speak it, and what its code gets and gives.

Elements of a tensor are in row-major order. JSON may nest them as the shape says, or give them in one flat list. As the
extension binary_tensor_data says, they may also come as bytes after the JSON of a body, little-endian: an element of BYTES
is its length, a 32-bit unsigned integer, and then its bytes; BOOL is a byte, 0 or 1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.app import E
from pliant.serving.http.bodies import Lenient, Texts, check_count, clean, deadline, shorten

BYTES = "BYTES"
_CODES = {"BOOL": "?", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
_WHOLE = {f"{sign}INT{8 * size}": f"<{sign.lower() or 'i'}{size}" for sign in ("U", "") for size in (1, 2, 4, 8)}
DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(code) for name, code in (_CODES | _WHOLE).items()}
)
"""Datatypes of numbers. The protocol has BYTES besides, and some servers BF16, which is not supported."""
LENGTH = struct.Struct("<I")
MICROSECONDS = 1_000_000

Elements = NDArray[Any] | Sequence[str | bytes]
"""The elements of a tensor in one dimension: numbers, or for BYTES texts (from JSON) or bytes."""


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


TEXT, TEXT_PAIR = "text", "text_pair"
TEXT_FORMS = (Form(BYTES, (-1,)), Form(BYTES, (-1, 1)))
"""Texts are elements of BYTES in UTF-8."""


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
    place, count = f"data of {name}", math.prod(shape)
    if not isinstance(data, list):
        raise InputError(place, shorten(data), "a list")
    if len(shape) > 1 and data and isinstance(data[0], list):
        level = [data]
        for size in shape:
            for part in level:
                if not isinstance(part, list) or len(part) != size:
                    raise InputError(place, shorten(part), f"nested as the shape {list(shape)} says, or flat")
            level = [value for part in level for value in part]
        data = level
    elif len(data) != count:
        raise InputError(place, f"a list of {len(data)}", f"of {count} elements, as the shape says")
    return Tensor(name, datatype, shape, _elements(place, datatype, data))


def _elements(place: str, datatype: str, values: list[Any]) -> Elements:
    """Return these elements as a tensor holds them. Raises `InputError` for one that does not fit."""
    kind = "s" if datatype == BYTES else DTYPES[datatype].kind
    types = {"s": (str,), "b": (bool,), "f": (int, float)}.get(kind, (int,))
    if not set(map(type, values)) <= set(types):
        wrong = next(value for value in values if type(value) not in types)
        limit = "texts, as the datatype is BYTES" if datatype == BYTES else f"of datatype {datatype}"
        raise InputError(place, f"with the element {shorten(wrong)}", limit)
    if datatype == BYTES:
        return values
    dtype = DTYPES[datatype]
    if kind in "iu" and values:
        limits = np.iinfo(dtype)
        for value in (min(values), max(values)):
            if not limits.min <= value <= limits.max:
                raise InputError(place, f"with the element {shorten(value)}", f"within {datatype}")
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype)
    except OverflowError:  # a whole number beyond any float
        raise InputError(place, "with too large a number", f"within {datatype}") from None
    if kind == "f" and not np.isfinite(array).all():
        raise InputError(place, "with a number that is not finite", f"finite and within {datatype}")
    return array


def to_json(tensor: Tensor) -> Any:
    """Return the elements of a tensor as `data` of JSON, in one list: what orjson can write."""
    if isinstance(tensor.elements, np.ndarray):
        return tensor.elements if tensor.elements.dtype != np.float16 else tensor.elements.astype(np.float32)
    return [element if isinstance(element, str) else element.decode() for element in tensor.elements]


def from_binary(name: str, datatype: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
    """Return the tensor whose elements are `data`. Raises `InputError` if these are more or fewer than the shape says."""
    count, place = math.prod(shape), f"binary data of {name}"
    if datatype != BYTES:
        size = count * DTYPES[datatype].itemsize
        if len(data) != size:
            raise InputError(place, f"{len(data)} bytes", f"{size} bytes, as datatype and shape say")
        if datatype == "BOOL" and (np.frombuffer(data, np.uint8) > 1).any():
            raise InputError(place, "with another byte than 0 and 1", "bytes of 0 and 1, as the datatype is BOOL")
        return Tensor(name, datatype, shape, np.frombuffer(data, DTYPES[datatype]))
    least = count * LENGTH.size
    if len(data) < least:
        raise InputError(place, f"{len(data)} bytes", f"at least {least} bytes, for {count} elements")
    elements, at = [], 0
    for index in range(count):
        begin = at + LENGTH.size
        if begin > len(data):
            raise InputError(place, f"too short for element {index}", "whole elements, each after its length")
        (length,) = LENGTH.unpack_from(data, at)
        at = begin + length
        if at > len(data):
            raise InputError(place, f"too short for element {index} of {length} bytes", "whole elements")
        elements.append(bytes(data[begin:at]))
    if at < len(data):
        raise InputError(place, f"{len(data)} bytes", f"{at} bytes, as the {count} elements take")
    return Tensor(name, datatype, shape, elements)


def to_binary(tensor: Tensor) -> bytes:
    """Return the elements of a tensor as bytes."""
    if isinstance(tensor.elements, np.ndarray):
        return tensor.elements.astype(DTYPES[tensor.datatype], copy=False).tobytes()
    parts = [element.encode() if isinstance(element, str) else element for element in tensor.elements]
    return b"".join(piece for part in parts for piece in (LENGTH.pack(len(part)), part))


class Parameters(Lenient):
    """The parameters of a request; a system's models have further ones. Others are accepted, and named in a header."""

    binary_data_output: bool = False
    deadline: float | None = Field(None, gt=0, description="seconds from arrival")
    timeout: int | None = Field(None, ge=1, description="microseconds, where there is no deadline")

    def seconds(self, maximum: float) -> float | None:
        """Return the deadline in seconds, or else the timeout; None without both. Raises `InputError` beyond `maximum`."""
        if self.deadline is not None:
            return deadline(self.deadline, maximum, "parameters.deadline")
        if self.timeout is not None and self.timeout > maximum * MICROSECONDS:
            limit = f"at most {maximum * MICROSECONDS:.0f} microseconds"
            raise InputError("parameters.timeout", shorten(self.timeout), limit)
        return None if self.timeout is None else self.timeout / MICROSECONDS


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is served. `version`: None if it has none of its own.

    `parameters`: those that its requests may have. `max_count`: the most elements of a tensor of BYTES, such as texts or
    files. `scores`: the name of the output that the classification extension is for, if any.
    """

    name: str
    version: str | None
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: type[Parameters]
    max_count: int
    scores: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of the output `scores`."""
        return next((spec.classes for spec in self.outputs if spec.name == self.scores), ())

    def to_dict(self) -> dict[str, Any]:
        """Return the model's metadata."""
        return {
            "name": self.name,
            "versions": [] if self.version is None else [self.version],
            "platform": self.platform,
            "inputs": [spec.to_dict() for spec in self.inputs if not spec.optional],
            "outputs": [spec.to_dict() for spec in self.outputs],
        }


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a request names. `top_classes`: how many of the best classes it wants instead; None: the numbers."""

    name: str
    binary: bool
    top_classes: int | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request with its tensors by name. `outputs` are those that the answer has."""

    model: Model
    id: str | None
    inputs: Mapping[str, Tensor]
    outputs: tuple[RequestedOutput, ...]
    parameters: Parameters
    ignored: tuple[str, ...] = ()  # names of fields and parameters that nobody knows


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """All outputs of a model for one request. `version`: of the model that gave them; None: none, or several."""

    outputs: Sequence[Tensor]
    version: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served(Generic[E]):
    """A system's part of the protocol: `server` is its name in the server's metadata.

    `describe` returns the model of a name, and raises `ApiError` (404) if there is none. `infer` answers a request that came
    at a time on the endpoint's clock.
    """

    server: str
    describe: Callable[[E, str], Model]
    infer: Callable[[Request, E, InferRequest, float], Awaitable[InferAnswer]]


def one_version(versions: Iterable[object]) -> str | None:
    """Return the version of all parts of an answer; None if they differ, or have none."""
    distinct = set(versions)
    return str(distinct.pop()) if len(distinct) == 1 and None not in distinct else None


def text_inputs(pair: bool | None) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model that reads texts. `pair`: whether it reads two at a time; None: one or two."""
    first = TensorSpec(TEXT, TEXT_FORMS)
    return (first,) if pair is False else (first, TensorSpec(TEXT_PAIR, TEXT_FORMS, optional=pair is None))


def texts_of(request: InferRequest) -> Texts:
    """Return the texts, or pairs of texts, of a request.

    Raises `InputError` for none, for tensors of different lengths, and for bytes that are not UTF-8; as `check_count` and
    `clean`.
    """
    columns: list[list[str]] = []
    for name in (TEXT, TEXT_PAIR):
        if name not in request.inputs:
            continue
        elements, column = list(request.inputs[name].elements), list[str]()
        check_count(name, elements, request.model.max_count)
        if columns and len(elements) != len(columns[0]):
            raise InputError(name, f"of {len(elements)} texts", f"of {len(columns[0])}, as {TEXT} is")
        for index, element in enumerate(elements):
            place = f"{name}[{index}]"
            try:
                column.append(clean(place, element if isinstance(element, str) else element.decode()))
            except UnicodeDecodeError:
                raise InputError(place, shorten(element), "a text in UTF-8") from None
        columns.append(column)
    first, *others = columns
    return tuple(zip(first, others[0] if others else [None] * len(first), strict=True))
