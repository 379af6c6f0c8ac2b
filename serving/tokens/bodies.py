"""The bodies of requests and answers of the tokens service, as models that parse and document them.

That of /predict is JSON or a multipart form."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, WithJsonSchema
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import (
    Closed,
    Utility,
    as_object,
    check_type,
    deadline,
    parse,
    read_body,
    schema_of,
    shorten,
)
from pliant.serving.http.schemas import Artifact, CommonStatus, Refresh, ServingDevice
from pliant.serving.loop.outcome_routes import AlarmDetails, TakenLabel
from pliant.serving.workers.helper_process import small_pieces

NUMBERS = ("deadline", "utility")
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


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """A checked request to classify an image."""

    image: bytes  # the file
    task: str
    deadline: float  # seconds from arrival
    utility: float  # of an answer in time
    client: Client = ANYBODY
    id: str | None = None  # to report the label with; None: a new one; "": it is not remembered


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
    if name not in NUMBERS:
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
    if len(text) <= BASE64_AT_ONCE:
        return base64.b64decode(text, validate=True)
    parts = []
    for start in range(0, len(text), BASE64_AT_ONCE):
        parts.append(base64.b64decode(text[start : start + BASE64_AT_ONCE], validate=True))
        await asyncio.sleep(0)
    return b"".join(parts)


class Prediction(BaseModel):
    """An output, and how it came about."""

    id: str = Field(description="to report its label with later, see POST /outcomes")
    task: str
    label: str = Field(description="the most probable class")
    probabilities: dict[str, float] = Field(description="class -> probability")
    gamma: int = Field(
        description="tokens merged in each layer (negative) or prompt tokens added (positive); 0: the plain model"
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
    accuracy: dict[str, float] = Field(description="gamma -> share of correct answers on the profiling split")


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


_POINT = Field(description="gamma, as the accuracy of GET /tasks names it")


class Figures(BaseModel):
    """The accuracy of one task at one operating point, by reported labels."""

    task: str
    version: str | int = Field(description="of the task")
    operating_point: str = _POINT
    promised: float | None = Field(description="2 points below what was measured on the profiling and test splits")
    labels: int
    accuracy: float | None
    evidence: float = Field(
        description="evidence against the promise; from 20 on it is broken (by chance in at most 5% of services)"
    )
    broken: bool
    confidence: float | None = Field(description="mean confidence")
    calibration_error: float | None = Field(description="expected calibration error, 15 bins")


class TakenOutcome(TakenLabel):
    operating_point: str = _POINT


class Alarm(Figures, AlarmDetails):
    pass


class Status(CommonStatus):
    devices: list[ServingDevice]
    policy: str
    gammas: list[int] = Field(description="gammas that the policy may use")
    generation: int = Field(description="number of the present generation, from 1; a change of tasks alone starts none")
    backbone: Backbone
    profile: Profile = Field(description="the latencies that the scheduler uses")
    tasks: list[TaskDescription]
    pins: dict[str, int] = PINS
    outcomes: list[Figures]


def request_body() -> dict[str, Any]:
    """Return the `openapi_extra` of /predict: a form with a file, or the same fields in JSON."""
    schema = schema_of(PredictBody)
    image = {"type": "string", "format": "binary", "description": "the image file"}
    form = {**schema, "properties": {**schema["properties"], "image": image}}
    content = {"multipart/form-data": {"schema": form}, "application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}
