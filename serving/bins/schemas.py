"""Schemas of the bins service, for its OpenAPI page only: nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

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


_TEXTS = {"oneOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}], "example": "What is Deep Learning?"}
_DEADLINE = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "seconds from arrival; else the header x-pliant-deadline, else the stream's SLO",
}
_CUT = {**CUT, "deadline": _DEADLINE}
_EMBED = {"inputs": _TEXTS, "normalize": {"type": "boolean", "default": True}, **_CUT}
_PREDICT = {
    "inputs": {"oneOf": [TEXT, PAIR, BATCH], "description": "a text, a pair, or a batch of both"},
    "raw_scores": {"type": "boolean", "default": False, "description": "logits instead of their softmax or sigmoid"},
    "parameters": PARAMETERS,
    **_CUT,
}
_OPENAI = {
    "input": _TEXTS,
    "model": {"type": "string", "description": "the stream; optional if only one gives embeddings"},
    "encoding_format": {"type": "string", "enum": ["float", "base64"], "default": "float"},
    "deadline": _DEADLINE,
}
_BODIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/embed": ("inputs", _EMBED),
    "/predict": ("inputs", _PREDICT),
    "/v1/embeddings": ("input", _OPENAI),
}
_SUMMARIES: Mapping[str, tuple[str, Any]] = {
    "/embed": ("Embeddings of one or many texts, as text-embeddings-inference gives them", list[list[float]]),
    "/predict": ("Classify one or many texts, as text-embeddings-inference does", list[Score] | list[list[Score]]),
    "/info": ("The model, as text-embeddings-inference describes it", dict[str, Any]),
    "/health": ("Whether the service can answer", None),
    "/v1/embeddings": ("Embeddings of one or many texts, as OpenAI gives them", OpenaiEmbeddings),
    "/v1/models": ("The streams, as OpenAI lists models", OpenaiModels),
}
_ERRORS = {
    400: "The body is not JSON; on OpenAI's routes also: a field is outside its limit.",
    404: "The stream is not served.",
    413: "The body, a text or a list exceeds its limit, or a text is too long and truncate is false.",
    422: "A field is outside its limit.",
    424: "The stream's model does not do this (embed or classify), or it failed.",
    429: "Overload. See Retry-After.",
    503: "A device failed, or (on OpenAI's routes) the deadline cannot be met. See Retry-After.",
}


def route_options(path: str, posted: bool) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    base, path = ("/{task}", path.removeprefix("/{task}")) if path.startswith("/{task}") else ("", path)
    summary, answer = _SUMMARIES[path]
    openai = path.startswith("/v1")
    error = OpenaiErrorAnswer if openai else TeiError
    options: dict[str, Any] = {
        "methods": ["POST" if posted else "GET"],
        "summary": summary,
        "tags": ["openai" if openai else "text-embeddings-inference"],
        "responses": {200: {"model": answer} if answer else {}},
        "openapi_extra": {"parameters": _parameters(base, posted)},
    }
    if posted:
        options["responses"] |= {status: {"model": error, "description": text} for status, text in _ERRORS.items()}
        options["openapi_extra"]["requestBody"] = object_body(*_BODIES[path])
    return options


def _parameters(base: str, posted: bool) -> list[dict[str, Any]]:
    task = {"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}
    header = {"name": "x-pliant-deadline", "in": "header", "required": False, "schema": {"type": "number"}}
    return ([task] if base else []) + ([header] if posted else [])
