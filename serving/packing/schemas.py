"""The answers of the packing service, and how its OpenAPI page documents its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from pliant.serving.http.app import (
    Artifact,
    CommonStatus,
    OpenaiErrorAnswer,
    OpenaiModel,
    OpenaiModels,
    TeiError,
    errors,
    route_options,
)
from pliant.serving.http.bodies import request_body
from pliant.serving.packing.bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeConversation, TokenizePrompt


class Facts(BaseModel):
    """How an output came about."""

    predicted_tokens: int = Field(description="median of the forecast length")
    predicted_quantiles: list[float] = Field(
        description="quantiles of the forecast length in tokens, at 5, 10, 25, 50, 75, 90, 95 and 99%"
    )
    prediction: str = Field(
        description="predicted; late or failed: the predictor gave no forecast in time, so it is that of all outputs; "
        "given: nothing ends the output before its limit"
    )
    actual_tokens: int = Field(description="length with the token that ended the output")
    queue_seconds: float = Field(description="seconds from arrival to the first iteration")
    ttft_seconds: float | None = Field(description="seconds from arrival to the first token; null without one")
    tpot_seconds: float | None = Field(description="seconds a token behind the first; null for fewer than two tokens")
    on_time: bool = Field(description="whether deadline and targets were kept, those that it has")
    preemptions: int
    recomputed_tokens: int = Field(description="tokens computed again after preemptions")


class TextLogprobs(BaseModel):
    """Of each token of the text; with `echo` of the prompt's, too, the first of which has none."""

    tokens: list[str] = Field(description="a token that is no whole character is written as bytes:\\xe2\\x80")
    token_logprobs: list[float | None] = Field(description="by the model, before any penalty or bias; at least -9999")
    top_logprobs: list[dict[str, float] | None] = Field(description="of the likeliest tokens and of the token itself")
    text_offset: list[int] = Field(description="characters of the text before the token")


class Choice(BaseModel):
    index: int
    finish_reason: str | None = Field(description="stop or length; in a chat also tool_calls")
    pliant: Facts


class TextChoice(Choice):
    text: str
    logprobs: TextLogprobs | None = None


class CalledFunction(BaseModel):
    name: str
    arguments: str = Field(description="JSON of an object")


class ToolCall(BaseModel):
    id: str
    type: str = "function"
    function: CalledFunction


class ChatMessage(BaseModel):
    role: str = "assistant"
    content: str | None = Field(description="null for calls of tools without a text")
    refusal: None = None
    tool_calls: list[ToolCall] | None = Field(default=None, description="missing without calls")


class TokenLogprob(BaseModel):
    token: str
    logprob: float = Field(description="by the model, before any penalty or bias; at least -9999")
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(BaseModel):
    content: list[ContentLogprob]
    refusal: None = None


class ChatChoice(Choice):
    message: ChatMessage
    logprobs: ChatLogprobs | None = None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Answer(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage


class Completion(Answer):
    object: str = "text_completion"
    choices: list[TextChoice]


class ChatCompletion(Answer):
    object: str = "chat.completion"
    choices: list[ChatChoice]


class Tokens(BaseModel):
    count: int
    max_model_len: int = Field(description="tokens of a prompt and its output together, at most")
    tokens: list[int]
    token_strs: list[str] | None = Field(description="the tokens' texts, with return_token_strs")


class Detokenized(BaseModel):
    prompt: str


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


_ROUTES: Mapping[str, tuple[str, Any, Any]] = {
    "/completions": ("Continue one or many prompts, as OpenAI does", Completion, CompletionBody),
    "/chat/completions": ("Answer a conversation, as OpenAI does", ChatCompletion, ChatBody),
    "/models": ("The models, as OpenAI lists them", OpenaiModels, None),
    "/models/{model:path}": ("One model", OpenaiModel, None),
    "/tokenize": (
        "The tokens of a text or conversation, as vLLM answers",
        Tokens,
        TokenizeConversation | TokenizePrompt,
    ),
    "/detokenize": ("The text of tokens, as vLLM answers", Detokenized, DetokenizeBody),
    "/health": ("Whether the service can answer", None, None),
}
"""Summary, answer and body of each route."""
_STREAM = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string", "description": "a chunk as JSON, or [DONE] at the end"}},
    "description": "an event of the stream, with stream",
}


def options_of(path: str) -> dict[str, Any]:
    """Return the arguments of `add_api_route` for a route."""
    summary, answer, body = _ROUTES[path]
    statuses = (400, 404, 408, 413, 415, 429, 500, 503) if body else (404,) if "{" in path else ()
    responses = errors(*statuses, model=OpenaiErrorAnswer)
    if path == "/health":
        responses = errors(503, model=TeiError)
    options = route_options(path, summary, "openai", answer, responses, body and request_body(body))
    if "completions" in path:
        options["responses"][200]["content"] = {"text/event-stream": {"schema": _STREAM}}
    return options
