"""Hugging Face's text-embeddings-inference as its clients speak it: what is the same whichever system answers.

After TEI's own documentation and types (huggingface/text-embeddings-inference: docs/openapi.json, router/src/http/types.rs):
`inputs` of /predict is a text, a pair [a, b] or a batch [[a], [b, c], ...]; errors are {error, error_type}; fields that are
not known are ignored. A body with `parameters` comes from a client of the Hugging Face inference API
(InferenceClient.text_classification), which expects one list more around the answer. Knows no system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from pliant.errors import InputError
from serving.http.api_errors import RETRY_AFTER, ApiError, json_response
from serving.http.json_body import shorten
from serving.http.texts import Given, check_count

VERSION = "1.6.0"  # of TEI's interface as spoken here
KINDS: Mapping[int, tuple[int, str]] = {
    424: (424, "Backend"),
    429: (429, "Overloaded"),
    500: (424, "Backend"),
    503: (424, "Backend"),
}
"""Our status -> TEI's status and error_type; all others stay as they are, as Validation."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the answer is wanted."""

    batch: bool
    nested: bool  # one list more around all
    raw: bool
    truncate: bool
    left: bool  # cut at the beginning
    most: int | None  # classes


def error_response(refusal: ApiError, kinds: Mapping[int, tuple[int, str]] = KINDS) -> Response:
    """Too late is overload, too: the queue was too long."""
    status, kind = kinds.get(429 if refusal.code == "late" else refusal.status, (refusal.status, "Validation"))
    headers = {"retry-after": RETRY_AFTER} if status in (429, 503) else None
    return json_response({"error": str(refusal), "error_type": kind}, status, headers)


def health(ready: bool) -> Response:
    if ready:
        return Response(status_code=200)
    return json_response({"error": "unhealthy", "error_type": "Unhealthy"}, 503, {"retry-after": RETRY_AFTER})


def read_form(fields: Mapping[str, Any]) -> Form:
    """Of /predict. Raises `InputError` for what is wrong in all but `inputs`."""
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
        raw=flag(fields, "raw_scores", False) or function == "none",
        truncate=flag(fields, "truncate", True),
        left=is_left(fields.get("truncation_direction")),
        most=_most(parameters.get("top_k")),
    )


def sequences(inputs: object, most: int) -> list[Given]:
    """Texts and pairs of /predict as TEI tells them apart. Raises as `check_count`, and `InputError`."""
    if not (isinstance(inputs, list) and inputs and isinstance(inputs[0], list)):
        return [_sequence("inputs", [inputs] if isinstance(inputs, str) else inputs)]
    check_count("inputs", inputs, most)
    return [_sequence(f"inputs[{index}]", value) for index, value in enumerate(inputs)]


def shaped(lists: list[Any], form: Form) -> Any:
    """One list of scores a text, as its client expects them."""
    content = lists if form.batch else lists[0]
    return [content] if form.nested and not form.batch else content


def flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def is_left(direction: object) -> bool:
    if direction is None:
        return False
    if not isinstance(direction, str) or direction.lower() not in ("left", "right"):
        raise InputError("truncation_direction", shorten(direction), "Left or Right")
    return direction.lower() == "left"


def too_long(most: int) -> ApiError:
    """Where a text is longer than what is read, and was not to be cut."""
    message = f"inputs is longer, but must be at most {most} tokens, or truncate be true"
    return ApiError(413, "too_many_tokens", message, "inputs")


def not_left(most: int, which: str = "a text") -> ApiError:
    """Where something would have to be cut at its beginning that can only be cut at its end."""
    message = f"truncation_direction is Left, but must be Right where {which} is longer than at most {most} tokens"
    return ApiError(413, "too_many_tokens", message, "truncation_direction")


def classifier_type(classes: tuple[str, ...]) -> dict[str, Any]:
    """The `model_type` of /info; without classes a regressor."""
    names = classes or ("LABEL_0",)
    labels = {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
    return {"classifier": labels} if classes else {"reranker": labels}


def info(model: str, kind: Mapping[str, Any], max_length: int, most_waiting: int, most_texts: int) -> dict[str, Any]:
    """What /info says of a model."""
    return {
        "model_id": model,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": most_waiting,
        "max_input_length": max_length,
        "max_batch_tokens": most_texts * max_length,
        "max_batch_requests": None,
        "max_client_batch_size": most_texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
    }


def _sequence(name: str, value: object) -> Given:
    if not isinstance(value, list) or len(value) not in (1, 2):
        raise InputError(name, shorten(value), "a text, a pair [text, text] or a batch [[text], [text, text], ...]")
    return Given(name, tuple(f"{name}[{index}]" for index in range(len(value))), tuple(value))


def _most(top: object) -> int | None:
    if top is not None and (isinstance(top, bool) or not isinstance(top, int) or top < 1):
        raise InputError("parameters.top_k", shorten(top), "a whole number from 1 on")
    return top
