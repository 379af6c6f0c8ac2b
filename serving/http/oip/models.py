"""What a system says of its models to speak the Open Inference Protocol, and what its code gets and gives for a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np
from pydantic import Field
from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.app import E
from pliant.serving.http.bodies import Lenient, Texts, check_count, clean, deadline, shorten
from pliant.serving.http.oip.tensors import BYTES, Form, Tensor, TensorSpec

MICROSECONDS = 1_000_000
TEXT, TEXT_PAIR = "text", "text_pair"
TEXT_FORMS = (Form(BYTES, (-1,)), Form(BYTES, (-1, 1)))
"""Texts are elements of BYTES in UTF-8."""


class Parameters(Lenient):
    """The parameters of a request; a system's models have further ones. Others are accepted, and named in a header."""

    binary_data_output: bool = False
    deadline: float | None = Field(None, gt=0, description="seconds from arrival")
    timeout: int | None = Field(None, ge=1, description="microseconds, where there is no deadline")

    def seconds(self, maximum: float) -> float | None:
        """Return the deadline in seconds, or else the timeout; None without both. Raises `InputError` beyond `maximum`."""
        if self.deadline is not None:
            return deadline(self.deadline, maximum, "parameters.deadline")
        if self.timeout is not None and self.timeout > maximum * MICROSECONDS:
            limit = f"at most {maximum * MICROSECONDS:.0f} microseconds"
            raise InputError("parameters.timeout", shorten(self.timeout), limit)
        return None if self.timeout is None else self.timeout / MICROSECONDS


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is served. `version`: None if it has none of its own.

    `parameters`: those that its requests may have. `max_count`: the most elements of a tensor of
    BYTES, such as texts or files. `scores`: the name of the output that the classification extension is for, if any.
    """

    name: str
    version: str | None
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: type[Parameters]
    max_count: int
    scores: str = ""

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of the output `scores`."""
        return next((spec.classes for spec in self.outputs if spec.name == self.scores), ())

    def to_dict(self) -> dict[str, Any]:
        """Return the model's metadata."""
        return {
            "name": self.name,
            "versions": [] if self.version is None else [self.version],
            "platform": self.platform,
            "inputs": [spec.to_dict() for spec in self.inputs if not spec.optional],
            "outputs": [spec.to_dict() for spec in self.outputs],
        }


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output that a request names. `top_classes`: how many of the best classes it wants instead; None: the numbers."""

    name: str
    binary: bool
    top_classes: int | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request with its tensors by name. `outputs` are those that the answer has."""

    model: Model
    id: str | None
    inputs: Mapping[str, Tensor]
    outputs: tuple[RequestedOutput, ...]
    parameters: Parameters
    ignored: tuple[str, ...] = ()  # names of fields and parameters that nobody knows


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """All outputs of a model for one request. `version`: of the model that gave them; None: none, or several."""

    outputs: Sequence[Tensor]
    version: str | None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served(Generic[E]):
    """A system's part of the protocol: `server` is its name in the server's metadata.

    `describe` returns the model of a name, and raises `ApiError` (404) if there is none. `infer` answers a request that came
    at a time on the endpoint's clock.
    """

    server: str
    describe: Callable[[E, str], Model]
    infer: Callable[[Request, E, InferRequest, float], Awaitable[InferAnswer]]


def one_version(versions: Iterable[object]) -> str | None:
    """Return the version of all parts of an answer; None if they differ, or have none."""
    distinct = set(versions)
    return str(distinct.pop()) if len(distinct) == 1 and None not in distinct else None


def best_classes(scores: Tensor, classes: Sequence[str], top: int) -> tuple[list[str], tuple[int, ...]]:
    """Return the best classes of each row as texts SCORE:INDEX:CLASS, best first, and their shape."""
    rows = np.asarray(scores.elements).reshape(scores.shape)
    top = min(top, rows.shape[-1])
    texts = []
    for row in rows:
        for index in np.argsort(-row, kind="stable")[:top].tolist():
            name = f":{classes[index]}" if classes else ""
            texts.append(f"{row[index]:f}:{index}{name}")
    return texts, (len(rows), top)


def text_inputs(pair: bool | None) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model that reads texts. `pair`: whether it reads two at a time; None: one or two."""
    first = TensorSpec(TEXT, TEXT_FORMS)
    return (first,) if pair is False else (first, TensorSpec(TEXT_PAIR, TEXT_FORMS, optional=pair is None))


def texts_of(request: InferRequest) -> Texts:
    """Return the texts, or pairs of texts, of a request.

    Raises `InputError` for none, for tensors of different lengths, and for bytes that are not UTF-8; as `check_count` and
    `clean`.
    """
    columns = [(name, list(request.inputs[name].elements)) for name in (TEXT, TEXT_PAIR) if name in request.inputs]
    for name, elements in columns:
        check_count(name, elements, request.model.max_count)
        if len(elements) != len(columns[0][1]):
            raise InputError(name, f"of {len(elements)} texts", f"of {len(columns[0][1])}, as {TEXT} is")
    first, *others = [
        [_clean(f"{name}[{index}]", element) for index, element in enumerate(elements)] for name, elements in columns
    ]
    return tuple(zip(first, others[0] if others else [None] * len(first), strict=True))


def _clean(name: str, element: str | bytes) -> str:
    try:
        return clean(name, element if isinstance(element, str) else element.decode())
    except UnicodeDecodeError:
        raise InputError(name, shorten(element), "a text in UTF-8") from None
