"""Schemas of the bins service, for its OpenAPI page only: nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from serving.bins.inputs import ID_LIMIT
from serving.bins.tokenizing import TOKENIZED_BYTES
from serving.http.schemas import (
    BATCH,
    CUT,
    PAIR,
    PARAMETERS,
    TEXT,
    Artifact,
    CommonStatus,
    OpenaiErrorAnswer,
    OpenaiModels,
    Score,
    ServingDevice,
    TeiError,
    object_body,
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


_IDS = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": ID_LIMIT - 1},
    "minItems": 1,
    "description": "token ids of the encoder's own tokenizer, special ones included; each below its vocabulary",
}
_INPUTS = {
    "oneOf": [TEXT, {"type": "array", "items": {"oneOf": [TEXT, _IDS]}, "minItems": 1}, _IDS],
    "description": "a text, token ids, or a list of these",
    "example": "What is Deep Learning?",
}
_TEXTS = {"type": "array", "items": TEXT, "minItems": 1}
_DEADLINE = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "seconds from arrival; else the header x-pliant-deadline, else the stream's SLO",
}
_CUT = {**CUT, "deadline": _DEADLINE}
_PROMPT = {
    "type": ["string", "null"],
    "description": "name of a prompt of the model's config_sentence_transformers.json, which is put before each text",
}
_DIMENSIONS = {
    "type": "integer",
    "minimum": 1,
    "description": "width of the embeddings: their first numbers, normalised after that; at most the encoder's own width",
}
_RAW = {"type": "boolean", "default": False}
_EMBED = {
    "inputs": _INPUTS,
    "normalize": {"type": "boolean", "default": True},
    "dimensions": _DIMENSIONS,
    "prompt_name": _PROMPT,
    **_CUT,
}
_EMBED_ALL = {"inputs": _INPUTS, "prompt_name": _PROMPT, **_CUT}
_PREDICT = {
    "inputs": {"oneOf": [TEXT, PAIR, BATCH], "description": "a text, a pair, or a batch of both"},
    "raw_scores": {**_RAW, "description": "logits instead of their softmax or sigmoid"},
    "parameters": PARAMETERS,
    **_CUT,
}
_RERANK = {
    "query": TEXT,
    "texts": _TEXTS,
    "raw_scores": {**_RAW, "description": "logits instead of their sigmoid"},
    "return_text": {"type": "boolean", "default": False},
    **_CUT,
}
_RERANK_DOCUMENTS = {
    "query": TEXT,
    "documents": {
        "type": "array",
        "items": {"oneOf": [TEXT, {"type": "object", "required": ["text"], "properties": {"text": TEXT}}]},
        "minItems": 1,
    },
    "model": {"type": "string", "description": "the stream; optional if only one reranks"},
    "top_n": {"type": "integer", "minimum": 1, "description": "results in the answer; default: all"},
    "return_documents": {"type": "boolean", "default": True},
    "deadline": _DEADLINE,
}
_SIMILARITY = {
    "inputs": {
        "type": "object",
        "required": ["source_sentence", "sentences"],
        "properties": {"source_sentence": TEXT, "sentences": _TEXTS},
    },
    "parameters": {"type": "object", "properties": {**CUT, "prompt_name": _PROMPT}},
    "deadline": _DEADLINE,
}
_TOKENIZE = {
    "inputs": {"oneOf": [TEXT, _TEXTS], "description": f"a text or a list; together at most {TOKENIZED_BYTES} bytes"},
    "add_special_tokens": {"type": "boolean", "default": True},
    "prompt_name": _PROMPT,
}
_DECODE = {
    "ids": {"oneOf": [_IDS, {"type": "array", "items": _IDS, "minItems": 1}]},
    "skip_special_tokens": {"type": "boolean", "default": True},
}
_OPENAI = {
    "input": _INPUTS,
    "model": {"type": "string", "description": "the stream; optional if only one gives embeddings"},
    "encoding_format": {"type": "string", "enum": ["float", "base64"], "default": "float"},
    "dimensions": _DIMENSIONS,
    "deadline": _DEADLINE,
}
_BODIES: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "/embed": (("inputs",), _EMBED),
    "/embed_all": (("inputs",), _EMBED_ALL),
    "/embed_sparse": (("inputs",), _EMBED_ALL),
    "/predict": (("inputs",), _PREDICT),
    "/rerank": (("query", "texts"), _RERANK),
    "/similarity": (("inputs",), _SIMILARITY),
    "/tokenize": (("inputs",), _TOKENIZE),
    "/decode": (("ids",), _DECODE),
    "/v1/embeddings": (("input",), _OPENAI),
    "/v1/rerank": (("query", "documents"), _RERANK_DOCUMENTS),
    "/v2/rerank": (("query", "documents"), _RERANK_DOCUMENTS),
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
        (required, *others), body = _BODIES[path]
        options["openapi_extra"]["requestBody"] = object_body(required, body, *others)
    return options


def _parameters(base: str, scheduled: bool) -> list[dict[str, Any]]:
    task = {"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}
    schema = {"type": "number", "exclusiveMinimum": 0, "description": "seconds from arrival"}
    header = {"name": "x-pliant-deadline", "in": "header", "required": False, "schema": schema}
    return ([task] if base else []) + ([header] if scheduled else [])
