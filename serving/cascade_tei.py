"""The cascade in the shape of Hugging Face's text-embeddings-inference: /predict, /info and /health, for its clients.

After TEI's own documentation and types (huggingface/text-embeddings-inference: docs/openapi.json, router/src/http/types.rs):
`inputs` is a text, a pair [a, b] or a batch [[a], [b, c], ...]; the answer is a list of {score, label}, best first, for a
batch one list each; errors are {error, error_type}; fields that are not known are ignored. A body with `parameters` comes
from a client of the Hugging Face inference API (InferenceClient.text_classification), which expects one list more.

What is different, as a cascade has no logits of its own: raw scores are the logarithms of the calibrated probabilities,
whose softmax gives these again. Texts are only ever cut at their end.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from pliant.errors import InputError, PliantError
from serving.cascade_documents import task_parameter, tei_body, tei_responses
from serving.cascade_question import Described, Endpoint, Given, Question, check_count, read_texts, which_task
from serving.json_body import check_type, parse_json, read_body, shorten
from serving.refusals import RETRY_AFTER, Refusal, json_response, refusal_of

VERSION = "1.6.0"  # of TEI's interface as spoken here
LEAST = 1e-12  # the smallest probability whose logarithm is given
KINDS: Mapping[int, tuple[int, str]] = {
    429: (429, "Overloaded"),
    500: (424, "Backend"),
    503: (424, "Backend"),
}
"""Our status -> TEI's status and error_type; all others stay as they are, as Validation."""
STATUS: Mapping[str, int] = {"full": 429, "invalid": 422}
"""The code of one text's error -> our status."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is wanted."""

    batch: bool
    nested: bool  # one list more around all
    raw: bool
    truncate: bool
    left: bool  # cut at the beginning
    most: int | None  # classes


SUMMARIES: Mapping[str, str] = {
    "/predict": "Classify one or many texts, as text-embeddings-inference does",
    "/info": "The model, as its clients want to know it",
    "/health": "Whether it can answer",
}


def add_tei(app: FastAPI, endpoint_of: Callable[[Request], Endpoint]) -> None:
    """/tei and, for a service of several tasks, /tei/{task}: base addresses to give to a client."""
    routes: tuple[tuple[str, str, Callable[[Request, Endpoint], Awaitable[Response]]], ...] = (
        ("POST", "/predict", _predict),
        ("GET", "/info", _info),
        ("GET", "/health", _health),
        ("POST", "", _predict),
        ("GET", "", _health),
    )
    for base in ("/tei", "/tei/{task}"):
        for method, path, handle in routes:
            documents = tei_body() if method == "POST" else {}
            app.add_api_route(
                base + path,
                _guarded(handle, endpoint_of),
                methods=[method],
                include_in_schema=path != "",
                responses=tei_responses(path),
                tags=["text-embeddings-inference"],
                name=f"{method} {base}{path}",
                summary=SUMMARIES.get(path),
                openapi_extra=documents | ({"parameters": task_parameter()} if "{" in base else {}),
            )


def _guarded(
    handle: Callable[[Request, Endpoint], Awaitable[Response]], endpoint_of: Callable[[Request], Endpoint]
) -> Callable[[Request], Awaitable[Response]]:
    """With errors in TEI's shape."""

    async def answer(request: Request) -> Response:
        endpoint = endpoint_of(request)
        try:
            return await handle(request, endpoint)
        except (Refusal, PliantError, ClientDisconnect) as error:
            refusal = refusal_of(error)
            endpoint.metrics.refused(refusal.code)
            return _error(refusal)

    return answer


async def _predict(request: Request, endpoint: Endpoint) -> Response:
    arrived = endpoint.now
    check_type(request, ("application/json",), "application/json")
    fields = parse_json(await read_body(request, endpoint.settings.max_body_bytes))
    task = which_task(request.path_params.get("task"), endpoint)
    described, form = endpoint.describe(task), read_form(fields)
    given = _inputs(fields.get("inputs"), endpoint.settings.max_texts)
    texts, _ = read_texts(given, task, described.pair)
    question = Question(task, texts, deadline=endpoint.settings.max_deadline)
    answers = (await endpoint.predict(question, arrived))["answers"]
    _check_errors(answers)
    _check_cut(answers, form, described)
    lists = [scores(answer, form) for answer in answers]
    content = lists if form.batch else lists[0]
    return json_response([content] if form.nested and not form.batch else content)


