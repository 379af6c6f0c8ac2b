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

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from pliant.errors import InputError
from pliant.serving.cascade.bodies import (
    EXAMPLES,
    Alarm,
    OipParameters,
    PredictBody,
    Prediction,
    Status,
    TakenOutcome,
    Targets,
    TaskList,
    TextObject,
    Wanted,
)
from pliant.serving.cascade.catalog import ServedTask
from pliant.serving.cascade.endpoint import CascadeEndpoint, TextRequest
from pliant.serving.cascade.questions import add_questions
from pliant.serving.client import Client
from pliant.serving.http import tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, error_response
from pliant.serving.http.app import (
    Score,
    TeiError,
    add_refresh,
    add_status,
    arrival,
    complete,
    endpoint_of,
    errors,
    guarded,
    json_response,
    new_app,
    route_options,
)
from pliant.serving.http.bodies import (
    Texts,
    check_count,
    checked,
    cleaned,
    deadline,
    read_fields,
    request_body,
    shorten,
)
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
from pliant.serving.loop.outcome_routes import add_outcomes


async def _predict(request: Request) -> Response:
    endpoint: CascadeEndpoint = endpoint_of(request)
    arrived, settings = arrival(request, endpoint), endpoint.settings
    body = await PredictBody.of(request, settings)
    served = endpoint.select(body.task)
    parts = _parts(body, settings.max_texts)
    _check_pairs("text" if body.texts is None else "texts", parts, served, body.texts is None)
    texts, counts = await checked(request, _cleaned, parts)
    limit = settings.max_deadline if body.deadline is None else deadline(body.deadline, settings.max_deadline)
    prediction = await endpoint.predict(_to_request(served, texts, body, limit, client_of(request)), arrived)
    answers = [{**each, "cleaned": count} for each, count in zip(prediction["answers"], counts, strict=True)]
    return Response(orjson.dumps({**prediction, "answers": answers}), media_type="application/json")


async def _tasks(request: Request) -> Response:
    return json_response({"tasks": endpoint_of(request).tasks()})


def _parts(body: PredictBody, maximum: int) -> list[tuple[str, str | None]]:
    """Return the texts and pairs. Raises `InputError`, and as `check_count`."""

    def parts(text: str | list[str] | TextObject) -> tuple[str, str | None]:
        if isinstance(text, str):
            return text, None
        return (text.text, text.text_pair) if isinstance(text, TextObject) else (text[0], text[1])

    if body.texts is not None:
        for other in ("text", "text_pair"):
            if other in body.model_fields_set:
                raise InputError("texts", f"given together with {other}", "given without it")
        check_count("texts", body.texts, maximum)
        return [parts(text) for text in body.texts]
    if body.text is None:
        raise InputError("text", "missing", "given, or texts as a list")
    if body.text_pair is None:
        return [parts(body.text)]
    if not isinstance(body.text, str):
        raise InputError("text", "no single text", "a text, as text_pair is given")
    return [(body.text, body.text_pair)]


def _check_pairs(name: str, texts: Sequence[tuple[str, str | None]], served: ServedTask, single: bool = False) -> None:
    """Raise `InputError` unless all are what the task takes. `single`: their field holds one of them."""
    task, pair = served.cascade.task, served.cascade.pair
    for index, (_, second) in enumerate(texts):
        if (second is not None) != pair:
            place, takes = name if single else f"{name}[{index}]", f"as the task {shorten(task)} takes"
            if pair:
                raise InputError(place, "one text", f'a pair ["...", "..."], {takes} two texts')
            raise InputError(place, "a pair of texts", f"a single text, {takes} one")


def _cleaned(parts: Sequence[tuple[str, str | None]]) -> tuple[Texts, list[int]]:
    """Return the texts with spaces for control characters, and how many these are in each."""
    texts, counts = [], []
    for first, second in parts:
        text, count = cleaned(first)
        other, more = (None, 0) if second is None else cleaned(second)
        texts.append((text, other))
        counts.append(count + more)
    return tuple(texts), counts


