"""The JSON object of an inference request, as a model that parses and documents it, and the tensors in it or after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import Body, Utf8, refused
from pliant.serving.http.json_body import shorten
from pliant.serving.http.oip.binary import from_binary
from pliant.serving.http.oip.models import InferRequest, Model, Parameters, RequestedOutput
from pliant.serving.http.oip.tensors import BYTES, MAX_RANK, MAX_SIZE, Tensor, TensorSpec, from_json

MAX_TENSORS = 16  # that a request may list


def _no_shared_memory(_region: object) -> None:
    raise refused("left out, as there is no shared memory", "given")


SharedMemory = SkipJsonSchema[Annotated[Any, AfterValidator(_no_shared_memory)]]


class InputParameters(Body):
    binary_data_size: int | None = Field(None, ge=0)
    shared_memory_region: SharedMemory = None


class InputTensor(Body):
    name: str = Field(description="as the model's metadata list it")
    datatype: Literal[
        "BYTES",
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
    ]
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