async def _info(request: Request, endpoint: Endpoint) -> Response:
    task, limits = which_task(request.path_params.get("task"), endpoint), endpoint.settings
    described = endpoint.describe(task)
    content = {
        "model_id": task,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": _kind(described.classes),
        "max_concurrent_requests": limits.max_waiting,
        "max_input_length": described.max_length,
        "max_batch_tokens": limits.max_texts * described.max_length,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
    }
    return json_response(content)


async def _health(_: Request, endpoint: Endpoint) -> Response:
    if endpoint.status()["ready"]:
        return Response(status_code=200)
    return json_response({"error": "unhealthy", "error_type": "Unhealthy"}, 503, {"retry-after": RETRY_AFTER})


def read_form(fields: Mapping[str, Any]) -> Form:
    """Raises `InputError` for what is wrong in all but `inputs`."""
    parameters = fields.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InputError("parameters", shorten(parameters), "an object")
    function = parameters.get("function_to_apply")
    if function not in (None, "softmax", "none"):
        raise InputError("parameters.function_to_apply", shorten(function), "softmax or none")
    inputs = fields.get("inputs")
    return Form(
        batch=isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], list),
        nested="parameters" in fields,
        raw=_flag(fields, "raw_scores", False) or function == "none",
        truncate=_flag(fields, "truncate", True),
        left=_is_left(fields.get("truncation_direction")),
        most=_most(parameters.get("top_k")),
    )


def scores(answer: Mapping[str, Any], form: Form) -> list[dict[str, Any]]:
    """Of all classes (or the best `form.most`), best first; of a regression the value."""
    if not answer["probabilities"]:
        return [{"score": answer["label"], "label": "LABEL_0"}]
    best = sorted(answer["probabilities"].items(), key=lambda item: -item[1])[: form.most]
    return [{"score": math.log(max(share, LEAST)) if form.raw else share, "label": label} for label, share in best]


def _inputs(inputs: object, most: int) -> list[Given]:
    """Texts and pairs as TEI tells them apart. Raises as `check_count`, and `InputError`."""
    if not (isinstance(inputs, list) and inputs and isinstance(inputs[0], list)):
        return [_sequence("inputs", [inputs] if isinstance(inputs, str) else inputs)]
    check_count("inputs", inputs, most)
    return [_sequence(f"inputs[{index}]", value) for index, value in enumerate(inputs)]


def _sequence(name: str, value: object) -> Given:
    if not isinstance(value, list) or len(value) not in (1, 2):
        raise InputError(name, shorten(value), "a text, a pair [text, text] or a batch [[text], [text, text], ...]")
    return Given(name, tuple(f"{name}[{index}]" for index in range(len(value))), tuple(value))


def _check_errors(answers: list[Mapping[str, Any]]) -> None:
    """TEI's batches succeed or fail as a whole."""
    for answer in answers:
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            raise Refusal(STATUS.get(code, 503), code, message, answer["error"]["field"])


def _check_cut(answers: list[Mapping[str, Any]], form: Form, described: Described) -> None:
    """Known only now, as the models' tokenizers tell."""
    if not any(answer["truncated"] for answer in answers):
        return
    limit = f"at most {described.max_length} tokens"
    if not form.truncate:
        raise Refusal(413, "too_many_tokens", f"inputs is longer, but must be {limit}, or truncate be true", "inputs")
    if form.left:
        message = f"truncation_direction is Left, but must be Right where a text is longer than {limit}"
        raise Refusal(413, "too_many_tokens", message, "truncation_direction")


def _flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def _is_left(direction: object) -> bool:
    if direction is None:
        return False
    if not isinstance(direction, str) or direction.lower() not in ("left", "right"):
        raise InputError("truncation_direction", shorten(direction), "Left or Right")
    return direction.lower() == "left"


def _most(top: object) -> int | None:
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError("parameters.top_k", shorten(top), "a whole number from 1 on")
    return top


def _kind(classes: tuple[str, ...]) -> dict[str, Any]:
    names = classes or ("LABEL_0",)
    labels = {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
    return {"classifier": labels} if classes else {"reranker": labels}


def _error(refusal: Refusal) -> Response:
    """Too late is overload, too: the queue was too long."""
    status, kind = KINDS.get(429 if refusal.code == "late" else refusal.status, (refusal.status, "Validation"))
    headers = {"retry-after": RETRY_AFTER} if status == 429 else None
    return json_response({"error": str(refusal), "error_type": kind}, status, headers)