def _to_request(served: ServedTask, texts: Texts, targets: Targets, limit: float, client: Client) -> TextRequest:
    """Return the request for texts. Raises `InputError` for a candidate beside targets."""
    accuracy, latency, candidate = targets.accuracy, targets.latency, targets.candidate
    if candidate is not None and (accuracy is not None or latency is not None):
        raise InputError("candidate", "given together with accuracy or latency", "given without them")
    return TextRequest(served.cascade.task, texts, accuracy, latency, limit, targets.utility, candidate, client)


MIN_PROBABILITY = 1e-12  # smaller probabilities count as this one in raw scores
STATUS: Mapping[str, int] = {"full": 429, "invalid": 422}
"""The code of a text's error -> the status of the response."""


async def _classify(request: Request, endpoint: CascadeEndpoint) -> Response:
    arrived, settings = arrival(request, endpoint), endpoint.settings
    fields = await read_fields(request, settings)
    served = endpoint.select(request.path_params.get("task"))
    body = await checked(request, tei.PredictBody.read, fields)
    texts = body.texts(settings.max_texts)
    _check_pairs("inputs", texts, served, not body.batch)
    wanted = TextRequest(served.cascade.task, texts, deadline=settings.max_deadline, client=client_of(request))
    answers = (await endpoint.predict(wanted, arrived))["answers"]
    _check_answers(answers, served, body.truncate, body.left)
    return json_response(body.shaped([scores(answer, body) for answer in answers], "parameters" in fields))


async def _info(request: Request, endpoint: CascadeEndpoint) -> Response:
    served, limits = endpoint.select(request.path_params.get("task")), endpoint.settings
    task, kind = served.cascade.task, tei.classifier_type(served.cascade.classes)
    return json_response(tei.info(task, kind, served.max_length, limits.max_waiting, limits.max_texts))


async def _health(request: Request, endpoint: CascadeEndpoint) -> Response:
    if "task" in request.path_params:
        endpoint.select(request.path_params["task"])
    return tei.health(endpoint.ready)


def scores(answer: Mapping[str, Any], body: tei.PredictBody) -> list[dict[str, Any]]:
    """Return the scores of all classes (or the best `top_k`), best first, or a regression's value."""
    if not answer["probabilities"]:
        return [{"score": answer["label"], "label": "LABEL_0"}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])[: body.top_k]
    return [{"score": raw_score(share) if body.raw else share, "label": label} for label, share in best]


def raw_score(probability: float) -> float:
    """Return the logarithm of a probability, at least that of `MIN_PROBABILITY`."""
    return math.log(max(probability, MIN_PROBABILITY))


def _check_answers(answers: list[Mapping[str, Any]], served: ServedTask, truncate: bool, left: bool) -> None:
    """Raise `ApiError`: the first error among the answers, as a batch succeeds or fails as a whole; or for a text that was
    truncated and must not be, which the models' tokenizers decide.
    """
    for answer in answers:
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            raise ApiError(STATUS.get(code, 503), code, message, answer["error"]["field"])
    if any(answer["truncated"] for answer in answers):
        if not truncate:
            raise tei.too_long(served.max_length)
        if left:
            raise tei.not_left(served.max_length)


SCORES, LABEL, CLASS = "scores", "label", "class"
NUMBERS: Mapping[str, str] = {"confidence": "FP32", "truncated": "BOOL", "cut_short": "BOOL", "on_time": "BOOL"}
TEXTS = ("level", "id")
"""Outputs that are fields of the answers of /predict, besides `NUMBERS` with their datatypes."""


