"""Turns an encoder's outputs into answers: embeddings of length 1, or scores of classes, and writes them as JSON.

Shape suffixes: H width of an embedding, K classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

from pliant.errors import InputError
from pliant.serving.bins.bodies import Answer, Encoder
from pliant.serving.bins.messages import Output


def embeddings(answer: Answer, normalize: bool = True, dimensions: int | None = None) -> list[Output]:
    """Return the embedding [H] of each text; `normalize` scales it to length 1.

    `dimensions`: only its first so many numbers, scaled after that; None: all. Raises `InputError` if it has fewer.
    """
    outputs = list(answer.outputs)
    if dimensions is not None:
        width = min(len(output_H) for output_H in outputs)
        if dimensions > width:
            raise InputError("dimensions", dimensions, f"at most {width}, the width of the encoder's embeddings")
        outputs = [output_H[:dimensions] for output_H in outputs]
    if normalize and (dimensions is not None or not answer.encoder.normalize):
        return [_unit(output_H) for output_H in outputs]
    return outputs


def check_normalize(encoder: Encoder, normalize: bool) -> None:
    """Raise `InputError` if embeddings of any length are requested, but the encoder itself normalizes them."""
    if encoder.normalize and not normalize:
        raise InputError("normalize", "false", "true or left out, as this encoder normalizes its embeddings itself")


def scores(logits_K: Output, classes: tuple[str, ...], raw: bool, max_classes: int | None) -> list[dict[str, Any]]:
    """Return scores as TEI does, best first: the softmax over classes, or the sigmoid of a single output.

    `raw`: the logits instead. `max_classes`: only the best of them; None: all.
    """
    scores_K = logits_K if raw else shares(logits_K)
    names = classes or ("LABEL_0",)
    best = np.argsort(-scores_K, kind="stable")[:max_classes]
    return [{"score": scores_K[index], "label": names[index]} for index in best.tolist()]


def respond(content: Any, headers: Mapping[str, str]) -> Response:
    """Return JSON in which 32-bit floats have as few digits as needed. It takes a sixtieth of the json module's time."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, 200, headers, media_type="application/json")


def _unit(output_H: Output) -> Output:
    length = float(np.sqrt(np.dot(output_H, output_H)))
    return output_H / np.float32(length) if length > 0 else output_H


def sigmoid(logits: Output) -> NDArray[np.float32]:
    """Return the sigmoid of each number."""
    with np.errstate(over="ignore"):  # exp may be inf, and 1 / inf is the 0 that is right
        return np.asarray(1 / (1 + np.exp(-logits)), np.float32)


def shares(logits_K: Output) -> NDArray[np.float32]:
    """Return the softmax over classes, or the sigmoid of a single output."""
    if len(logits_K) == 1:
        return sigmoid(logits_K)
    powers_K = np.exp(logits_K - logits_K.max())
    return np.asarray(powers_K / powers_K.sum(), np.float32)
