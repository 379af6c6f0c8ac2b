"""The HTTP routes of the tokens service and their documentation. They call the endpoint in `app.state.endpoint`.

In the Open Inference Protocol, below /v2, each task is a model that classifies the images of a tensor. An image is a file
(an element of BYTES), or pixels (UINT8), which become a file too, so that the limits of /predict hold for both. The id of a
request is its answer's for POST /v1/outcomes, followed by /0, /1 and so on if it has several images; answers to requests
without an id cannot be labelled. Shape suffixes: N images, H rows, W columns, K classes.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from pliant.serving.client import Client
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import error_response, json_response
from pliant.serving.http.app import add_refresh, add_status, arrival, complete, endpoint_of, new_app, unknown_task
from pliant.serving.http.bodies import INLINE_BYTES, Utility, as_object, check_count, parse, read_body
from pliant.serving.http.bodies import request_body as json_body
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.models import InferAnswer, InferRequest, Model, Parameters, Served, one_version
from pliant.serving.http.oip.request import check_elements
from pliant.serving.http.oip.response import replaced, shape_of
from pliant.serving.http.oip.tensors import BYTES, Form, Tensor, TensorSpec, numbers, texts
from pliant.serving.http.schemas import errors
from pliant.serving.lifecycle.endpoint import run_each, width
from pliant.serving.loop.outcome_routes import add_outcomes
from pliant.serving.loop.outcomes import chosen_id
from pliant.serving.tokens.bodies import (
    Alarm,
    ImageRequest,
    Prediction,
    RegistrationBody,
    Status,
    TakenOutcome,
    TaskDescription,
    TaskList,
    TokensRefresh,
    read_image,
    read_request,
    request_body,
)
from pliant.serving.tokens.endpoint import TokensEndpoint


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant tokens")
    _add_routes(app)
    return complete(app, {"/predict": _predict}, swagger, lambda path: shape_of(path, error_response))


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`: the Open Inference Protocol, below /v2."""
    return routes.create_root(app, SERVED)


def _add_routes(app: FastAPI) -> None:
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify an image before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra=request_body(),
    )
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    app.add_api_route(
        "/tasks",
        _register,
        methods=["POST"],
        summary="Serve another task of the registry",
        responses={200: {"model": TaskDescription}, **errors(400, 403, 404, 409, 413, 415, 422, 500, 503)},
        openapi_extra={"requestBody": json_body(RegistrationBody)},
    )
    add_outcomes(app, TakenOutcome, Alarm, "7")
    add_refresh(app, TokensRefresh)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")


async def _predict(request: Request) -> Response:
    endpoint: TokensEndpoint = endpoint_of(request)
    arrived, settings = arrival(request, endpoint), endpoint.settings
    body = await read_request(request, settings.max_body_bytes, settings.max_deadline)
    return json_response(await endpoint.predict(body, arrived))


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": endpoint_of(request).tasks()})


async def _register(request: Request) -> Response:
    endpoint: TokensEndpoint = endpoint_of(request)
    client = check_admin(request, "register or pin tasks")
    fields = as_object(await parse(request, await read_body(request, endpoint.settings.max_body_bytes)))
    body = RegistrationBody.read(fields)
    return json_response(await endpoint.register(body.name, body.wanted, client))


IMAGE, SCORES, LABEL, CLASS = "image", "scores", "label", "class"
NUMBERS: Mapping[str, str] = {"gamma": "INT32", "on_time": "BOOL"}
"""Outputs that are fields of the answers of /predict, with their datatypes."""
FORMS = (
    Form(BYTES, (-1,)),
    Form(BYTES, (-1, 1)),
    Form("UINT8", (-1, -1, 3)),
    Form("UINT8", (-1, -1, -1, 3)),
)
BMP = struct.Struct("<2sIHHI IiiHHIIiiII")
"""The head of a file of pixels: BMP, uncompressed, 24 bits a pixel, the first row first (a negative height)."""


class ImageParameters(Parameters):
    utility: Utility = 1.0


def describe(endpoint: TokensEndpoint, name: str) -> Model:
    """Return the model of a task. Raises `ApiError` (404) if it is not served."""
    tasks = {str(task["name"]): task for task in endpoint.tasks()}
    if name not in tasks:
        raise unknown_task(name, "model", tasks)
    classes, version = tuple(tasks[name]["classes"]), tasks[name]["version"]
    others = {LABEL: BYTES, CLASS: "INT64", **NUMBERS}
    return Model(
        name=name,
        version=None if version is None else str(version),
        platform="pliant_tokens",
        inputs=(TensorSpec(IMAGE, FORMS),),
        outputs=(
            TensorSpec(SCORES, (Form("FP32", (-1, len(classes))),), classes=classes),
            *(TensorSpec(output, (Form(datatype, (-1,)),)) for output, datatype in others.items()),
        ),
        parameters=ImageParameters,
        max_count=endpoint.settings.max_images,
        scores=SCORES,
    )


