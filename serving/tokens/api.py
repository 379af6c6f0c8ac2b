"""The HTTP routes of the tokens service, their bodies as models, and the Open Inference Protocol over them.

They call the endpoint in `app.state.endpoint`. The body of /predict is JSON or a multipart form.

In the Open Inference Protocol, below /v2, each task is a model that classifies the images of a tensor. An image is a file
(an element of BYTES), or pixels (UINT8), which become a file too, so that the limits of /predict hold for both. The id of a
request is its answer's for POST /v1/outcomes, followed by /0, /1 and so on if it has several images; answers to requests
without an id cannot be labelled. Shape suffixes: N images, H rows, W columns, K classes.
"""

from __future__ import annotations

import asyncio
import base64
import math
import struct
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from pydantic import BaseModel, Field, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from pliant.serving.http.access.access import check_admin, client_of
from pliant.serving.http.api_errors import ApiError, error_response
from pliant.serving.http.app import (
    Artifact,
    CommonStatus,
    Refresh,
    ServingDevice,
    add_refresh,
    add_status,
    arrival,
    complete,
    endpoint_of,
    errors,
    json_response,
    new_app,
    unknown_task,
)
from pliant.serving.http.bodies import (
    INLINE_BYTES,
    Closed,
    Utility,
    as_object,
    check_count,
    check_type,
    deadline,
    parse,
    read_body,
    request_body,
    schema_of,
    shorten,
)
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.models import (
    BYTES,
    Form,
    InferAnswer,
    InferRequest,
    Model,
    Parameters,
    Served,
    Tensor,
    TensorSpec,
    numbers,
    one_version,
    texts,
)
from pliant.serving.http.oip.routes import check_elements, replaced, shape_of
from pliant.serving.lifecycle.endpoint import run_each, width
from pliant.serving.loop import outcome_routes
from pliant.serving.loop.outcome_routes import AlarmDetails, TakenLabel, WantedAnswer, add_outcomes
from pliant.serving.loop.outcomes import chosen_id
from pliant.serving.tokens.endpoint import ImageRequest, TokensEndpoint
from pliant.serving.workers.helper_process import small_pieces

IN_FORMS = ("deadline", "utility")  # numbers that a form has as texts
BASE64_AT_ONCE = 1024 * 1024  # characters, a multiple of four; the event loop serves others in between
FIELD_BYTES = 4096  # of a text field in a form
PIECE_BYTES = 256 * 1024  # of a form that are read before the event loop serves others, in well below a millisecond


class PredictBody(Closed):
    image: Annotated[
        Any, WithJsonSchema({"type": "string", "format": "byte", "description": "the image file in base64"})
    ]
    task: str = Field(min_length=1, description="a task that GET /tasks lists")
    deadline: float = Field(gt=0, description="seconds from arrival")
    utility: Utility = 1.0


class RegistrationBody(Closed):
    name: str = Field(min_length=1, description="name of the task in the registry")
    alias: str = Field(  # type: ignore[assignment]  # null is no alias
        None, min_length=1, description="alias of the version to serve; default: the service's alias"
    )
    version: int | None = Field(
        None,
        ge=1,
        description="pins the task to this version; null, or none and no alias: it follows the service's alias",
    )

    @property
    def wanted(self) -> str | int | None:
        """Return the alias or the version that is named; None if neither, or null. Raises `InputError` if both."""
        if {"alias", "version"} <= self.model_fields_set:
            raise InputError("version", "given together with alias", "given without it")
        return self.alias or self.version


async def read_request(request: Request, max_bytes: int, max_deadline: float) -> ImageRequest:
    """Return the checked request. Raises `ApiError` or `InputError` if it is not valid."""
    kind = check_type(request, ("application/json", "multipart/form-data"), _ACCEPTED)
    body = await read_body(request, max_bytes)
    is_json = kind == "application/json"
    fields = as_object(await parse(request, body)) if is_json else await _parse_form(request, body)
    read = PredictBody.read(fields)
    return ImageRequest(
        image=await read_image(read.image),
        task=read.task,
        deadline=deadline(read.deadline, max_deadline),
        utility=read.utility,
        client=client_of(request),
    )


_ACCEPTED = "multipart/form-data with a file field `image`, or application/json with `image` in base64"


async def _parse_form(request: Request, body: Sequence[bytes]) -> Mapping[str, Any]:
    parser = MultiPartParser(request.headers, in_pieces(body), max_files=1, max_fields=8, max_part_size=FIELD_BYTES)
    try:
        form = await parser.parse()
    except (MultiPartException, LookupError, UnicodeError) as error:  # the last two: an unusable charset
        raise ApiError(400, "malformed", f"body is no multipart form: {error}", "body") from None
    names = [name for name, _ in form.multi_items()]
    for name in names:
        if names.count(name) > 1:
            raise InputError(shorten(name), f"given {names.count(name)} times", "given once")
    return {name: await _form_value(name, value) for name, value in form.items()}


