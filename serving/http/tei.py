"""The API of Hugging Face's text-embeddings-inference (TEI), as far as all systems share it.

It follows TEI's documentation (docs/openapi.json) and types (router/src/http/types.rs of its repository):
`inputs` of /predict is a text, a pair [a, b] or a batch [[a], [b, c], ...]; errors are {error, error_type}; unknown fields
are ignored. A body with `parameters` comes from a client of the Hugging Face inference API
(InferenceClient.text_classification), which expects one more list around the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from pliant.errors import InputError
from serving.http.api_errors import ApiError, json_response
from serving.http.json_body import shorten
from serving.http.texts import RawText, check_count

VERSION = "1.9.0"  # of TEI's interface that this follows
KINDS: Mapping[int, tuple[int, str]] = {
    424: (424, "Backend"),
    429: (429, "Overloaded"),
    500: (424, "Backend"),
    503: (424, "Backend"),
}
"""Our status -> TEI's status and error_type. Any other status stays, with the type Validation."""


@dataclass(frozen=True, slots=True)
class Form:
    """The options of a /predict request."""

    batch: bool  # `inputs` is a list of texts or pairs
    nested: bool  # one more list around the answer
    raw: bool  # raw scores instead of probabilities
    truncate: bool  # or a text that is too long is an error
    left: bool  # truncate at the beginning
    top_k: int | None  # classes in the answer; None: all


def error_response(api_error: ApiError, kinds: Mapping[int, tuple[int, str]] = KINDS) -> Response:
    """Return an error in TEI's shape. The code `late` counts as overload: the queue was too long."""
    status, kind = kinds.get(429 if api_error.code == "late" else api_error.status, (api_error.status, "Validation"))
    headers = api_error.headers if status in (401, 429, 503) else None
    return json_response({"error": str(api_error), "error_type": kind}, status, headers)


def health(ready: bool) -> Response:
    """Return the answer of /health."""
    if ready:
        return Response(status_code=200)
    return json_response({"error": "unhealthy", "error_type": "Unhealthy"}, 503, {"retry-after": "1"})


def read_form(fields: Mapping[str, Any]) -> Form:
    """Return the options of a /predict request. Raises `InputError` for an invalid field; `inputs` is not checked."""
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
        top_k=_top_k(parameters.get("top_k")),
    )


def sequences(inputs: object, max_texts: int) -> list[RawText]:
    """Return the texts and pairs in `inputs` of /predict. Raises as `check_count`, and `InputError` for any other shape."""
    if not (isinstance(inputs, list) and inputs and isinstance(inputs[0], list)):
        return [_sequence("inputs", [inputs] if isinstance(inputs, str) else inputs)]
    check_count("inputs", inputs, max_texts)
    return [_sequence(f"inputs[{index}]", value) for index, value in enumerate(inputs)]


def shaped(lists: list[Any], form: Form) -> Any:
    """Return the answer that the client expects, from one list of scores per text."""
    content = lists if form.batch else lists[0]
    return [content] if form.nested and not form.batch else content


def flag(fields: Mapping[str, Any], name: str, default: bool) -> bool:
    """Return a boolean field. Raises `InputError` for another type."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def is_left(direction: object) -> bool:
    """Whether `truncation_direction` is Left. Raises `InputError` unless it is Left, Right or None."""
    if direction is None:
        return False
    if not isinstance(direction, str) or direction.lower() not in ("left", "right"):
        raise InputError("truncation_direction", shorten(direction), "Left or Right")
    return direction.lower() == "left"


def too_long(max_tokens: int) -> ApiError:
    """Return the error for a text that the model cannot read whole, when `truncate` is false."""
    message = f"inputs is longer than {max_tokens} tokens: shorten it, or set truncate to true"
    return ApiError(413, "too_many_tokens", message, "inputs")


def not_left(max_tokens: int, which: str = "a text") -> ApiError:
    """Return the error for a text that would be truncated at its beginning, where only its end can be."""
    message = f"truncation_direction is Left, but must be Right if {which} is longer than {max_tokens} tokens"
    return ApiError(413, "too_many_tokens", message, "truncation_direction")


def classifier_type(classes: tuple[str, ...]) -> dict[str, Any]:
    """Return the `model_type` of /info for a classifier; with one class or none it is a reranker, as in TEI."""
    names = classes or ("LABEL_0",)
    labels = {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
    return {"classifier": labels} if len(names) > 1 else {"reranker": labels}


def info(model: str, kind: Mapping[str, Any], max_length: int, max_waiting: int, max_texts: int) -> dict[str, Any]:
    """Return the content of /info."""
    return {
        "model_id": model,
        "model_sha": None,
        "model_dtype": "float32",
        "model_type": kind,
        "max_concurrent_requests": max_waiting,
        "max_input_length": max_length,
        "max_batch_tokens": max_texts * max_length,
        "max_batch_requests": None,
        "max_client_batch_size": max_texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
    }


def _sequence(name: str, value: object) -> RawText:
    if not isinstance(value, list) or len(value) not in (1, 2):
        raise InputError(name, shorten(value), "a text, a pair [text, text] or a batch [[text], [text, text], ...]")
    return RawText(name, tuple(f"{name}[{index}]" for index in range(len(value))), tuple(value))


def _top_k(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError("parameters.top_k", shorten(value), "a whole number from 1 on")
    return value
