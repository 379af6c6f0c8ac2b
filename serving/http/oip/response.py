"""Writes answers and errors of the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from pliant.serving.http.api_errors import ApiError, ErrorShape, json_response
from pliant.serving.http.bodies import ignored_header
from pliant.serving.http.oip.models import InferAnswer, InferRequest, Model, RequestedOutput, best_classes
from pliant.serving.http.oip.tensors import Tensor, texts, to_binary, to_json

PREFIX = "/v2"
JSON_LENGTH = "Inference-Header-Content-Length"
STATUS: Mapping[int, int] = {422: 400, 424: 400}
"""Our status -> the protocol's, where it differs."""


def error_response(api_error: ApiError) -> Response:
    """Return an error in the protocol's shape."""
    status = STATUS.get(api_error.status, api_error.status)
    return json_response({"error": str(api_error)}, status, api_error.headers)


def shape_of(path: str, other: ErrorShape) -> ErrorShape:
    """Return the error shape of a path: the protocol's for those of its own, else the `other`."""
    return error_response if path == PREFIX or path.startswith(PREFIX + "/") else other


def infer_response(request: InferRequest, answer: InferAnswer) -> Response:
    """Return the answer with the outputs that the request names, as JSON and, where it says so, as binary data after it.

    Raises `ApiError` (503) if an output is missing.
    """
    tensors = {tensor.name: tensor for tensor in answer.outputs}
    entries, binary = [], []
    for output in request.outputs:
        if output.name not in tensors:
            raise replaced(request.model)
        tensor = _chosen(request, output, tensors[output.name])
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        if output.binary:
            binary.append(to_binary(tensor))
            entry["parameters"] = {"binary_data_size": len(binary[-1])}
        else:
            entry["data"] = to_json(tensor)
        entries.append(entry)
    content = orjson.dumps(
        {
            "model_name": request.model.name,
            **({} if answer.version is None else {"model_version": answer.version}),
            **({} if request.id is None else {"id": request.id}),
            "parameters": dict(answer.parameters),
            "outputs": entries,
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
    headers = ignored_header(request.ignored)
    if not any(output.binary for output in request.outputs):
        return Response(content, 200, headers, media_type="application/json")
    headers[JSON_LENGTH] = str(len(content))
    return Response(b"".join((content, *binary)), 200, headers, media_type="application/octet-stream")


def replaced(model: Model) -> ApiError:
    """Return the error for a model that another took the place of, with other outputs, while it answered."""
    return ApiError(503, "replaced", f"the model {model.name} was replaced while it answered; try again")


def _chosen(request: InferRequest, output: RequestedOutput, tensor: Tensor) -> Tensor:
    if output.top_classes is None:
        return tensor
    best, shape = best_classes(tensor, request.model.classes, output.top_classes)
    return texts(tensor.name, best, shape)