async def infer(request: Request, endpoint: TokensEndpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /predict does for each image."""
    maximum, client = endpoint.settings.max_deadline, client_of(request)
    deadline = body.parameters.seconds(maximum)
    seconds = maximum if deadline is None else deadline
    worth = body.parameters.utility if isinstance(body.parameters, ImageParameters) else 1.0
    files = await _files(body)
    ids = _ids(body.id, client, len(files))

    async def predict(numbered: tuple[int, bytes]) -> dict[str, Any]:
        index, file = numbered
        try:
            image = ImageRequest(file, body.model.name, seconds, worth, client, ids[index])
            return await endpoint.predict(image, arrived)
        except InputError as error:
            raise _named(error, index) from None

    results = await run_each(list(enumerate(files)), predict, width(1, endpoint.largest_batch))
    answers = [result for result in results if result is not None]
    return InferAnswer(
        outputs=_outputs(body.model, answers),
        version=one_version(answer["versions"].get("task") for answer in answers),
        parameters={name: max(answer[name] for answer in answers) for name in ("queue_seconds", "run_seconds")},
    )


def _ids(id: str | None, client: Client, count: int) -> list[str]:
    """Return the ids under which the answers of a request are remembered; empty ones: they are not."""
    if not id:
        return [""] * count
    return [chosen_id(client, id if count == 1 else f"{id}/{index}") for index in range(count)]


async def _files(body: InferRequest) -> Sequence[bytes]:
    """Return the file of each image. Raises `InputError` for none, `ApiError` (413) for too many in pixels."""
    tensor = body.inputs[IMAGE]
    if not isinstance(tensor.elements, np.ndarray):
        check_count(IMAGE, tensor.elements, body.model.max_count)
        return [await _file(index, element) for index, element in enumerate(tensor.elements)]
    check_elements(IMAGE, math.prod(tensor.shape[:-3]), body.model.max_count)
    if not tensor.elements.size:
        raise InputError(f"shape of {IMAGE}", list(tensor.shape), "of at least one pixel")
    pixels_NHW3 = tensor.elements.reshape(-1, *tensor.shape[-3:])
    if tensor.elements.size <= INLINE_BYTES:
        return [to_file(pixels_HW3) for pixels_HW3 in pixels_NHW3]
    return [await asyncio.to_thread(to_file, pixels_HW3) for pixels_HW3 in pixels_NHW3]


async def _file(index: int, element: str | bytes) -> bytes:
    try:
        return await read_image(element)
    except InputError as error:
        raise _named(error, index) from None


def to_file(pixels_HW3: NDArray[np.uint8]) -> bytes:
    """Return a file of the pixels, which are red, green and blue. Each row of it ends at a multiple of four bytes."""
    height, width, _ = pixels_HW3.shape
    rows = np.zeros((height, -(-width * 3 // 4) * 4), np.uint8)
    rows[:, : width * 3] = pixels_HW3[:, :, ::-1].reshape(height, -1)
    head = BMP.pack(b"BM", BMP.size + rows.size, 0, 0, BMP.size, 40, width, -height, 1, 24, 0, rows.size, 0, 0, 0, 0)
    return head + rows.tobytes()


def _named(error: InputError, index: int) -> InputError:
    """Return the error of an image with its number."""
    field = f"{IMAGE}[{index}]" if error.field == IMAGE else error.field
    return InputError(field, error.value, error.limit)


def _outputs(model: Model, answers: Sequence[Mapping[str, Any]]) -> list[Tensor]:
    """Return scores [N, K] and the rest of the answers. Raises `ApiError` (503) if a class is new or has gone."""
    if any(tuple(answer["probabilities"]) != model.classes for answer in answers):
        raise replaced(model)
    labels = [answer["label"] for answer in answers]
    return [
        numbers(SCORES, "FP32", [list(answer["probabilities"].values()) for answer in answers]),
        texts(LABEL, labels),
        numbers(CLASS, "INT64", [model.classes.index(label) for label in labels]),
        *(numbers(name, datatype, [answer[name] for answer in answers]) for name, datatype in NUMBERS.items()),
    ]


SERVED = Served("pliant-tokens", describe, infer)
