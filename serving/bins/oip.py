"""The Open Inference Protocol v2 for bins: each stream is a model that embeds or classifies the texts of a tensor.

serving/http/oip/ reads and writes the protocol. Shape suffixes: N texts, H width of an embedding, K classes.
"""

from __future__ import annotations

import numpy as np
from starlette.requests import Request

from pliant.serving.bins.answer import check_normalize, embeddings, shares
from pliant.serving.bins.bodies import Answer, Encoder, Endpoint, TextRequest, read_deadline
from pliant.serving.bins.tei import EMBEDDING
from pliant.serving.http.access.access import client_of
from pliant.serving.http.bodies import checked
from pliant.serving.http.oip.models import InferAnswer, InferRequest, Model, Parameters, Served, text_inputs, texts_of
from pliant.serving.http.oip.tensors import Form, Tensor, TensorSpec, numbers, texts
from pliant.serving.http.tei import Cut

EMBEDDINGS, SCORES, LABEL, CLASS, TOKENS = "embedding", "scores", "label", "class", "tokens"
_TOKENS = TensorSpec(TOKENS, (Form("INT32", (-1,)),))


class EmbedParameters(Parameters, Cut):
    normalize: bool = True


class ClassifyParameters(Parameters, Cut):
    raw_scores: bool = False


def describe(endpoint: Endpoint, name: str) -> Model:
    """Return the model of a stream. Raises `ApiError` (404) if it is not served."""
    task = endpoint.select(name, "model", None)
    encoder = endpoint.describe(task)
    embeds = encoder.head == EMBEDDING
    return Model(
        name=task,
        version=str(endpoint.version(task)),
        platform="pliant_bins",
        inputs=text_inputs(False if embeds else None),
        outputs=(TensorSpec(EMBEDDINGS, (Form("FP32", (-1, -1)),)), _TOKENS) if embeds else _class_outputs(encoder),
        parameters=EmbedParameters if embeds else ClassifyParameters,
        max_count=endpoint.settings.max_texts,
        scores="" if embeds else SCORES,
    )


async def infer(request: Request, endpoint: Endpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /embed or /predict does."""
    parameters, maximum = body.parameters, endpoint.settings.max_deadline
    normalize = not isinstance(parameters, EmbedParameters) or parameters.normalize
    encoder = endpoint.describe(endpoint.select(body.model.name, "model", None))
    if encoder.head == EMBEDDING:
        check_normalize(encoder, normalize)
    texts = await checked(request, texts_of, body)
    limit = read_deadline(request, parameters.seconds(maximum), maximum)
    cut = parameters if isinstance(parameters, Cut) else Cut()
    wanted = TextRequest(body.model.name, texts, limit, cut.truncate, cut.left, client_of(request))
    answer = await endpoint.run(wanted, arrived)
    raw = isinstance(parameters, ClassifyParameters) and parameters.raw_scores
    return InferAnswer(
        outputs=(*_outputs(answer, normalize, raw), numbers(TOKENS, "INT32", answer.lengths)),
        version=str(answer.version),
        parameters={"queue_seconds": answer.queue_seconds, "run_seconds": answer.run_seconds},
    )


def _class_outputs(encoder: Encoder) -> tuple[TensorSpec, ...]:
    """Return the outputs of a classifier; one of a single output has no classes."""
    classes = encoder.classes
    scores = TensorSpec(SCORES, (Form("FP32", (-1, len(classes) or 1)),), classes=classes)
    if not classes:
        return scores, _TOKENS
    return scores, TensorSpec(LABEL, (Form("BYTES", (-1,)),)), TensorSpec(CLASS, (Form("INT64", (-1,)),)), _TOKENS


def _outputs(answer: Answer, normalize: bool, raw: bool) -> list[Tensor]:
    """Return embeddings [N, H], or scores [N, K] with the best label and its number for each text."""
    if answer.encoder.head == EMBEDDING:
        return [numbers(EMBEDDINGS, "FP32", np.stack(embeddings(answer, normalize)))]
    scores_NK = np.stack([logits_K if raw else shares(logits_K) for logits_K in answer.outputs])
    tensors, classes = [numbers(SCORES, "FP32", scores_NK)], answer.encoder.classes
    if classes:
        best_N = scores_NK.argmax(1)
        tensors += [texts(LABEL, [classes[index] for index in best_N.tolist()]), numbers(CLASS, "INT64", best_N)]
    return tensors


SERVED = Served("pliant-bins", describe, infer)