async def in_pieces(body: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the body in pieces of at most `PIECE_BYTES`, and give others a turn after each."""
    for piece in small_pieces(body, PIECE_BYTES):
        yield bytes(piece)
        await asyncio.sleep(0)
    yield b""


async def _form_value(name: str, value: UploadFile | str) -> bytes | str | float:
    if isinstance(value, UploadFile):
        try:
            return await value.read()
        finally:
            await value.close()
    if name not in IN_FORMS:
        return value
    try:
        return float(value)
    except ValueError:
        raise InputError(name, shorten(value), "a number") from None


async def read_image(value: object) -> bytes:
    """Return the file in the field `image`: bytes, or base64 of them. Raises `InputError` for anything else."""
    match value:
        case bytes():
            return value
        case str():
            try:
                return await _from_base64(value)
            except ValueError as error:
                raise InputError("image", shorten(value), f"a file, or its bytes in base64 ({error})") from None
    raise InputError("image", shorten(value), "a file, or its bytes in base64")


async def _from_base64(text: str) -> bytes:
    """Return the bytes. Raises `ValueError` for what is no base64."""
    parts = []
    for start in range(0, len(text), BASE64_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        parts.append(base64.b64decode(text[start : start + BASE64_AT_ONCE], validate=True))
    return b"".join(parts)


class Prediction(BaseModel):
    """An output, and how it came about."""

    id: str = Field(description="to report its label with later, see POST /outcomes")
    task: str
    label: str = Field(description="the most probable class")
    probabilities: dict[str, float] = Field(description="class -> probability")
    gamma: int = Field(
        description="tokens merged in each layer (negative) or prompt tokens added (positive); 0: the plain model; "
        "from 101 on the number of an operating point, see points in GET /status"
    )
    batch_size: int = Field(description="requests that ran in the same batch")
    queue_seconds: float = Field(description="seconds from arrival to launch")
    run_seconds: float = Field(description="seconds on the device, for the whole batch")
    on_time: bool = Field(description="whether the deadline was met")
    versions: dict[str, int] = Field(
        description="versions of the backbone and task that gave the answer, and of the profile that the scheduler used"
    )


class TaskDescription(BaseModel):
    name: str
    classes: list[str]
    version: int
    digest: str
    accuracy: dict[str, float] = Field(description="gamma or point -> share of correct answers on the profiling split")


class TaskList(BaseModel):
    tasks: list[TaskDescription]


class Backbone(Artifact):
    source: str = Field(description="the weights that it was made from")


class Profile(Artifact):
    device: str = Field(description="the class of device that was measured")
    precision: str | None = Field(description="that it computes in; null in older profiles: what the device prefers")


PINS = Field(description="task -> the version that it is pinned to, until POST /tasks with version null takes it off")


class TokensRefresh(Refresh):
    pins: dict[str, int] = PINS


_POINT = Field(description="gamma or number of a point, as the accuracy of GET /tasks names it")


class Figures(outcome_routes.Figures):
    operating_point: str = _POINT
    promised: float | None = Field(description="2 points below what was measured on the profiling and test splits")
    confidence: float | None = Field(description="mean confidence")
    calibration_error: float | None = Field(description="expected calibration error, 15 bins")


class TakenOutcome(TakenLabel):
    operating_point: str = _POINT


class Wanted(WantedAnswer):
    operating_point: str = _POINT


class Alarm(Figures, AlarmDetails):
    pass


class Status(CommonStatus):
    devices: list[ServingDevice]
    policy: str
    gammas: list[int] = Field(description="gammas and numbers of points that the policy may use")
    points: dict[str, str] = Field(description="number of an operating point -> what it is")
    generation: int = Field(description="number of the present generation, from 1; a change of tasks alone starts none")
    backbone: Backbone
    profile: Profile = Field(description="the latencies that the scheduler uses")
    tasks: list[TaskDescription]
    pins: dict[str, int] = PINS
    outcomes: list[Figures]


def _predict_body() -> dict[str, Any]:
    """Return the `requestBody` of /predict: a form with a file, or the same fields in JSON."""
    schema = schema_of(PredictBody)
    image = {"type": "string", "format": "binary", "description": "the image file"}
    form = {**schema, "properties": {**schema["properties"], "image": image}}
    content = {"multipart/form-data": {"schema": form}, "application/json": {"schema": schema}}
    return {"required": True, "content": content}


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant tokens")
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify an image before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra={"requestBody": _predict_body()},
    )
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    app.add_api_route(
        "/tasks",
        _register,
        methods=["POST"],
        summary="Serve another task of the registry",
        responses={200: {"model": TaskDescription}, **errors(400, 403, 404, 409, 413, 415, 422, 500, 503)},
        openapi_extra={"requestBody": request_body(RegistrationBody)},
    )
    add_outcomes(app, TakenOutcome, Wanted, Alarm, "7")
    add_refresh(app, TokensRefresh)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")
    return complete(app, {"/predict": _predict}, swagger, lambda path: shape_of(path, error_response))


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`: the Open Inference Protocol, below /v2."""
    return routes.create_root(app, SERVED)


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
    given = body.parameters.seconds(maximum)
    seconds = maximum if given is None else given
    worth = body.parameters.utility if isinstance(body.parameters, ImageParameters) else 1.0
    files = await _files(body)

    async def predict(numbered: tuple[int, bytes]) -> dict[str, Any]:
        index, file = numbered
        id = str(body.id) if len(files) == 1 else f"{body.id}/{index}"
        try:
            image = ImageRequest(
                file, body.model.name, seconds, worth, client, chosen_id(client, id) if body.id else ""
            )
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
