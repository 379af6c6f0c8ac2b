"""Reads and checks the JSON fields of /v1/completions and /v1/chat/completions.

They follow OpenAI's documentation. A field of OpenAI's that this service does not support is an error, unless its value
has no effect; fields that never change an output (`user`, `metadata`) are ignored. Our own fields are `top_k`, `deadline`,
`utility` and `offline`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers

from pliant.errors import InputError
from pliant.packing.engine.submission import Sampling
from serving.http.api_errors import ApiError
from serving.http.json_body import deadline, number, shorten, utility
from serving.http.routing import Limits
from serving.http.texts import check_count
from serving.packing.request import GenerationRequest, PromptInput

DEADLINE, UTILITY = "x-pliant-deadline", "x-pliant-utility"
MAX_STOPS = 16
STOP_CHARACTERS = 256  # of one stop string, at most
MAX_CHOICES = 128
MAX_MESSAGES = 4096
ROLES = ("system", "developer", "user", "assistant")

COMMON = (
    *("model", "max_tokens", "temperature", "top_p", "top_k", "n", "stream", "stream_options", "stop", "seed"),
    *("deadline", "utility", "offline"),
)
FIELDS: Mapping[str, tuple[str, ...]] = {
    "prompt": (*COMMON, "prompt", "echo"),
    "messages": (*COMMON, "messages", "max_completion_tokens"),
}
"""The fields of a request, by the field that holds its prompt."""
IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
NO_EFFECT: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (0, 0.0)),
    "logit_bias": ({},),
    "logprobs": (False,),
    "best_of": (1,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    **dict.fromkeys(("top_logprobs", "audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"), ()),
}
"""Fields that are not supported, with the values (besides null) that are accepted because they have no effect."""


def read_request(fields: Mapping[str, Any], headers: Headers, prompt: str, limits: Limits) -> GenerationRequest:
    """Return the checked request. `prompt` is the field that holds the prompt. Raises `InputError` and `ApiError`."""
    fields = {name: value for name, value in fields.items() if value is not None}
    _check_names(fields, prompt)
    prompts = _prompts(fields.get("prompt"), limits) if prompt == "prompt" else (_conversation(fields.get("messages")),)
    choices = whole("n", fields.get("n", 1), 1, MAX_CHOICES)
    check_count("prompt times n", range(len(prompts) * choices), limits.max_texts)
    stream = flag(fields, "stream")
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    return GenerationRequest(
        model=_model(fields.get("model")),
        prompts=prompts,
        choices=choices,
        max_tokens=whole(name, fields[name], 1) if name in fields else None,
        max_tokens_name=name,
        sampling=_sampling(fields),
        stops=_stops(fields.get("stop")),
        stream=stream,
        usage=_usage(fields.get("stream_options"), stream),
        echo=flag(fields, "echo"),
        deadline=_deadline(fields, headers, limits.max_deadline),
        utility=_utility(fields, headers),
        offline=flag(fields, "offline"),
    )


def whole(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Return a whole number. Raises `InputError` unless it is from `minimum` to `maximum` (None: any)."""
    allowed = f"from {minimum} on" if maximum is None else f"from {minimum} to {maximum}"
    upper = float("inf") if maximum is None else maximum
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= upper:
        raise InputError(name, shorten(value), f"a whole number {allowed}")
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field, by default false. Raises `InputError` for another type."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def _check_names(fields: Mapping[str, Any], prompt: str) -> None:
    known = FIELDS[prompt]
    for name, value in fields.items():
        if name in known or name in IGNORED:
            continue
        if name not in NO_EFFECT:
            raise ApiError(400, "unknown_parameter", f"{shorten(name)} is not a field of this route", name[:80])
        if not any(type(value) is type(other) and value == other for other in NO_EFFECT[name]):
            raise ApiError(400, "unsupported_parameter", f"{name} is not supported by this service", name)
    if prompt not in fields:
        raise InputError(prompt, "missing", "given")


