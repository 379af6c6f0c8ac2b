"""The HTTP interfaces of the bins service. They call the endpoint in `app.state.endpoint`.

Most routes follow text-embeddings-inference (TEI), errors included; serving/http/tei.py describes what all systems share of
it. They are at the root, for a service of one stream, and below /{task} for each stream. A POST to the base address embeds,
classifies or reranks, whichever the stream does, as in TEI; a body of /similarity is understood there too. /tokenize and
/decode read no model: nothing waits for a device, and texts may be longer than the encoder reads.

/v1/embeddings and /v1/models follow OpenAI's documentation: `input` is a text, token ids or a list of these,
`encoding_format` is float or base64 (little-endian 32-bit floats, the default of its Python client), `dimensions` cuts
embeddings, which have length 1. Texts that are too long are truncated at their end, as TEI does on this route.

Those below /v2 follow the Open Inference Protocol (serving/http/oip/): each stream is a model that embeds or classifies the
texts of a tensor. Shape suffixes: N texts, H width of an embedding, K classes.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import orjson
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pliant.bins.artifact import Encoder
from pliant.errors import InputError
from pliant.serving.bins import bodies
from pliant.serving.bins.endpoint import (
    Answer,
    BinsEndpoint,
    Input,
    TextRequest,
    Token,
    TokenIds,
    is_reranker,
    probabilities,
    sigmoid,
)
from pliant.serving.bins.messages import Output
from pliant.serving.http import openai, tei
from pliant.serving.http.access.access import client_of
from pliant.serving.http.api_errors import ApiError, ErrorShape, error_response
from pliant.serving.http.app import (
    OpenaiErrorAnswer,
    OpenaiModels,
    Score,
    TeiError,
    add_refresh,
    add_status,
    arrival,
    complete,
    endpoint_of,
    errors,
    guarded,
    json_response,
    new_app,
    route_options,
)
from pliant.serving.http.bodies import (
    check_count,
    checked,
    deadline,
    header_number,
    read_fields,
    request_body,
    without_controls,
)
from pliant.serving.http.oip.models import (
    Form,
    InferAnswer,
    InferRequest,
    Model,
    Parameters,
    Served,
    Tensor,
    TensorSpec,
    numbers,
    text_inputs,
)
from pliant.serving.http.oip.models import texts as text_tensor
from pliant.serving.http.oip.models import texts_of as tensor_texts
from pliant.serving.http.oip.routes import add_oip, close_oip, shape_of
from pliant.serving.http.tei import Cut

DEADLINE = "x-pliant-deadline"
tei_error = partial(tei.error_response, kinds={**tei.KINDS, 503: (503, "Unhealthy")})
"""Returns an error in TEI's shape. A lost device is restarted, so its clients should retry: 503."""
CLASSIFICATION, EMBEDDING, RERANKER = "classification", "embedding", "reranker"
NOT_SPARSE = "Model is not an embedding model with SPLADE pooling"
"""TEI's error message for a model that gives no sparse embeddings."""
AT_ONCE = 32  # texts whose scores are made before other requests have a turn: about a millisecond
Handle = Callable[[Request, BinsEndpoint], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way to the stream `task`."""

    request: Request
    endpoint: BinsEndpoint
    task: str
    arrived: float

    @property
    def encoder(self) -> Encoder:
        return self.endpoint.served(self.task).encoder.artifact

    @property
    def max_texts(self) -> int:
        return self.endpoint.settings.max_texts

    async def run(
        self,
        texts: tuple[Input, ...],
        seconds: float | None,
        cut: Cut | None = None,
        prompt_name: str | None = None,
        unpooled: bool = False,
    ) -> Answer:
        """Return the outputs of the texts. `seconds`: the deadline in the body; else the header's counts.

        Raises `InputError` and `ApiError`.
        """
        name, cut = "deadline", cut or Cut()
        if seconds is None:
            name, seconds = DEADLINE, header_number(self.request.headers, DEADLINE)
        limit = None if seconds is None else deadline(seconds, self.endpoint.settings.max_deadline, name)
        client = client_of(self.request)
        wanted = TextRequest(self.task, texts, limit, cut.truncate, cut.left, client, prompt_name, unpooled)
        return await self.endpoint.run(wanted, self.arrived)


Answering = Callable[[Call, Mapping[str, Any]], Awaitable[Response]]


def tei_route(head: str | None, answer: Answering) -> Handle:
    """Return a route that answers the fields of a body, for a stream that does what `head` says."""

    async def handle(request: Request, endpoint: BinsEndpoint) -> Response:
        arrived = arrival(request, endpoint)
        fields = await read_fields(request, endpoint.settings)
        task = endpoint.select(request.path_params.get("task"), "task", head)
        return await answer(Call(request, endpoint, task, arrived), fields)

    return handle


async def any_of_these(call: Call, fields: Mapping[str, Any]) -> Response:
    """Embed, classify, rerank or compare, whichever the stream does and the body asks for."""
    if call.encoder.head == EMBEDDING:
        return await (similarity if isinstance(fields.get("inputs"), dict) else embed)(call, fields)
    return await (rerank if is_reranker(call.encoder) and "query" in fields else predict)(call, fields)


async def embed(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with an embedding per text."""
    body = await checked(call.request, bodies.EmbedBody.read, fields)
    check_normalize(call.encoder, body.normalize)
    inputs = inputs_of("inputs", body.inputs, call.max_texts)
    answer = await call.run(inputs, body.deadline, body, body.prompt_name)
    return respond(embeddings(answer, body.normalize, body.dimensions), answer)


async def embed_all(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with the last hidden state of each token of each text, special tokens included."""
    body = await checked(call.request, bodies.EmbedAllBody.read, fields)
    inputs = inputs_of("inputs", body.inputs, call.max_texts)
    answer = await call.run(inputs, body.deadline, body, body.prompt_name, unpooled=True)
    return await run_in_threadpool(respond, answer.outputs, answer)


async def embed_sparse(_call: Call, _fields: Mapping[str, Any]) -> Response:
    """Refuse as TEI does for a model without the pooling of SPLADE."""
    raise ApiError(424, "wrong_head", NOT_SPARSE, "task")


async def similarity(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with the cosine between the embedding of a sentence and those of others."""
    body = await checked(call.request, bodies.SimilarityBody.read, fields)
    sentences, options = body.inputs.sentences, body.parameters or bodies.SimilarityParameters()
    check_count("inputs.sentences", sentences, call.max_texts)
    texts = tuple((sentence, None) for sentence in (body.inputs.source_sentence, *sentences))
    answer = await call.run(texts, body.deadline, options, options.prompt_name)
    source_H, *others = embeddings(answer)
    return respond(np.array([np.dot(source_H, other_H) for other_H in others], np.float32), answer)


async def predict(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with the scores of classes per text."""
    body = await checked(call.request, bodies.ClassifyBody.read, fields)
    answer = await call.run(body.texts(call.max_texts), body.deadline, body)
    lists = []
    for logits_K in answer.outputs:
        lists.append(scores(logits_K, answer.encoder.classes, body.raw, body.top_k))
        if len(lists) % AT_ONCE == 0:  # others have a turn
            await asyncio.sleep(0)
    return respond(body.shaped(lists, "parameters" in fields), answer)


async def rerank(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with an index and a score for each text, best first."""
    body = await checked(call.request, bodies.RerankBody.read, fields)
    answer = await call.run(pairs(body.query, "texts", body.texts, call.max_texts), body.deadline, body)
    ranks = [
        {"index": index, **({"text": body.texts[index]} if body.return_text else {}), "score": score}
        for index, score in _order(answer, body.raw_scores)
    ]
    return respond(ranks, answer)


async def rerank_documents(request: Request, endpoint: BinsEndpoint) -> Response:
    """Answer with the best documents, and the number of tokens that were read."""
    arrived = arrival(request, endpoint)
    body = await bodies.RerankDocumentsBody.of(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or body.model, "model", RERANKER)
    texts = pairs(body.query, "documents", body.documents, endpoint.settings.max_texts)
    answer = await Call(request, endpoint, task, arrived).run(texts, body.deadline)
    results = [
        {
            "index": index,
            "relevance_score": score,
            **({"document": {"text": text_of(body.documents[index])}} if body.return_documents else {}),
        }
        for index, score in _order(answer, raw=False)[: body.top_n]
    ]
    content = {"id": f"rerank-{uuid4().hex}", "object": "list", "model": task, "results": results}
    return respond({**content, "usage": _usage(answer)}, answer)


async def tokenize(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with a list of tokens per text."""
    body = await checked(call.request, bodies.TokenizeBody.read, fields)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    check_count("inputs", texts, call.max_texts)
    size = sum(len(text.encode()) for text in texts)
    if size > bodies.TOKENIZED_BYTES:
        message = f"inputs are {size} bytes together, but must be at most {bodies.TOKENIZED_BYTES} bytes"
        raise ApiError(413, "text_too_long", message, "inputs")
    tokens = await call.endpoint.tokenize(call.task, texts, body.add_special_tokens, body.prompt_name)
    return await run_in_threadpool(respond, tokens)


async def decode(call: Call, fields: Mapping[str, Any]) -> Response:
    """Answer with a text per list of token ids."""
    body = await checked(call.request, bodies.DecodeBody.read, fields)
    lists: list[Any] = [body.ids] if body.ids and isinstance(body.ids[0], int) else body.ids
    check_count("ids", lists, call.max_texts)
    return respond(await call.endpoint.decode(call.task, lists, body.skip_special_tokens))


async def info(request: Request, endpoint: BinsEndpoint) -> Response:
    """Answer with a description of the model."""
    task, limits = endpoint.select(request.path_params.get("task"), "task", None), endpoint.settings
    served = endpoint.served(task)
    encoder = served.encoder.artifact
    kind: Mapping[str, Any] = {EMBEDDING: {"pooling": encoder.pooling}}
    if encoder.head == CLASSIFICATION:
        kind = tei.classifier_type(encoder.classes)
    return json_response(tei.info(task, kind, served.max_length, limits.max_waiting, limits.max_texts))


async def health(_: Request, endpoint: BinsEndpoint) -> Response:
    return tei.health(endpoint.ready)


async def openai_embeddings(request: Request, endpoint: BinsEndpoint) -> Response:
    arrived = arrival(request, endpoint)
    body = await bodies.OpenaiEmbeddingsBody.of(request, endpoint.settings)
    task = endpoint.select(request.path_params.get("task") or body.model, "model", EMBEDDING)
    inputs = inputs_of("input", body.input, endpoint.settings.max_texts)
    answer = await Call(request, endpoint, task, arrived).run(inputs, body.deadline)
    vectors: list[Any] = embeddings(answer, dimensions=body.dimensions)
    if body.encoding_format == "base64":
        vectors = [base64.b64encode(output_H.astype("<f4").tobytes()).decode() for output_H in vectors]
    data = [{"object": "embedding", "index": index, "embedding": embedding} for index, embedding in enumerate(vectors)]
    return respond({"object": "list", "data": data, "model": task, "usage": _usage(answer)}, answer)


async def models(_: Request, endpoint: BinsEndpoint) -> Response:
    """List all streams, whatever their head."""
    return openai.models(dict.fromkeys(endpoint.tasks(), 0))


def inputs_of(name: str, value: str | list[Any], maximum: int) -> tuple[Input, ...]:
    """Return the texts and token ids of a field. Raises as `check_count`."""

    def to_input(name: str, value: str | list[int]) -> Input:
        return (value, None) if isinstance(value, str) else TokenIds(name, tuple(value))

    if isinstance(value, str) or (value and isinstance(value[0], int)):
        return (to_input(name, value),)
    check_count(name, value, maximum)
    return tuple(to_input(f"{name}[{index}]", item) for index, item in enumerate(value))


def pairs(query: str, name: str, documents: list[Any], maximum: int) -> tuple[Input, ...]:
    """Return the query with each document. Raises as `check_count`."""
    check_count(name, documents, maximum)
    return tuple((query, without_controls(text_of(document))) for document in documents)


def text_of(document: str | bodies.DocumentBody) -> str:
    return document if isinstance(document, str) else document.text


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
        lengths = [float(np.sqrt(np.dot(output_H, output_H))) or 1.0 for output_H in outputs]
        return [output_H / np.float32(length) for output_H, length in zip(outputs, lengths, strict=True)]
    return outputs


def check_normalize(encoder: Encoder, normalize: bool) -> None:
    """Raise `InputError` if embeddings of any length are requested, but the encoder itself normalizes them."""
    if encoder.normalize and not normalize:
        raise InputError("normalize", "false", "true or left out, as this encoder normalizes its embeddings itself")


def scores(logits_K: Output, classes: tuple[str, ...], raw: bool, max_classes: int | None) -> list[dict[str, Any]]:
    """Return scores as TEI does, best first: the softmax over classes, or the sigmoid of a single output.

    `raw`: the logits instead. `max_classes`: only the best of them; None: all.
    """
    scores_K = logits_K if raw else probabilities(logits_K)
    names = classes or ("LABEL_0",)
    best = np.argsort(-scores_K, kind="stable")[:max_classes]
    return [{"score": scores_K[index], "label": names[index]} for index in best.tolist()]


def _order(answer: Answer, raw: bool) -> list[tuple[int, np.float32]]:
    """Return number and score of each pair, the best first; equal ones stay in order."""
    logits = np.array([output_K[0] for output_K in answer.outputs], np.float32)
    scores = logits if raw else sigmoid(logits)
    return [(index, scores[index]) for index in np.argsort(-logits, kind="stable").tolist()]


def _usage(answer: Answer) -> dict[str, int]:
    return {"prompt_tokens": sum(answer.lengths), "total_tokens": sum(answer.lengths)}


def respond(content: Any, answer: Answer | None = None) -> Response:
    """Return JSON in which 32-bit floats have as few digits as needed, in a sixtieth of the json module's time.

    The headers say how the answer came about.
    """
    headers = {}
    if answer is not None:
        headers = {
            "x-pliant-length": ",".join(map(str, answer.lengths)),
            "x-pliant-bin": ",".join(answer.bins),
            "x-pliant-queue-seconds": f"{answer.queue_seconds:.6f}",
            "x-pliant-run-seconds": f"{answer.run_seconds:.6f}",
        }
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, 200, headers, media_type="application/json")


EMBEDDINGS, SCORES, LABEL, CLASS, TOKENS = "embedding", "scores", "label", "class", "tokens"
"""Names of tensors of the Open Inference Protocol."""
TOKEN_COUNTS = TensorSpec(TOKENS, (Form("INT32", (-1,)),))


class EmbedParameters(Parameters, Cut):
    normalize: bool = True


class ClassifyParameters(Parameters, Cut):
    raw_scores: bool = False


def describe(endpoint: BinsEndpoint, name: str) -> Model:
    """Return the model of a stream. Raises `ApiError` (404) if it is not served."""
    task = endpoint.select(name, "model", None)
    served = endpoint.served(task)
    encoder = served.encoder.artifact
    embeds, classes = encoder.head == EMBEDDING, encoder.classes
    if embeds:
        outputs = [TensorSpec(EMBEDDINGS, (Form("FP32", (-1, -1)),))]
    else:
        outputs = [TensorSpec(SCORES, (Form("FP32", (-1, len(classes) or 1)),), classes=classes)]
        if classes:  # a classifier of a single output has none
            outputs += [TensorSpec(LABEL, (Form("BYTES", (-1,)),)), TensorSpec(CLASS, (Form("INT64", (-1,)),))]
    return Model(
        name=task,
        version=str(served.version),
        platform="pliant_bins",
        inputs=text_inputs(False if embeds else None),
        outputs=(*outputs, TOKEN_COUNTS),
        parameters=EmbedParameters if embeds else ClassifyParameters,
        max_count=endpoint.settings.max_texts,
        scores="" if embeds else SCORES,
    )


async def infer(request: Request, endpoint: BinsEndpoint, body: InferRequest, arrived: float) -> InferAnswer:
    """Answer a request as /embed or /predict does."""
    parameters = body.parameters
    normalize = not isinstance(parameters, EmbedParameters) or parameters.normalize
    call = Call(request, endpoint, endpoint.select(body.model.name, "model", None), arrived)
    if call.encoder.head == EMBEDDING:
        check_normalize(call.encoder, normalize)
    texts = await checked(request, tensor_texts, body)
    cut = parameters if isinstance(parameters, Cut) else None
    answer = await call.run(tuple(texts), parameters.seconds(endpoint.settings.max_deadline), cut)
    if answer.encoder.head == EMBEDDING:
        outputs = [numbers(EMBEDDINGS, "FP32", np.stack(embeddings(answer, normalize)))]
    else:
        raw = isinstance(parameters, ClassifyParameters) and parameters.raw_scores
        outputs = _class_tensors(answer, raw)
    return InferAnswer(
        outputs=(*outputs, numbers(TOKENS, "INT32", answer.lengths)),
        version=str(answer.version),
        parameters={"queue_seconds": answer.queue_seconds, "run_seconds": answer.run_seconds},
    )


def _class_tensors(answer: Answer, raw: bool) -> list[Tensor]:
    """Return scores [N, K] with the best label and its number for each text."""
    scores_NK = np.stack([logits_K if raw else probabilities(logits_K) for logits_K in answer.outputs])
    tensors, classes = [numbers(SCORES, "FP32", scores_NK)], answer.encoder.classes
    if classes:
        best_N = scores_NK.argmax(1)
        labels = text_tensor(LABEL, [classes[index] for index in best_N.tolist()])
        tensors += [labels, numbers(CLASS, "INT64", best_N)]
    return tensors


ROUTES: Mapping[str, tuple[Handle, str, Any, Any]] = {
    "/embed": (
        tei_route(EMBEDDING, embed),
        "Embeddings of one or many texts, as text-embeddings-inference gives them",
        list[list[float]],
        bodies.EmbedBody,
    ),
    "/predict": (
        tei_route(CLASSIFICATION, predict),
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        bodies.ClassifyBody,
    ),
    "/v1/embeddings": (
        openai_embeddings,
        "Embeddings of one or many texts, as OpenAI gives them",
        bodies.OpenaiEmbeddings,
        bodies.OpenaiEmbeddingsBody,
    ),
    "/rerank": (
        tei_route(RERANKER, rerank),
        "Order texts by how well they fit a query, as text-embeddings-inference does",
        list[bodies.Rank],
        bodies.RerankBody,
    ),
    "/similarity": (
        tei_route(EMBEDDING, similarity),
        "Cosines between the embedding of a sentence and those of others",
        list[float],
        bodies.SimilarityBody,
    ),
    "/embed_all": (
        tei_route(EMBEDDING, embed_all),
        "An embedding of each token of one or many texts",
        list[list[list[float]]],
        bodies.EmbedAllBody,
    ),
    "/embed_sparse": (
        tei_route(None, embed_sparse),
        "Refused with 424: no encoder that is served has the pooling of SPLADE",
        None,
        bodies.EmbedAllBody,
    ),
    "/tokenize": (tei_route(None, tokenize), "The tokens of one or many texts", list[list[Token]], bodies.TokenizeBody),
    "/decode": (tei_route(None, decode), "The text of one or many lists of token ids", list[str], bodies.DecodeBody),
    "/info": (info, "The model, as text-embeddings-inference describes it", dict[str, Any], None),
    "/health": (health, "Whether the service can answer", None, None),
    "/v1/rerank": (
        rerank_documents,
        "Order documents by how well they fit a query, as Jina and Cohere do",
        bodies.Reranking,
        bodies.RerankDocumentsBody,
    ),
    # Where clients of Cohere's second version look.
    "/v2/rerank": (rerank_documents, "The same as /v1/rerank", bodies.Reranking, bodies.RerankDocumentsBody),
    "/v1/models": (models, "The streams, as OpenAI lists models", OpenaiModels, None),
}
"""Handler, summary, answer and body of each route. The most frequent, which match fastest, come first."""
FREQUENT = 3
STATUSES: Mapping[str, tuple[int, ...]] = {"/info": (404, 422), "/health": (404, 503), "/v1/models": ()}
OPENAI = tuple(path for path in ROUTES if path.startswith(("/v1", "/v2")))
BASE = "/{task}"
DEADLINE_HEADER = {
    "name": DEADLINE,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"},
}


def create_app(swagger: Path) -> FastAPI:
    """Return the app. `swagger` is a folder with the files of Swagger UI, so that the page needs no internet."""
    app, hot, paths = new_app("Pliant bins"), {}, list(ROUTES)
    add_status(app, bodies.Status)
    refresh = add_refresh(app)
    for base, path in [
        (base, path) for group in (paths[:FREQUENT], paths[FREQUENT:]) for base in ("", BASE) for path in group
    ]:
        if base and path == "/v1/models":
            continue
        handle, summary, answer, body = ROUTES[path]
        tag = "openai" if path in OPENAI else "text-embeddings-inference"
        error_model = OpenaiErrorAnswer if path in OPENAI else TeiError
        handler = guarded(handle, endpoint_of, openai.error_response if path in OPENAI else tei_error)
        responses = errors(*STATUSES.get(path, (400, 404, 413, 415, 422, 424, 429, 503)), model=error_model)
        options = route_options(base + path, summary, tag, answer, responses, body and request_body(body))
        if body is not None:
            hot[base + path] = handler
            if "deadline" in body.model_fields:
                options["openapi_extra"]["parameters"].append(DEADLINE_HEADER)
        app.add_api_route(base + path, handler, name=base + path, **options)
    any_head = guarded(tei_route(None, any_of_these), endpoint_of, tei_error)
    hot |= add_oip(app, OIP)
    app = complete(app, {**hot, "/refresh": refresh, "/": any_head}, swagger, _shape_of)
    # Last: a wrong method for /status gets the Allow of the first path that fits, and this one fits any of one part.
    app.router.routes.append(Route(BASE, any_head, methods=["POST"]))
    close_oip(app)
    return app


OIP = Served("pliant-bins", describe, infer)


def _shape_of(path: str) -> ErrorShape:
    if path in ("/refresh", "/status", "/metrics"):
        return error_response
    return openai.error_response if path.endswith(OPENAI) else shape_of(path, tei_error)
