"""An inference request: its body, decompressed and divided into JSON and binary data, and the tensors in both.

A model parses and documents the JSON object.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import (
    HEAVY,
    INLINE_BYTES,
    SHOWN,
    Body,
    Utf8,
    content_type,
    read_body,
    refused,
    shorten,
    too_large,
)
from pliant.serving.http.oip.models import InferRequest, Model, Parameters, RequestedOutput
from pliant.serving.http.oip.tensors import BYTES, MAX_RANK, MAX_SIZE, Tensor, TensorSpec, from_binary, from_json
from pliant.serving.workers.helper_process import small_pieces

MAX_TENSORS = 16  # that a request may list

JSON_LENGTH = "inference-header-content-length"
TYPES = ("application/json", "application/octet-stream")
WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""Content encodings -> the window bits of zlib, which say the format too."""
PIECE_BYTES = 256 * 1024  # that are decompressed before the event loop serves others: about a millisecond
Datatype = Literal[
    "BYTES", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64"
]


def _no_shared_memory(_region: object) -> None:
    raise refused("left out, as there is no shared memory", "given")


SharedMemory = SkipJsonSchema[Annotated[Any, AfterValidator(_no_shared_memory)]]


class InputParameters(Body):
    binary_data_size: int | None = Field(None, ge=0)
    shared_memory_region: SharedMemory = None


class InputTensor(Body):
    name: str = Field(description="as the model's metadata list it")
    datatype: Datatype
    shape: Annotated[list[Annotated[int, Field(ge=0, le=MAX_SIZE)]], Field(max_length=MAX_RANK)]
    data: Annotated[
        Any,
        WithJsonSchema(
            {"type": "array", "items": {}, "description": "flat in row-major order, or nested as the shape says"}
        ),
    ] = None
    parameters: InputParameters | None = None


class OutputParameters(Body):
    binary_data: bool | None = None
    classification: int | None = Field(None, ge=1, description="of scores: the best classes")
    shared_memory_region: SharedMemory = None


class OutputTensor(Body):
    name: str = Field(description="as the model's metadata list it")
    parameters: OutputParameters | None = None


class InferBody(Body):
    id: Utf8 | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=MAX_TENSORS)]
    outputs: Annotated[list[OutputTensor], Field(max_length=MAX_TENSORS)] | None = None
    parameters: dict[str, Any] | None = None


def read_request(model: Model, fields: Mapping[str, Any], binary: memoryview) -> InferRequest:
    """Return the request for a model. `binary`: the bytes after the JSON.

    Raises `InputError` for what does not fit the model or does not add up, `ApiError` (413) for too many elements.
    """
    body = InferBody.read(fields)
    given = body.parameters
    parameters = model.parameters.read(given, "parameters") if given else _no_parameters(model.parameters)
    ignored = [name for name in fields if name not in InferBody.__pydantic_fields__]
    ignored += [name for name in given or () if name not in model.parameters.__pydantic_fields__]
    outputs = _outputs(model, body.outputs or (), parameters.binary_data_output)
    return InferRequest(model, body.id, _inputs(model, body.inputs, binary), outputs, parameters, tuple(ignored))


@cache
def _no_parameters(kind: type[Parameters]) -> Parameters:
    return kind.read({})


def check_elements(name: str, count: int, most: int) -> None:
    """Raise `ApiError` (413) for a tensor of more than `most` elements."""
    if count > most:
        raise ApiError(413, "too_many_elements", f"{name} has {count} elements, but must have at most {most}", name)


