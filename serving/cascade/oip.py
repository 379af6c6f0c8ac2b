"""The Open Inference Protocol v2 for cascade: each task is a model that classifies the texts of a tensor, or rates them.

serving/http/oip/ reads and writes the protocol. As a request has one status, an error of any text is the request's. Shape
suffixes: N texts, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from serving.cascade.request import Described, Endpoint, TextRequest, read_options, read_texts, select_task
from serving.cascade.tei import check_cut, check_errors, raw_score
from serving.http import tei
from serving.http.access.roles import client_of
from serving.http.large_body import checked
from serving.http.oip.models import InferAnswer, InferRequest, Model, Served, one_version, read_deadline
from serving.http.oip.response import replaced
from serving.http.oip.tensors import Form, Tensor, TensorSpec, numbers, texts
from serving.http.oip.texts import raw_texts, text_inputs
from serving.http.texts import Texts

SCORES, LABEL, CLASS = "scores", "label", "class"
NUMBERS: Mapping[str, str] = {"confidence": "FP32", "truncated": "BOOL", "cut_short": "BOOL", "on_time": "BOOL"}
TEXTS = ("level", "id")
"""Outputs that are fields of the answers of /predict, besides `NUMBERS` with their datatypes."""
OPTIONS = ("accuracy", "latency", "candidate", "utility")


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
        parameters=(*OPTIONS, "truncate", "raw_scores"),
        max_count=endpoint.settings.max_texts,
        scores=SCORES,
    )


async def infer(request: Request, endpoint: Endpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /predict does."""
    task = select_task(body.model.name, endpoint)
    described, parameters, maximum = endpoint.describe(task), body.parameters, endpoint.settings.max_deadline
    truncate, raw = tei.flag(parameters, "truncate", True), tei.flag(parameters, "raw_scores", False)
    fields = {name: parameters[name] for name in OPTIONS if parameters.get(name) is not None}
    deadline = read_deadline(parameters, maximum)
    options = read_options({**fields, "deadline": maximum if deadline is None else deadline}, maximum)
    cleaned = await checked(request, _texts, body, described.pair)
    prediction = await endpoint.predict(TextRequest(task, cleaned, client=client_of(request), **options), arrived)
    answers: list[Mapping[str, Any]] = prediction["answers"]
    check_errors(answers)
    check_cut(answers, truncate, False, described)
    return InferAnswer(
        outputs=_outputs(body.model, answers, raw),
        version=one_version(answer["versions"]["task"] for answer in answers),
        parameters={name: max(answer[name] for answer in answers) for name in ("queue_seconds", "run_seconds")},
    )


def _texts(body: InferRequest, pair: bool) -> Texts:
    return read_texts(raw_texts(body), body.model.name, pair)[0]


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
        own = [numbers(SCORES, "FP32", scores_NK), texts(LABEL, labels), numbers(CLASS, "INT64", numbers_N)]
    else:
        own = [numbers(SCORES, "FP32", [[answer["label"]] for answer in answers])]
    own += [numbers(name, datatype, [answer[name] for answer in answers]) for name, datatype in NUMBERS.items()]
    return own + [texts(name, [answer[name] for answer in answers]) for name in TEXTS]


SERVED = Served("pliant-cascade", describe, infer)
