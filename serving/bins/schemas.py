"""The answers of the bins service, and how its OpenAPI page documents its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from serving.bins.bodies import (
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
from serving.http.bodies import request_body
from serving.http.schemas import Artifact, CommonStatus, OpenaiErrorAnswer, OpenaiModels, Score, ServingDevice, TeiError


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


_BODIES: Mapping[str, type[BaseModel]] = {
    "/embed": EmbedBody,
    "/embed_all": EmbedAllBody,
    "/embed_sparse": EmbedAllBody,
    "/predict": ClassifyBody,
    "/rerank": RerankBody,
    "/similarity": SimilarityBody,
    "/tokenize": TokenizeBody,
    "/decode": DecodeBody,
    "/v1/embeddings": OpenaiEmbeddingsBody,
    "/v1/rerank": RerankDocumentsBody,
    "/v2/rerank": RerankDocumentsBody,
}
_SUMMARIES: Mapping[str, tuple[str, Any]] = {
    "/embed": ("Embeddings of one or many texts, as text-embeddings-inference gives them", list[list[float]]),
    "/embed_all": ("An embedding of each token of one or many texts", list[list[list[float]]]),
    "/embed_sparse": ("Refused with 424: no encoder that is served has the pooling of SPLADE", None),
    "/predict": ("Classify one or many texts, as text-embeddings-inference does", list[Score] | list[list[Score]]),
    "/rerank": ("Order texts by how well they fit a query, as text-embeddings-inference does", list[Rank]),
    "/similarity": ("Cosines between the embedding of a sentence and those of others", list[float]),
    "/tokenize": ("The tokens of one or many texts", list[list[Token]]),
    "/decode": ("The text of one or many lists of token ids", list[str]),
    "/info": ("The model, as text-embeddings-inference describes it", dict[str, Any]),
    "/health": ("Whether the service can answer", None),
    "/v1/embeddings": ("Embeddings of one or many texts, as OpenAI gives them", OpenaiEmbeddings),
    "/v1/rerank": ("Order documents by how well they fit a query, as Jina and Cohere do", Reranking),
    "/v2/rerank": ("The same as /v1/rerank", Reranking),
    "/v1/models": ("The streams, as OpenAI lists models", OpenaiModels),
}
_UNSCHEDULED = ("/tokenize", "/decode")
"""Routes that need no device, and know no deadline."""
_ERRORS = {
    400: "The body is not JSON; on OpenAI's routes also: a field is outside its limit.",
    404: "The stream is not served.",
    413: "The body, a text or a list exceeds its limit, a text is too long and truncate is false, or the prompt is unknown.",
    415: "The body is not application/json.",
    422: "A field is outside its limit.",
    424: "The stream's model does not do this (embed, classify or rerank), or it failed.",
    429: "Overload. See Retry-After.",
    503: "A device failed, or (on OpenAI's routes) the deadline cannot be met. See Retry-After.",
}
_GET_ERRORS: Mapping[str, tuple[int, ...]] = {"/info": (404, 422), "/health": (404, 503)}


def route_options(path: str, posted: bool) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    base, path = ("/{task}", path.removeprefix("/{task}")) if path.startswith("/{task}") else ("", path)
    summary, answer = _SUMMARIES[path]
    openai = path.startswith(("/v1", "/v2"))
    error = OpenaiErrorAnswer if openai else TeiError
    options: dict[str, Any] = {
        "methods": ["POST" if posted else "GET"],
        "summary": summary,
        "tags": ["openai" if openai else "text-embeddings-inference"],
        "responses": {200: {"model": answer} if answer else {}},
        "openapi_extra": {"parameters": _parameters(base, posted and path not in _UNSCHEDULED)},
    }
    if path == "/health":
        options["response_class"] = Response  # without content
    statuses = _ERRORS if posted else _GET_ERRORS.get(path, ())
    options["responses"] |= {status: {"model": error, "description": _ERRORS[status]} for status in statuses}
    if posted:
        options["openapi_extra"]["requestBody"] = request_body(_BODIES[path])
    return options


def _parameters(base: str, scheduled: bool) -> list[dict[str, Any]]:
    task = {"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}
    schema = {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"}
    header = {"name": "x-pliant-deadline", "in": "header", "required": False, "schema": schema}
    return ([task] if base else []) + ([header] if scheduled else [])