def _spec(field: str, name: str, specs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the model's tensor of this name. Raises `InputError` if there is none."""
    for spec in specs:
        if spec.name == name:
            return spec
    raise InputError(f"{field}.name", shorten(name), f"one of {', '.join(spec.name for spec in specs)}")


def _inputs(model: Model, entries: Sequence[InputTensor], binary: memoryview) -> Mapping[str, Tensor]:
    at, tensors = 0, dict[str, Tensor]()
    for index, entry in enumerate(entries):
        field = f"inputs[{index}]"
        spec = _spec(field, entry.name, model.inputs)
        if spec.name in tensors:
            raise InputError(f"{field}.name", f"{spec.name} once more", "given once")
        size = None if entry.parameters is None else entry.parameters.binary_data_size
        if size is not None:
            _check_size(f"{field}.parameters.binary_data_size", entry, size, len(binary) - at)
        own = None if size is None else binary[at : at + size]
        at += size or 0
        tensors[spec.name] = _input(field, spec, entry, own, model.max_count)
    if at < len(binary):
        raise InputError("body", f"{len(binary) - at} bytes longer", "as long as its JSON and each binary_data_size")
    for spec in model.inputs:
        if spec.name not in tensors and not spec.optional:
            raise InputError("inputs", f"without {spec.name}", "given with all tensors that the model's metadata list")
    return tensors


def _check_size(name: str, entry: InputTensor, size: int, left: int) -> None:
    """Raise `InputError` unless a tensor has its data as bytes alone, of which `left` are no other's."""
    if entry.data is not None:
        raise InputError(name, "given together with data", "given without it")
    if size > left:
        raise InputError(name, shorten(size), f"a whole number from 0 to {left}, the bytes that are left in the body")


def _input(field: str, spec: TensorSpec, entry: InputTensor, binary: memoryview | None, most: int) -> Tensor:
    shape, datatype = tuple(entry.shape), entry.datatype
    if not any(form.fits(datatype, shape) for form in spec.forms):
        given = f"{shorten(datatype)} {shorten(entry.shape)}"
        raise InputError(f"datatype and shape of {spec.name}", given, " or ".join(map(str, spec.forms)))
    if datatype == BYTES and shape:
        check_elements(spec.name, shape[0], most)
    if binary is not None:
        return from_binary(spec.name, datatype, shape, binary)
    if entry.data is None:
        raise InputError(f"{field}.data", "missing", "given, or binary_data_size among the tensor's parameters")
    return from_json(spec.name, datatype, shape, entry.data)


def _outputs(model: Model, entries: Sequence[OutputTensor], binary: bool) -> tuple[RequestedOutput, ...]:
    """Return the outputs that a request names, or all. `binary`: whether they are binary where it does not say."""
    outputs: list[RequestedOutput] = []
    for index, entry in enumerate(entries):
        field, own = f"outputs[{index}]", entry.parameters or OutputParameters.read({})
        name = _spec(field, entry.name, model.outputs).name
        if name in [output.name for output in outputs]:
            raise InputError(f"{field}.name", f"{name} once more", "given once")
        if own.classification is not None and name != model.scores:
            limit = f"given for {model.scores} alone" if model.scores else "left out, as this model gives no classes"
            raise InputError(f"{field}.parameters.classification", f"given for {name}", limit)
        is_binary = binary if own.binary_data is None else own.binary_data
        outputs.append(RequestedOutput(name, is_binary, own.classification))
    return tuple(outputs) or tuple(RequestedOutput(spec.name, binary) for spec in model.outputs)


def check_type(request: Request) -> None:
    """Raise `ApiError` (415) unless the content type is one of `TYPES`.

    Triton's client sends none. A page of another website can send a body without a type, too, and without asking first
    (CORS); its browser then names the page in the header Origin.
    """
    kind = content_type(request)
    if kind in TYPES or (not kind and "origin" not in request.headers):
        return
    message = f"content-type is {kind[:SHOWN] or 'missing'}, but must be {' or '.join(TYPES)}"
    raise ApiError(415, "unsupported_media_type", message, "content-type")


async def read_parts(request: Request, max_bytes: int) -> tuple[Sequence[bytes], memoryview]:
    """Return the JSON of a body, in pieces, and the bytes after it.

    Raises `ApiError`: 413 for more than `max_bytes`, also once it is decompressed, 415 for an unknown compression, 400 for a
    broken one; `InputError` unless the JSON is as long as the header `JSON_LENGTH` says.
    """
    window = _window(request)
    pieces: Sequence[bytes] = await read_body(request, max_bytes)
    if window is not None:
        pieces = await decompress(pieces, window, max_bytes)
    announced = request.headers.get(JSON_LENGTH)
    if announced is None:
        return pieces, memoryview(b"")
    size = sum(map(len, pieces))
    length = (
        int(announced) if announced.isascii() and announced.isdecimal() and len(announced) <= len(str(size)) else -1
    )
    if not 0 <= length <= size:
        raise InputError(JSON_LENGTH, shorten(announced), f"a whole number of bytes up to {size}, as the body has")
    body = b"".join(pieces) if size <= INLINE_BYTES else await asyncio.to_thread(b"".join, pieces)
    return [body[:length]], memoryview(body)[length:]


def note_weight(request: Request, binary: memoryview) -> None:
    """Note in the request's scope that its tensors take long to check if there are many bytes of them."""
    request.scope[HEAVY] = request.scope.get(HEAVY, False) or len(binary) > INLINE_BYTES


async def decompress(pieces: Sequence[bytes], window: int, max_bytes: int) -> list[bytes]:
    """Return the content of a compressed body, in pieces; others are served in between.

    Raises `ApiError`: 413 as soon as there are more than `max_bytes`, 400 if it is broken or more than one stream.
    """
    stream, content, size = zlib.decompressobj(window), [], 0
    for piece in small_pieces(pieces, PIECE_BYTES):
        rest: bytes | memoryview = piece
        while True:
            if stream.eof:
                raise _broken("there are bytes after its end")
            content.append(_next(stream, rest))
            size += len(content[-1])
            if size > max_bytes:
                raise too_large("longer once it is decompressed", max_bytes)
            await asyncio.sleep(0)
            rest = stream.unconsumed_tail or stream.unused_data
            if not rest and (stream.eof or len(content[-1]) < PIECE_BYTES):
                break
    if not stream.eof:
        raise _broken("its end is missing")
    return content


def _next(stream: zlib._Decompress, data: bytes | memoryview) -> bytes:
    try:
        return stream.decompress(data, PIECE_BYTES)
    except zlib.error as error:
        raise _broken(str(error)) from None


def _window(request: Request) -> int | None:
    """Return the window bits for the body's content encoding, None if it has none. Raises `ApiError` (415)."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding not in WINDOWS:
        message = f"content-encoding is {encoding[:SHOWN]}, but must be {', '.join(WINDOWS)} or identity"
        headers = {"accept-encoding": ", ".join(WINDOWS)}
        raise ApiError(415, "unsupported_encoding", message, "content-encoding", headers=headers)
    return WINDOWS[encoding]


def _broken(why: str) -> ApiError:
    return ApiError(400, "malformed", f"body cannot be decompressed: {why[:SHOWN]}", "body")
