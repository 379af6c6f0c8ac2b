"""The shapes of the bins endpoint's questions and answers, for its OpenAPI page alone; nothing is parsed with them."""

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
    OpenaiErrorAnswer,
    OpenaiModels,
    Refresh,
    Score,
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
    max_length: int = Field(description="tokens that are read of a text")
    slo: float = Field(description="seconds from arrival to answer, where a request says nothing else")
    device: str
    engine: str
    bins: list[str] = Field(description="length x batch of each runtime; dynamic: any up to the longest")
    seconds: list[float] = Field(description="of one launch of each of them but the dynamic one")


class Status(BaseModel):
    ready: bool
    alias: str
    generation: int = Field(description="counts what was taken up since the start")
    leaving: int = Field(description="earlier generations with requests in hand")
    workers: int
    pool: str
    policy: str
    dispatch: str
    placement: str
    streams: list[Stream]
    refresh: Refresh
    refresh_seconds: float = Field(description="between two looks; 0 for none")
    waiting: int = Field(description="requests that no worker has in hand")
    pending: int = Field(description="requests without an answer")


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
    "model": {"type": "string", "description": "the stream; may be left out where just one has embeddings"},
    "encoding_format": {"type": "string", "enum": ["float", "base64"], "default": "float"},
    "deadline": _DEADLINE,
}
_BODIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/embed": ("inputs", _EMBED),
    "/predict": ("inputs", _PREDICT),
    "/v1/embeddings": ("input", _OPENAI),
}
_SAID: Mapping[str, tuple[str, Any]] = {
    "/embed": ("Embeddings of one or many texts, as text-embeddings-inference gives them", list[list[float]]),
    "/predict": ("Classify one or many texts, as text-embeddings-inference does", list[Score] | list[list[Score]]),
    "/info": ("The model, as text-embeddings-inference describes it", dict[str, Any]),
    "/health": ("Whether it can answer", None),
    "/v1/embeddings": ("Embeddings of one or many texts, as OpenAI gives them", OpenaiEmbeddings),
    "/v1/models": ("The streams, as OpenAI lists models", OpenaiModels),
}
_ERRORS = {
    400: "The body is no JSON; for OpenAI: a field is outside its limit.",
    404: "The stream is not served.",
    413: "The body, a text or a list is over its limit, or a text is too long and truncate is false.",
    422: "A field is outside its limit.",
    424: "The stream's head does not do this, or its model failed.",
    429: "Overload. See Retry-After.",
    503: "A device was lost, or (OpenAI) the deadline cannot be met. See Retry-After.",
}


def documents(path: str, posted: bool) -> dict[str, Any]:
    """What FastAPI is told of a route."""
    base, at = ("/{task}", path.removeprefix("/{task}")) if path.startswith("/{task}") else ("", path)
    summary, answer = _SAID[at]
    openai = at.startswith("/v1")
    error = OpenaiErrorAnswer if openai else TeiError
    said: dict[str, Any] = {
        "methods": ["POST" if posted else "GET"],
        "summary": summary,
        "tags": ["openai" if openai else "text-embeddings-inference"],
        "responses": {200: {"model": answer} if answer else {}},
        "openapi_extra": {"parameters": _parameters(base, posted)},
    }
    if posted:
        said["responses"] |= {status: {"model": error, "description": text} for status, text in _ERRORS.items()}
        said["openapi_extra"]["requestBody"] = object_body(*_BODIES[at])
    return said


def _parameters(base: str, posted: bool) -> list[dict[str, Any]]:
    task = {"name": "task", "in": "path", "required": True, "schema": {"type": "string"}}
    header = {"name": "x-pliant-deadline", "in": "header", "required": False, "schema": {"type": "number"}}
    return ([task] if base else []) + ([header] if posted else [])
