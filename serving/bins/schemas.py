"""The answers of the bins service, and how its OpenAPI page documents its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from pliant.serving.bins.bodies import (
    ClassifyBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    OpenaiEmbeddingsBody,
    RerankBody,
    RerankDocumentsBody,
    SimilarityBody,
    TokenizeBody,
)
from pliant.serving.http.bodies import request_body
from pliant.serving.http.schemas import (
    Artifact,
    CommonStatus,
    OpenaiErrorAnswer,
    OpenaiModels,
    Score,
    ServingDevice,
    TeiError,
    errors,
    route_options,
)


class OpenaiEmbedding(BaseModel):
    object: str = "embedding"
    index: int
    embedding: list[float] | str = Field(description="numbers, or base64 of little-endian 32-bit floats")


class Usage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class OpenaiEmbeddings(BaseModel):
    object: str = "list"
    data: list[OpenaiEmbedding]
    model: str
    usage: Usage


class Rank(BaseModel):
    index: int = Field(description="of the text in the request")
    text: str | None = Field(default=None, description="if return_text is true")
    score: float


class Document(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: int = Field(description="of the document in the request")
    relevance_score: float = Field(description="from 0 to 1")
    document: Document | None = Field(default=None, description="unless return_documents is false")


class Reranking(BaseModel):
    id: str
    object: str = "list"
    model: str
    results: list[RerankResult] = Field(description="the best first")
    usage: Usage


class Token(BaseModel):
    id: int
    text: str
    special: bool
    start: int | None = Field(description="its first byte in the UTF-8 of prompt and text; null for a special token")
    stop: int | None = Field(description="the byte behind its last")


class Stream(BaseModel):
    name: str
    version: int
    digest: str
    encoder: Artifact
    head: str
    classes: list[str]
    max_length: int = Field(description="tokens of a text that are read")
    slo: float = Field(description="deadline in seconds from arrival, for requests without one")
    device: str
    precision: str = Field(description="of its runtimes: float32, bfloat16 or float16")
    engine: str
    bins: list[str] = Field(description="length x batch of each runtime; dynamic: any length up to the longest")
    seconds: list[float] = Field(description="measured seconds of one launch, for each runtime except the dynamic one")


class Status(CommonStatus):
    workers: int
    devices: list[ServingDevice] = Field(description="one for each worker")
    least_workers: int = Field(description="the fewest workers in use at low load")
    pool: str
    policy: str
    dispatch: str
    placement: str
    streams: list[Stream]


_ROUTES: Mapping[str, tuple[str, Any, Any]] = {
    "/embed": (
        "Embeddings of one or many texts, as text-embeddings-inference gives them",
        list[list[float]],
        EmbedBody,
    ),
    "/embed_all": ("An embedding of each token of one or many texts", list[list[list[float]]], EmbedAllBody),
    "/embed_sparse": ("Refused with 424: no encoder that is served has the pooling of SPLADE", None, EmbedAllBody),
    "/predict": (
        "Classify one or many texts, as text-embeddings-inference does",
        list[Score] | list[list[Score]],
        ClassifyBody,
    ),
    "/rerank": ("Order texts by how well they fit a query, as text-embeddings-inference does", list[Rank], RerankBody),
    "/similarity": (
        "Cosines between the embedding of a sentence and those of others",
        list[float],
        SimilarityBody,
    ),
    "/tokenize": ("The tokens of one or many texts", list[list[Token]], TokenizeBody),
    "/decode": ("The text of one or many lists of token ids", list[str], DecodeBody),
    "/info": ("The model, as text-embeddings-inference describes it", dict[str, Any], None),
    "/health": ("Whether the service can answer", None, None),
    "/v1/embeddings": ("Embeddings of one or many texts, as OpenAI gives them", OpenaiEmbeddings, OpenaiEmbeddingsBody),
    "/v1/rerank": (
        "Order documents by how well they fit a query, as Jina and Cohere do",
        Reranking,
        RerankDocumentsBody,
    ),
    "/v2/rerank": ("The same as /v1/rerank", Reranking, RerankDocumentsBody),
    "/v1/models": ("The streams, as OpenAI lists models", OpenaiModels, None),
}
"""Summary, answer and body of each route."""
_STATUSES: Mapping[str, tuple[int, ...]] = {"/info": (404, 422), "/health": (404, 503), "/v1/models": ()}
_DEADLINE = {
    "name": "x-pliant-deadline",
    "in": "header",
    "required": False,
    "schema": {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"},
}


def options_of(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    own = path.removeprefix("/{task}")
    summary, answer, body = _ROUTES[own]
    openai = own.startswith(("/v1", "/v2"))
    responses = errors(
        *_STATUSES.get(own, (400, 404, 413, 415, 422, 424, 429, 503)), model=OpenaiErrorAnswer if openai else TeiError
    )
    tag = "openai" if openai else "text-embeddings-inference"
    options = route_options(path, summary, tag, answer, responses, body and request_body(body))
    if body is not None and "deadline" in body.model_fields:
        options["openapi_extra"]["parameters"].append(_DEADLINE)
    return options
