"""The shapes of the packing endpoint's questions and answers, for its OpenAPI page alone; nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from serving.http.schemas import Artifact, OpenaiErrorAnswer, OpenaiModel, OpenaiModels, Refresh, object_body
from serving.packing.fields import STOP_CHARACTERS, STOPS


class Facts(BaseModel):
    """How an output came about."""

    predicted_tokens: int = Field(description="median forecast of the output's length")
    predicted_quantiles: list[float] = Field(description="at 5, 10, 25, 50, 75, 90, 95 and 99%")
    prediction: str = Field(description="predicted; or late, failed: then what is usual stands for it")
    actual_tokens: int = Field(description="with the one that ended it")
    queue_seconds: float
    preemptions: int
    recomputed_tokens: int


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: None = None
    finish_reason: str | None = Field(description="stop or length")
    pliant: Facts


class ChatMessage(BaseModel):
    role: str = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatMessage
    logprobs: None = None
    finish_reason: str | None = Field(description="stop or length")
    pliant: Facts


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    id: str
    object: str = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[TextChoice]
    usage: Usage


class ChatCompletion(BaseModel):
    id: str
    object: str = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class EngineStatus(BaseModel):
    alive: bool
    waiting: int
    running: int
    pages: int
    pages_used: int
    host_pages_used: int
    iterations: int
    tokens: int
    preemptions: int
    recomputed: int = Field(description="tokens")
    books: str = Field(description="balanced; else what is wrong with the ledger of pages, or unknown")


class ModelStatus(BaseModel):
    name: str
    version: int
    digest: str
    generator: Artifact
    predictor: Artifact
    context: int = Field(description="tokens of a prompt and its output together")
    device: str
    page_tokens: int
    cache_bytes: int
    coverage: dict[str, float] = Field(description="share of recent outputs within each quantile of their forecast")
    engine: EngineStatus


class Status(BaseModel):
    ready: bool
    alias: str
    generation: int = Field(description="counts what was taken up since the start")
    leaving: int = Field(description="earlier generations with outputs on their way")
    policy: str
    models: list[ModelStatus]
    refresh: Refresh
    refresh_seconds: float = Field(description="between two looks; 0 for none")
    waiting: int = Field(description="outputs without a token")
    pending: int = Field(description="outputs on their way")


_IDS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_PROMPT = {"oneOf": [{"type": "string"}, _IDS, {"type": "array", "items": {"oneOf": [{"type": "string"}, _IDS]}}]}
_PART = {"type": "object", "properties": {"type": {"type": "string", "enum": ["text"]}, "text": {"type": "string"}}}
_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["system", "developer", "user", "assistant"]},
        "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": _PART}]},
        "name": {"type": "string"},
    },
}
_STOP = {"type": "string", "minLength": 1, "maxLength": STOP_CHARACTERS}
_COMMON: Mapping[str, Any] = {
    "model": {"type": "string", "description": "may be left out where just one is served"},
    "max_tokens": {"type": "integer", "minimum": 1, "description": "default: as many as the context leaves"},
    "temperature": {"type": "number", "minimum": 0, "maximum": 2, "default": 1.0, "description": "0: the likeliest"},
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 1.0},
    "top_k": {"type": "integer", "minimum": 0, "default": 0, "description": "our own; 0: all"},
    "n": {"type": "integer", "minimum": 1, "default": 1},
    "stream": {"type": "boolean", "default": False},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "stop": {"oneOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": STOPS}]},
    "seed": {"type": "integer", "description": "the same seed gives the same text, whatever else runs"},
    "deadline": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "our own: seconds from arrival; else the header x-pliant-deadline, else none",
    },
    "utility": {"type": "number", "minimum": 0, "default": 1.0, "description": "our own; or x-pliant-utility"},
    "offline": {
        "type": "boolean",
        "default": False,
        "description": "our own: one of a batch that is wanted as a whole",
    },
}
_BODIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "/completions": ("prompt", {"prompt": _PROMPT, "echo": {"type": "boolean", "default": False}, **_COMMON}),
    "/chat/completions": (
        "messages",
        {
            "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
            "max_completion_tokens": _COMMON["max_tokens"],
            **_COMMON,
        },
    ),
}
_SAID: Mapping[str, tuple[str, Any]] = {
    "/completions": ("Continue one or many prompts, as OpenAI does", Completion),
    "/chat/completions": ("Answer a conversation, as OpenAI does", ChatCompletion),
    "/models": ("The models, as OpenAI lists them", OpenaiModels),
    "/models/{model:path}": ("One model", OpenaiModel),
}
_ERRORS = {
    400: "The body is no JSON, or a field is unknown, not supported or outside its limit.",
    404: "The model is not served.",
    408: "A stream was not read.",
    413: "The body is over its limit.",
    415: "The body is not application/json.",
    429: "Overload. See Retry-After.",
    500: "The engine failed with this output.",
    503: "The deadline cannot be met, or the engine is unavailable. See Retry-After.",
}


def documents(path: str) -> dict[str, Any]:
    """What FastAPI is told of a route."""
    summary, answer = _SAID[path]
    said: dict[str, Any] = {
        "methods": ["GET"],
        "summary": summary,
        "tags": ["openai"],
        "responses": {200: {"model": answer}},
    }
    if path in _BODIES:
        said["methods"] = ["POST"]
        said["responses"] |= {s: {"model": OpenaiErrorAnswer, "description": text} for s, text in _ERRORS.items()}
        said["openapi_extra"] = {"requestBody": object_body(*_BODIES[path])}
    return said
