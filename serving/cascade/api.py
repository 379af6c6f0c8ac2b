"""The HTTP routes of the cascade service and their documentation. They call the endpoint in `app.state.endpoint`.

The routes below /tei follow text-embeddings-inference, errors included: the answer is a list of {score, label}, best
first. Raw scores are the logarithms of the calibrated probabilities (a cascade has no logits; their softmax gives the
probabilities again), and texts are truncated at their end only. Those below /v2 follow the Open Inference Protocol: each
task is a model that classifies the texts of a tensor, or rates them; as a request has one status, an error of any text is
the request's.

Shape suffixes: N texts, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pliant.serving.cascade.bodies import (
    EXAMPLES,
    Alarm,
    Described,
    Endpoint,
    OipParameters,
    PredictBody,
    Prediction,
    Status,
    TakenOutcome,
    TaskList,
    TextRequest,
    check_pairs,
    read_request,
    select_task,
    to_request,
)
from pliant.serving.http import tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, ErrorShape, error_response, json_response
from pliant.serving.http.app import add_refresh, add_status, arrival, complete, endpoint_of, guarded, new_app
from pliant.serving.http.bodies import checked, read_fields, request_body
from pliant.serving.http.oip import routes
from pliant.serving.http.oip.models import (
    Form,
    InferAnswer,
    InferRequest,
    Model,
    Served,
    Tensor,
    TensorSpec,
    numbers,
    one_version,
    text_inputs,
    texts_of,
)
from pliant.serving.http.oip.models import texts as text_tensor
from pliant.serving.http.oip.routes import replaced, shape_of
from pliant.serving.http.schemas import Score, TeiError, errors, route_options
from pliant.serving.loop.outcome_routes import add_outcomes


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant cascade")
    _add_routes(app)
    add_tei(app, endpoint_of)
    return complete(app, {"/predict": _predict}, swagger, _shape_of)


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`."""
    return routes.create_root(app, SERVED)


def _shape_of(path: str) -> ErrorShape:
    return shape_of(path, tei.error_response if "/tei" in path else error_response)


def _add_routes(app: FastAPI) -> None:
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify one or many texts before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra={"requestBody": request_body(PredictBody, examples=EXAMPLES)},
    )
    add_outcomes(app, TakenOutcome, Alarm, "positive")
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    add_refresh(app)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")


async def _predict(request: Request) -> Response:
    endpoint: Endpoint = endpoint_of(request)
    arrived = arrival(request, endpoint)
    body = await read_request(request, endpoint)
    return json_response(_with_cleaned(await endpoint.predict(body, arrived), body))


def _with_cleaned(prediction: dict[str, Any], body: TextRequest) -> dict[str, Any]:
    """Return the prediction with the number of characters that were cleaned in each text."""
    answers = [{**answer, "cleaned": count} for answer, count in zip(prediction["answers"], body.cleaned, strict=True)]
    return {**prediction, "answers": answers}


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": list(endpoint_of(request).tasks())})


MIN_PROBABILITY = 1e-12  # smaller probabilities count as this one in raw scores
STATUS: Mapping[str, int] = {"full": 429, "invalid": 422}
"""The code of a text's error -> the status of the response."""

ROUTES: Mapping[str, tuple[str, Any, tuple[int, ...]]] = {
    "/predict": (
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        (400, 404, 413, 415, 422, 424, 429),
    ),
    "/info": ("The model, as text-embeddings-inference describes it", Any, (404, 422)),
    "/health": ("Whether the service can answer", None, (404, 503)),
}
"""Summary, answer and errors of each route."""


def add_tei(app: FastAPI, endpoint_of: Callable[[Request], Endpoint]) -> None:
    """Add the routes below /tei and, for a service of several tasks, below /tei/{task}."""
    handlers: Mapping[str, Callable[[Request, Endpoint], Awaitable[Response]]] = {
        "/predict": _classify,
        "/info": _info,
        "/health": _health,
    }
    for base in ("/tei", "/tei/{task}"):
        for path, handle in handlers.items():
            summary, answer, statuses = ROUTES[path]
            body, responses = request_body(tei.PredictBody), errors(*statuses, model=TeiError)
            options = route_options(
                base, summary, "text-embeddings-inference", answer, responses, body if path == "/predict" else None
            )
            handler = guarded(handle, endpoint_of, tei.error_response)
            app.add_api_route(base + path, handler, name=base + path, **options)
            if path != "/info":  # the base address predicts, and says whether the service can answer
                hidden = {**options, "include_in_schema": False}
                app.add_api_route(base, handler, name=f"{path} at {base}", **hidden)


async def _classify(request: Request, endpoint: Endpoint) -> Response:
    arrived = arrival(request, endpoint)
    fields = await read_fields(request, endpoint.settings)
    task = select_task(request.path_params.get("task"), endpoint)
    described, body = endpoint.describe(task), await checked(request, tei.PredictBody.read, fields)
    texts = body.texts(endpoint.settings.max_texts)
    check_pairs("inputs", texts, task, described.pair, not body.batch)
    limit = endpoint.settings.max_deadline
    answers = (await endpoint.predict(TextRequest(task, texts, deadline=limit, client=client_of(request)), arrived))[
        "answers"
    ]
    check_errors(answers)
    check_cut(answers, body.truncate, body.left, described)
    return json_response(body.shaped([scores(answer, body) for answer in answers], "parameters" in fields))