def _model(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError("model", shorten(value), "the name of a model")
    return value


def _sampling(fields: Mapping[str, Any]) -> Sampling:
    temperature = number("temperature", fields.get("temperature", 1.0))
    if not 0 <= temperature <= 2:
        raise InputError("temperature", f"{temperature:g}", "from 0 to 2")
    top_p = number("top_p", fields.get("top_p", 1.0))
    if not 0 < top_p <= 1:
        raise InputError("top_p", f"{top_p:g}", "more than 0 and at most 1")
    top_k = whole("top_k", fields.get("top_k", 0), 0, 1 << 31)
    seed = whole("seed", fields.get("seed", secrets.randbits(62)), -(1 << 63), (1 << 63) - 1)
    return Sampling(temperature, top_p, top_k, seed)


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if stops is None or stops == []:
        return ()
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InputError("stop", shorten(value), "a text or a list of texts, none of them empty")
    if len(stops) > MAX_STOPS:
        raise InputError("stop", f"a list of {len(stops)}", f"a list of at most {MAX_STOPS}")
    longest = max(map(len, stops))
    if longest > STOP_CHARACTERS:
        raise InputError("stop", f"{longest} characters", f"at most {STOP_CHARACTERS} characters")
    return tuple(dict.fromkeys(stops))


def _usage(options: object, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise InputError("stream_options", shorten(options), "left out unless stream is true")
    if not isinstance(options, dict):
        raise InputError("stream_options", shorten(options), "an object")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise InputError("stream_options", shorten(name), "an object with include_usage")
    return flag(options, "include_usage")


def _deadline(fields: Mapping[str, Any], headers: Headers, maximum: float) -> float | None:
    if "deadline" in fields:
        return deadline(fields["deadline"], maximum)
    return None if DEADLINE not in headers else deadline(_header(headers, DEADLINE), maximum, DEADLINE)


def _utility(fields: Mapping[str, Any], headers: Headers) -> float:
    return utility(
        fields["utility"] if "utility" in fields else _header(headers, UTILITY) if UTILITY in headers else 1.0
    )


def _header(headers: Headers, name: str) -> float:
    try:
        return float(headers[name])
    except ValueError:
        raise InputError(name, shorten(headers[name]), "a number") from None


def _prompts(value: object, limits: Limits) -> tuple[PromptInput, ...]:
    if isinstance(value, str):
        return (_text("prompt", value),)
    if not isinstance(value, list) or not value:
        raise InputError("prompt", shorten(value), "a text, a list of token ids, or a list of these")
    if isinstance(value[0], int):
        return (_ids("prompt", value),)
    check_count("prompt", value, limits.max_texts)
    return tuple(
        _ids(f"prompt[{index}]", item) if isinstance(item, list) else _text(f"prompt[{index}]", item)
        for index, item in enumerate(value)
    )


def _text(name: str, value: object) -> PromptInput:
    return PromptInput(name, text=_clean(name, value))


def _clean(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(name, shorten(value), "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        shown = f"a text with the lone surrogate {shorten(value[error.start])} at character {error.start}"
        raise InputError(name, shown, "a text that UTF-8 can hold") from None
    return value


def _ids(name: str, value: Sequence[object]) -> PromptInput:
    if not value or not all(isinstance(id, int) and not isinstance(id, bool) for id in value):
        raise InputError(name, shorten(value), "a list of token ids")
    return PromptInput(name, ids=tuple(value))  # type: ignore[arg-type]


def _conversation(value: object) -> PromptInput:
    if not isinstance(value, list) or not value:
        raise InputError("messages", shorten(value), "a list of at least one message")
    if len(value) > MAX_MESSAGES:
        raise InputError("messages", f"a list of {len(value)}", f"of at most {MAX_MESSAGES} messages")
    return PromptInput(
        "messages", messages=tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))
    )


def _message(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(name, shorten(value), "an object with role and content")
    if value.get("role") not in ROLES:
        raise InputError(f"{name}.role", shorten(value.get("role")), f"one of {', '.join(ROLES)}")
    for field, other in value.items():
        if field not in ("role", "content", "name") and other not in (None, []):
            raise ApiError(400, "unsupported_parameter", f"{name} has {shorten(field)}, which is not supported", name)
    named = {"name": _clean(f"{name}.name", value["name"])} if value.get("name") is not None else {}
    return {"role": value["role"], "content": _content(f"{name}.content", value.get("content")), **named}


def _content(name: str, value: object) -> str:
    if not isinstance(value, list):
        return _clean(name, value)
    return "".join(_part(f"{name}[{index}]", part) for index, part in enumerate(value))


def _part(name: str, value: object) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        raise InputError(name, shorten(value), 'an object of type "text"')
    return _clean(f"{name}.text", value.get("text"))
