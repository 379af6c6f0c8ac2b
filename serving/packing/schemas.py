"""Schemas of the packing service, for its OpenAPI page only: nothing is parsed with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from serving.http.schemas import Artifact, CommonStatus, OpenaiErrorAnswer, OpenaiModel, OpenaiModels, object_body
from serving.packing.fields import MAX_STOPS, STOP_CHARACTERS


class Facts(BaseModel):
    """How an output came about."""

    predicted_tokens: int = Field(description="median of the forecast length")
    predicted_quantiles: list[float] = Field(
        description="quantiles of the forecast length in tokens, at 5, 10, 25, 50, 75, 90, 95 and 99%"
    )
    prediction: str = Field(
        description="predicted; late or failed: the predictor gave no forecast in time, so it is that of all outputs"
    )
    actual_tokens: int = Field(description="length with the token that ended the output")
    queue_seconds: float = Field(description="seconds from arrival to the first iteration")
    preemptions: int
    recomputed_tokens: int = Field(description="tokens computed again after preemptions")


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
    recomputed: int = Field(description="tokens computed again after preemptions")
    shared: int = Field(description="tokens of prompts that were not read, since others that begin alike had read them")
    books: str = Field(
        description="balanced: all memory pages are accounted for; unknown: the engine did not answer; else the error"
    )
    sequences: int = Field(description="most sequences of an iteration: fewer than planned after a lack of memory")
    sequences_planned: int
    out_of_memory: int = Field(description="processes of the engine that ran out of the device's memory")


class DeviceEngine(EngineStatus):
    device: str


class ForecastsStatus(BaseModel):
    alive: bool = Field(description="whether the predictor's process runs")
    last_minute: int = Field(description="forecasts that were requested in the last minute")
    late: float = Field(description="share of them that came too late")
    failed: float = Field(description="share of them for which no predictor ran")


class ModelStatus(BaseModel):
    name: str
    version: int
    digest: str
    generator: Artifact
    predictor: Artifact
    context: int = Field(description="tokens of a prompt and its output together")
    device: str
    precision: str = Field(description="of weights, keys and values: float32, bfloat16 or float16")
    page_tokens: int
    cache_bytes: int
    coverage: dict[str, float] = Field(
        description="share of recent outputs no longer than each quantile of their forecast"
    )
    forecasts: ForecastsStatus
    engine: EngineStatus = Field(description="the model's engine; of several their sums")
    engines: list[DeviceEngine] = Field(description="one a device")


class Status(CommonStatus):
    policy: str
    models: list[ModelStatus]


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
    "model": {"type": "string", "description": "optional if only one is served"},
    "max_tokens": {"type": "integer", "minimum": 1, "description": "default: as many as the context leaves"},
    "temperature": {
        "type": "number",
        "minimum": 0,
        "maximum": 2,
        "default": 1.0,
        "description": "0: always the likeliest token",
    },
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 1.0},
    "top_k": {"type": "integer", "minimum": 0, "default": 0, "description": "an extension; 0: all tokens"},
    "n": {"type": "integer", "minimum": 1, "default": 1},
    "stream": {"type": "boolean", "default": False},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "stop": {"oneOf": [_STOP, {"type": "array", "items": _STOP, "maxItems": MAX_STOPS}]},
    "seed": {"type": "integer", "description": "the same seed gives the same text, whatever else runs"},
    "deadline": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "an extension: seconds from arrival; default: the header x-pliant-deadline, else none",
    },
    "utility": {
        "type": "number",
        "minimum": 0,
        "default": 1.0,
        "description": "an extension: worth of an output in time; default: the header x-pliant-utility",
    },
    "offline": {
        "type": "boolean",
        "default": False,
        "description": "an extension: one of a batch of requests that is needed as a whole",
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
_SUMMARIES: Mapping[str, tuple[str, Any]] = {
    "/completions": ("Continue one or many prompts, as OpenAI does", Completion),
    "/chat/completions": ("Answer a conversation, as OpenAI does", ChatCompletion),
    "/models": ("The models, as OpenAI lists them", OpenaiModels),
    "/models/{model:path}": ("One model", OpenaiModel),
}
_ERRORS = {
    400: "The body is not JSON, or a field is unknown, not supported or outside its limit.",
    404: "The model is not served.",
    408: "The client did not read the stream.",
    413: "The body exceeds its limit.",
    415: "The body is not application/json.",
    429: "Overload. See Retry-After.",
    500: "The engine failed while it generated this output.",
    503: "The deadline cannot be met, or the engine is unavailable. See Retry-After.",
}


def route_options(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    summary, answer = _SUMMARIES[path]
    options: dict[str, Any] = {
        "methods": ["GET"],
        "summary": summary,
        "tags": ["openai"],
        "responses": {200: {"model": answer}},
    }
    if "{" in path:
        name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
        options["openapi_extra"] = {"parameters": [name]}
    if path in _BODIES:
        options["methods"] = ["POST"]
        options["responses"] |= {s: {"model": OpenaiErrorAnswer, "description": text} for s, text in _ERRORS.items()}
        options["openapi_extra"] = {"requestBody": object_body(*_BODIES[path])}
    return options
