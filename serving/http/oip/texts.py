"""Texts as tensors of the Open Inference Protocol: elements of BYTES in UTF-8, in the shape [N] or [N, 1]."""

from __future__ import annotations

from pliant.errors import InputError
from serving.http.json_body import shorten
from serving.http.oip.models import InferRequest
from serving.http.oip.tensors import BYTES, Form, TensorSpec
from serving.http.texts import Texts, check_count, clean

TEXT, TEXT_PAIR = "text", "text_pair"
FORMS = (Form(BYTES, (-1,)), Form(BYTES, (-1, 1)))


def text_inputs(pair: bool | None) -> tuple[TensorSpec, ...]:
    """Return the inputs of a model that reads texts. `pair`: whether it reads two at a time; None: one or two."""
    first = TensorSpec(TEXT, FORMS)
    return (first,) if pair is False else (first, TensorSpec(TEXT_PAIR, FORMS, optional=pair is None))


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
