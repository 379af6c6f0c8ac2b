"""The Open Inference Protocol v2 for cascade: each task is a model that classifies the texts of a tensor, or rates them.

serving/http/oip/ reads and writes the protocol. As a request has one status, an error of any text is the request's. Shape
suffixes: N texts, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from pliant.serving.cascade.bodies import OipParameters
from pliant.serving.cascade.request import Described, Endpoint, check_pairs, select_task, to_request
from pliant.serving.cascade.tei import check_cut, check_errors, raw_score
from pliant.serving.http.access.access import client_of
from pliant.serving.http.json_body import checked
from pliant.serving.http.oip.models import InferAnswer, InferRequest, Model, Served, one_version, text_inputs, texts_of
from pliant.serving.http.oip.response import replaced
from pliant.serving.http.oip.tensors import Form, Tensor, TensorSpec, numbers
from pliant.serving.http.oip.tensors import texts as text_tensor

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