async def _info(request: Request, endpoint: Endpoint) -> Response:
    task, limits = select_task(request.path_params.get("task"), endpoint), endpoint.settings
    described = endpoint.describe(task)
    kind = tei.classifier_type(described.classes)
    return json_response(tei.info(task, kind, described.max_length, limits.max_waiting, limits.max_texts))


async def _health(request: Request, endpoint: Endpoint) -> Response:
    if "task" in request.path_params:
        select_task(request.path_params["task"], endpoint)
    return tei.health(endpoint.status()["ready"])


def scores(answer: Mapping[str, Any], body: tei.PredictBody) -> list[dict[str, Any]]:
    """Return the scores of all classes (or the best `top_k`), best first, or a regression's value."""
    if not answer["probabilities"]:
        return [{"score": answer["label"], "label": "LABEL_0"}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])[: body.top_k]
    return [{"score": raw_score(share) if body.raw else share, "label": label} for label, share in best]


def raw_score(probability: float) -> float:
    """Return the logarithm of a probability, at least that of `MIN_PROBABILITY`."""
    return math.log(max(probability, MIN_PROBABILITY))


def check_errors(answers: list[Mapping[str, Any]]) -> None:
    """Raise the first error among the answers: in TEI, a batch succeeds or fails as a whole."""
    for answer in answers:
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            raise ApiError(STATUS.get(code, 503), code, message, answer["error"]["field"])


def check_cut(answers: list[Mapping[str, Any]], truncate: bool, left: bool, described: Described) -> None:
    """Raise `ApiError` if a text was truncated that must not be, which the models' tokenizers decide."""
    if not any(answer["truncated"] for answer in answers):
        return
    if not truncate:
        raise tei.too_long(described.max_length)
    if left:
        raise tei.not_left(described.max_length)


SCORES, LABEL, CLASS = "scores", "label", "class"
NUMBERS: Mapping[str, str] = {"confidence": "FP32", "truncated": "BOOL", "cut_short": "BOOL", "on_time": "BOOL"}
TEXTS = ("level", "id")
"""Outputs that are fields of the answers of /predict, besides `NUMBERS` with their datatypes."""


def describe(endpoint: Endpoint, name: str) -> Model:
    """Return the model of a task. Raises `ApiError` (404) if it is not served."""
    task = select_task(name, endpoint)
    described = endpoint.describe(task)
    return Model(
        name=task,
        version=str(described.version),
        platform="pliant_cascade",
        inputs=text_inputs(described.pair),
        outputs=_outputs_of(described),
        parameters=OipParameters,
        max_count=endpoint.settings.max_texts,
        scores=SCORES,
    )


async def infer(request: Request, endpoint: Endpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /predict does."""
    task = select_task(body.model.name, endpoint)
    described, maximum = endpoint.describe(task), endpoint.settings.max_deadline
    parameters = body.parameters
    assert isinstance(parameters, OipParameters)
    seconds = parameters.seconds(maximum)
    texts = await checked(request, texts_of, body)
    check_pairs("text", texts, task, described.pair)
    limit = maximum if seconds is None else seconds
    prediction = await endpoint.predict(to_request(task, texts, parameters, limit, client_of(request)), arrived)
    answers: list[Mapping[str, Any]] = prediction["answers"]
    check_errors(answers)
    check_cut(answers, parameters.truncate, False, described)
    return InferAnswer(
        outputs=_outputs(body.model, answers, parameters.raw_scores),
        version=one_version(answer["versions"]["task"] for answer in answers),
        parameters={name: max(answer[name] for answer in answers) for name in ("queue_seconds", "run_seconds")},
    )


def _outputs_of(described: Described) -> tuple[TensorSpec, ...]:
    """Return the outputs of a task; a regression has one score, its value, and no classes."""
    classes = described.classes
    scores = TensorSpec(SCORES, (Form("FP32", (-1, len(classes) or 1)),), classes=classes)
    own = {LABEL: "BYTES", CLASS: "INT64"} if classes else {}
    others = {**own, **NUMBERS, **dict.fromkeys(TEXTS, "BYTES")}
    return scores, *(TensorSpec(name, (Form(datatype, (-1,)),)) for name, datatype in others.items())


def _outputs(model: Model, answers: Sequence[Mapping[str, Any]], raw: bool) -> list[Tensor]:
    """Return scores [N, K] and the rest of the answers. Raises `ApiError` (503) if a class is new or has gone."""
    write: Callable[[float], float] = raw_score if raw else float
    if any(tuple(answer["probabilities"] or ()) != model.classes for answer in answers):
        raise replaced(model)
    if model.classes:
        scores_NK = [[write(share) for share in answer["probabilities"].values()] for answer in answers]
        labels = [answer["label"] for answer in answers]
        numbers_N = [model.classes.index(label) for label in labels]
        own = [numbers(SCORES, "FP32", scores_NK), text_tensor(LABEL, labels), numbers(CLASS, "INT64", numbers_N)]
    else:
        own = [numbers(SCORES, "FP32", [[answer["label"]] for answer in answers])]
    own += [numbers(name, datatype, [answer[name] for answer in answers]) for name, datatype in NUMBERS.items()]
    return own + [text_tensor(name, [answer[name] for answer in answers]) for name in TEXTS]


SERVED = Served("pliant-cascade", describe, infer)
