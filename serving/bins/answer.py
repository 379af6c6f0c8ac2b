"""From an encoder's outputs to what is said of a text: embeddings of length 1, scores of classes; and back as JSON.

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
from serving.bins.messages import Output
from serving.bins.question import Answer, Encoder


def embeddings(answer: Answer, normalize: bool = True) -> list[Output]:
    """[H] of each text."""
    if normalize and not answer.encoder.normalize:
        return [_unit(output_H) for output_H in answer.outputs]
    return list(answer.outputs)


def check_normalize(encoder: Encoder, normalize: bool) -> None:
    """Raises `InputError` where what is asked for is not at hand: the encoder's own last step cannot be left out."""
    if encoder.normalize and not normalize:
        raise InputError("normalize", "false", "true or left out, as this encoder normalizes its embeddings itself")


def scores(logits_K: Output, classes: tuple[str, ...], raw: bool, most: int | None) -> list[dict[str, Any]]:
    """Best first, as TEI has them: softmax over classes; of a single output the sigmoid; raw the logits themselves."""
    scores_K = logits_K if raw else _shares(logits_K)
    names = classes or ("LABEL_0",)
    best = np.argsort(-scores_K, kind="stable")[:most]
    return [{"score": scores_K[place], "label": names[place]} for place in best.tolist()]


def respond(content: Any, headers: Mapping[str, str]) -> Response:
    """Arrays are written as the shortest numbers that give their 32-bit floats again: a sixtieth of json's time."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, 200, headers, media_type="application/json")


def _unit(output_H: Output) -> Output:
    length = float(np.sqrt(np.dot(output_H, output_H)))
    return output_H / np.float32(length) if length > 0 else output_H


def _shares(logits_K: Output) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # of a sigmoid's exp: 1 / inf is the 0 that it should be
        if len(logits_K) == 1:
            return np.asarray(1 / (1 + np.exp(-logits_K)), np.float32)
        powers_K = np.exp(logits_K - logits_K.max())
    return np.asarray(powers_K / powers_K.sum(), np.float32)
