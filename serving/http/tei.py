"""The API of Hugging Face's text-embeddings-inference (TEI), as far as all systems share it.

It follows TEI's documentation (docs/openapi.json) and types (router/src/http/types.rs of its repository):
`inputs` of /predict is a text, a pair [a, b] or a batch [[a], [b, c], ...]; errors are {error, error_type}; unknown fields
are ignored. A body with `parameters` comes from a client of the Hugging Face inference API
(InferenceClient.text_classification), which expects one more list around the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from starlette.responses import Response

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import json_response
from pliant.serving.http.bodies import FIRST_ERROR, CleanText, Lenient, Texts, check_count, or_none

VERSION = "1.9.0"  # of TEI's interface that this follows
_SIDES = {"left": "Left", "right": "Right"}
KINDS: Mapping[int, tuple[int, str]] = {
    424: (424, "Backend"),
    429: (429, "Overloaded"),
    500: (424, "Backend"),
    503: (424, "Backend"),
}
"""Our status -> TEI's status and error_type. Any other status stays, with the type Validation."""


def _known_side(side: Any) -> Any:
    return _SIDES.get(side.lower(), side) if isinstance(side, str) else side


class Cut(Lenient):
    """How a text that is too long is truncated, or that it is an error."""

    truncate: bool = True
    truncation_direction: Annotated[Literal["Left", "Right"], BeforeValidator(_known_side)] = "Right"

    @property
    def left(self) -> bool:
        """Whether it is truncated at its beginning."""
        return self.truncation_direction == "Left"


class PredictParameters(Lenient):
    """As in Hugging Face's inference API; the answer is then one list deeper."""

    top_k: int | None = Field(None, ge=1)
    function_to_apply: Literal["softmax", "none"] | None = None


def _sequence_shape(value: object) -> str:
    return (
        "<batch>" if isinstance(value, list) and value and isinstance(value[0], list) else f"<{type(value).__name__}>"
    )


Sequence = Annotated[list[CleanText], Field(min_length=1, max_length=2)]
"""A text, or a pair of texts."""


class PredictBody(Cut):
    inputs: Annotated[
        Annotated[CleanText, Tag("<str>")]
        | Annotated[Sequence, Tag("<list>")]
        | Annotated[list[Sequence], FIRST_ERROR, Tag("<batch>")],
        Discriminator(_sequence_shape),
    ] = Field(description="a text, a pair, or a batch [[text], [text, text], ...]", examples=["What is Deep Learning?"])
    raw_scores: bool = Field(False, description="scores before their softmax or sigmoid")
    parameters: Annotated[PredictParameters | None, BeforeValidator(or_none)] = None

    @property
    def raw(self) -> bool:
        """Whether the answer has raw scores instead of probabilities."""
        return self.raw_scores or (self.parameters is not None and self.parameters.function_to_apply == "none")

    @property
    def top_k(self) -> int | None:
        """Return how many classes the answer has; None: all."""
        return None if self.parameters is None else self.parameters.top_k

    @property
    def batch(self) -> bool:
        """Whether `inputs` is a list of texts or pairs."""
        return isinstance(self.inputs, list) and isinstance(self.inputs[0], list)

    def texts(self, maximum: int) -> Texts:
        """Return the texts and pairs. Raises as `check_count`."""
        inputs = self.inputs
        if isinstance(inputs, str):
            return ((inputs, None),)
        if not self.batch:
            return (_pair(inputs),)
        check_count("inputs", inputs, maximum)
        return tuple(map(_pair, inputs))

    def shaped(self, lists: list[Any], nested: bool) -> Any:
        """Return the answer from one list of scores per text. `nested`: the client expects one more list around it."""
        content = lists if self.batch else lists[0]
        return [content] if nested and not self.batch else content


def _pair(parts: Any) -> tuple[str, str | None]:
    return parts[0], parts[1] if len(parts) > 1 else None


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