def describe(endpoint: CascadeEndpoint, name: str) -> Model:
    """Return the model of a task. Raises `ApiError` (404) if it is not served."""
    served = endpoint.select(name)
    classes = served.cascade.classes
    own = {LABEL: "BYTES", CLASS: "INT64"} if classes else {}  # a regression has one score, its value
    others = {**own, **NUMBERS, **dict.fromkeys(TEXTS, "BYTES")}
    return Model(
        name=served.cascade.task,
        version=str(served.version),
        platform="pliant_cascade",
        inputs=text_inputs(served.cascade.pair),
        outputs=(
            TensorSpec(SCORES, (Form("FP32", (-1, len(classes) or 1)),), classes=classes),
            *(TensorSpec(name, (Form(datatype, (-1,)),)) for name, datatype in others.items()),
        ),
        parameters=OipParameters,
        max_count=endpoint.settings.max_texts,
        scores=SCORES,
    )


async def infer(request: Request, endpoint: CascadeEndpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /predict does."""
    served, maximum = endpoint.select(body.model.name), endpoint.settings.max_deadline
    parameters = body.parameters
    assert isinstance(parameters, OipParameters)
    seconds = parameters.seconds(maximum)
    texts = await checked(request, texts_of, body)
    _check_pairs("text", texts, served)
    wanted = _to_request(served, texts, parameters, maximum if seconds is None else seconds, client_of(request))
    answers = (await endpoint.predict(wanted, arrived))["answers"]
    _check_answers(answers, served, parameters.truncate, False)
    return InferAnswer(
        outputs=_outputs(body.model, answers, parameters.raw_scores),
        version=one_version(answer["versions"]["task"] for answer in answers),
        parameters={name: max(answer[name] for answer in answers) for name in ("queue_seconds", "run_seconds")},
    )


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


Handle = Callable[[Request, CascadeEndpoint], Awaitable[Response]]
TEI: Mapping[str, tuple[Handle, str, Any, tuple[int, ...]]] = {
    "/predict": (
        _classify,
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        (400, 404, 413, 415, 422, 424, 429),
    ),
    "/info": (_info, "The model, as text-embeddings-inference describes it", Any, (404, 422)),
    "/health": (_health, "Whether the service can answer", None, (404, 503)),
}
"""Handler, summary, answer and errors of each route below /tei and, for a service of several tasks, below /tei/{task}."""
OIP = Served("pliant-cascade", describe, infer)


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app = new_app("Pliant cascade")
    app.add_api_route(
        "/predict",
        _predict,
        methods=["POST"],
        summary="Classify one or many texts before a deadline",
        responses={200: {"model": Prediction}, **errors(400, 404, 413, 415, 422, 429, 500, 503)},
        openapi_extra={"requestBody": request_body(PredictBody, examples=EXAMPLES)},
    )
    add_outcomes(app, TakenOutcome, Wanted, Alarm, "positive")
    add_questions(app)
    app.add_api_route("/tasks", _tasks, methods=["GET"], summary="List the tasks", responses={200: {"model": TaskList}})
    add_refresh(app)
    add_status(app, Status, "Status of the service, and accuracy by reported labels")
    for base in ("/tei", "/tei/{task}"):
        for path, (handle, summary, answer, statuses) in TEI.items():
            body = request_body(tei.PredictBody) if path == "/predict" else None
            responses = errors(*statuses, model=TeiError)
            options = route_options(base, summary, "text-embeddings-inference", answer, responses, body)
            handler = guarded(handle, endpoint_of, tei.error_response)
            app.add_api_route(base + path, handler, name=base + path, **options)
            if path != "/info":  # the base address predicts, and says whether the service can answer
                hidden = {**options, "include_in_schema": False}
                app.add_api_route(base, handler, name=f"{path} at {base}", **hidden)
    return complete(
        app,
        {"/predict": _predict},
        swagger,
        lambda path: shape_of(path, tei.error_response if "/tei" in path else error_response),
    )


def create_root(app: FastAPI) -> FastAPI:
    """Return the app to be mounted at the root, which serves beside `app`."""
    return routes.create_root(app, OIP)
