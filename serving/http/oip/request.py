"""Reads the JSON object of an inference request, and the tensors in it or after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten
from serving.http.oip.binary import from_binary
from serving.http.oip.models import COMMON_PARAMETERS, InferRequest, Model, RequestedOutput
from serving.http.oip.tensors import BYTES, Tensor, TensorSpec, from_json, read_shape

FIELDS = ("id", "parameters", "inputs", "outputs")
MAX_TENSORS = 16  # that a request may list
SHARED_MEMORY = "shared_memory_region"


def read_request(model: Model, fields: Mapping[str, Any], binary: memoryview) -> InferRequest:
    """Return the request for a model. `binary`: the bytes after the JSON.

    Raises `InputError` for what does not fit the model or does not add up, `ApiError` (413) for too many elements.
    """
    parameters = _parameters("parameters", fields)
    ignored = [name for name in fields if name not in FIELDS]
    ignored += [name for name in parameters if name not in (*COMMON_PARAMETERS, *model.parameters)]
    binary_output = _flag("parameters.binary_data_output", parameters.get("binary_data_output"))
    outputs = _outputs(model, fields.get("outputs"), binary_output)
    return InferRequest(model, _id(fields), _inputs(model, fields, binary), outputs, parameters, tuple(ignored))


def check_elements(name: str, count: int, most: int) -> None:
    """Raise `ApiError` (413) for a tensor of more than `most` elements."""
    if count > most:
        raise ApiError(413, "too_many_elements", f"{name} has {count} elements, but must have at most {most}", name)


def _id(fields: Mapping[str, Any]) -> str | None:
    value = fields.get("id")
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError("id", shorten(value), "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("id", shorten(value), "a text that UTF-8 can hold") from None
    return value


def _parameters(name: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    value = fields.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(name, shorten(value), "an object")
    return value


def _flag(name: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return bool(value)


def _list(name: str, value: object) -> list[dict[str, Any]]:
    """Return a list of objects. Raises `InputError` for anything else, and for more than `MAX_TENSORS`."""
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        raise InputError(name, shorten(value), f"a list of at most {MAX_TENSORS} tensors")
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise InputError(f"{name}[{index}]", shorten(entry), "an object with the name of a tensor")
    return value


def _spec(field: str, entry: Mapping[str, Any], specs: Sequence[TensorSpec]) -> TensorSpec:
    """Return the model's tensor that an entry names. Raises `InputError` if there is none."""
    name = entry.get("name")
    for spec in specs:
        if spec.name == name:
            return spec
    raise InputError(f"{field}.name", shorten(name), f"one of {', '.join(spec.name for spec in specs)}")


def _inputs(model: Model, fields: Mapping[str, Any], data: memoryview) -> Mapping[str, Tensor]:
    at, tensors = 0, dict[str, Tensor]()
    entries = _list("inputs", fields.get("inputs"))
    if not entries:
        raise InputError("inputs", "empty", "a list of at least one tensor")
    for index, entry in enumerate(entries):
        field = f"inputs[{index}]"
        spec = _spec(field, entry, model.inputs)
        if spec.name in tensors:
            raise InputError(f"{field}.name", f"{spec.name} once more", "given once")
        size = _binary_size(field, entry, len(data) - at)
        own = None if size is None else data[at : at + size]
        at += size or 0
        tensors[spec.name] = _input(field, spec, entry, own, model.max_count)
    if at < len(data):
        raise InputError("body", f"{len(data) - at} bytes longer", "as long as its JSON and each binary_data_size")
    for spec in model.inputs:
        if spec.name not in tensors and not spec.optional:
            raise InputError("inputs", f"without {spec.name}", "given with all tensors that the model's metadata list")
    return tensors


def _binary_size(field: str, entry: Mapping[str, Any], left: int) -> int | None:
    """Return how many bytes of binary data a tensor has, None if its data is JSON. `left`: bytes that no other has."""
    parameters = _parameters(f"{field}.parameters", entry)
    if SHARED_MEMORY in parameters:
        raise InputError(f"{field}.parameters.{SHARED_MEMORY}", "given", "left out, as there is no shared memory")
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    name = f"{field}.parameters.binary_data_size"
    if "data" in entry:
        raise InputError(name, "given together with data", "given without it")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= left:
        raise InputError(name, shorten(size), f"a whole number from 0 to {left}, the bytes that are left in the body")
    return size


def _input(field: str, spec: TensorSpec, entry: Mapping[str, Any], binary: memoryview | None, most: int) -> Tensor:
    shape, datatype = read_shape(f"{field}.shape", entry.get("shape")), entry.get("datatype")
    if not isinstance(datatype, str) or not any(form.fits(datatype, shape) for form in spec.forms):
        given = f"{shorten(datatype)} {shorten(list(shape))}"
        raise InputError(f"datatype and shape of {spec.name}", given, " or ".join(map(str, spec.forms)))
    if datatype == BYTES and shape:
        check_elements(spec.name, shape[0], most)
    if binary is not None:
        return from_binary(spec.name, datatype, shape, binary)
    if "data" not in entry:
        raise InputError(f"{field}.data", "missing", "given, or binary_data_size among the tensor's parameters")
    return from_json(spec.name, datatype, shape, entry["data"])


def _outputs(model: Model, value: object, binary: bool) -> tuple[RequestedOutput, ...]:
    """Return the outputs that a request names, or all. `binary`: whether they are binary where it does not say."""
    outputs: list[RequestedOutput] = []
    for index, entry in enumerate(_list("outputs", [] if value is None else value)):
        field = f"outputs[{index}]"
        name = _spec(field, entry, model.outputs).name
        if name in [output.name for output in outputs]:
            raise InputError(f"{field}.name", f"{name} once more", "given once")
        parameters = _parameters(f"{field}.parameters", entry)
        if SHARED_MEMORY in parameters:
            raise InputError(f"{field}.parameters.{SHARED_MEMORY}", "given", "left out, as there is no shared memory")
        own = parameters.get("binary_data")
        is_binary = binary if own is None else _flag(f"{field}.parameters.binary_data", own)
        outputs.append(RequestedOutput(name, is_binary, _top_classes(field, model, name, parameters)))
    return tuple(outputs) or tuple(RequestedOutput(spec.name, binary) for spec in model.outputs)


def _top_classes(field: str, model: Model, name: str, parameters: Mapping[str, Any]) -> int | None:
    value = parameters.get("classification")
    if value is None:
        return None
    field += ".parameters.classification"
    if name != model.scores:
        limit = f"given for {model.scores} alone" if model.scores else "left out, as this model gives no classes"
        raise InputError(field, f"given for {name}", limit)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(field, shorten(value), "a whole number from 1 on")
    return value
