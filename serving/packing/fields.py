"""From the JSON fields of /v1/completions and /v1/chat/completions to a checked question.

After OpenAI's documentation. What it has and this service has not is refused by name, unless its value asks for nothing;
what changes no output (`user`, `metadata`) is ignored. Of our own are `top_k`, `deadline`, `utility` and `offline`.
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
from serving.http.questions import Limits
from serving.http.texts import check_count
from serving.packing.question import Given, Question

DEADLINE, UTILITY = "x-pliant-deadline", "x-pliant-utility"
STOPS, STOP_CHARACTERS = 16, 256
MOST_CHOICES = 128
ROLES = ("system", "developer", "user", "assistant")

COMMON = (
    *("model", "max_tokens", "temperature", "top_p", "top_k", "n", "stream", "stream_options", "stop", "seed"),
    *("deadline", "utility", "offline"),
)
FIELDS: Mapping[str, tuple[str, ...]] = {
    "prompt": (*COMMON, "prompt", "echo"),
    "messages": (*COMMON, "messages", "max_completion_tokens"),
}
"""By the field that holds the prompt."""
IGNORED = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)
ASKS_NOTHING: Mapping[str, tuple[object, ...]] = {
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
"""Fields that are not supported, with the values (besides null) that nevertheless change nothing."""


def read_question(fields: Mapping[str, Any], headers: Headers, prompt: str, limits: Limits) -> Question:
    """`prompt`: the field that holds it. Raises `InputError` and `ApiError`."""
    told = {name: value for name, value in fields.items() if value is not None}
    _check_names(told, prompt)
    prompts = _prompts(told.get("prompt"), limits) if prompt == "prompt" else (_conversation(told.get("messages")),)
    choices = whole("n", told.get("n", 1), 1, MOST_CHOICES)
    check_count("prompt times n", range(len(prompts) * choices), limits.max_texts)
    stream = flag(told, "stream")
    name = "max_completion_tokens" if "max_completion_tokens" in told else "max_tokens"
    return Question(
        model=_model(told.get("model")),
        prompts=prompts,
        choices=choices,
        most=whole(name, told[name], 1) if name in told else None,
        most_name=name,
        sampling=_sampling(told),
        stops=_stops(told.get("stop")),
        stream=stream,
        usage=_usage(told.get("stream_options"), stream),
        echo=flag(told, "echo"),
        deadline=_deadline(told, headers, limits.max_deadline),
        utility=_utility(told, headers),
        offline=flag(told, "offline"),
    )


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    limit = f"a whole number from {least} on" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        raise InputError(name, shorten(value), limit)
    return value


def flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def _check_names(told: Mapping[str, Any], prompt: str) -> None:
    known = FIELDS[prompt]
    for name, value in told.items():
        if name in known or name in IGNORED:
            continue
        if name not in ASKS_NOTHING:
            raise ApiError(400, "unknown_parameter", f"{shorten(name)} is no field of this address", name[:80])
        if not any(type(value) is type(one) and value == one for one in ASKS_NOTHING[name]):
            raise ApiError(400, "unsupported_parameter", f"{name} is not supported by this service", name)
    if prompt not in told:
        raise InputError(prompt, "missing", "given")


def _model(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InputError("model", shorten(value), "the name of a model")
    return value


def _sampling(told: Mapping[str, Any]) -> Sampling:
    temperature = number("temperature", told.get("temperature", 1.0))
    if not 0 <= temperature <= 2:
        raise InputError("temperature", f"{temperature:g}", "from 0 to 2")
    top_p = number("top_p", told.get("top_p", 1.0))
    if not 0 < top_p <= 1:
        raise InputError("top_p", f"{top_p:g}", "more than 0 and at most 1")
    top_k = whole("top_k", told.get("top_k", 0), 0, 1 << 31)
    seed = whole("seed", told.get("seed", secrets.randbits(62)), -(1 << 63), (1 << 63) - 1)
    return Sampling(temperature, top_p, top_k, seed)


def _stops(value: object) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if stops is None or stops == []:
        return ()
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise InputError("stop", shorten(value), "a text or a list of texts, none of them empty")
    if len(stops) > STOPS:
        raise InputError("stop", f"a list of {len(stops)}", f"a list of at most {STOPS}")
    longest = max(map(len, stops))
    if longest > STOP_CHARACTERS:
        raise InputError("stop", f"{longest} characters", f"at most {STOP_CHARACTERS} characters")
    return tuple(dict.fromkeys(stops))


def _usage(options: object, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise InputError("stream_options", shorten(options), "left out where stream is not true")
    if not isinstance(options, dict):
        raise InputError("stream_options", shorten(options), "an object")
    for name in options:
        if name not in ("include_usage", "include_obfuscation"):
            raise InputError("stream_options", shorten(name), "an object with include_usage")
    return flag(options, "include_usage")


def _deadline(told: Mapping[str, Any], headers: Headers, most: float) -> float | None:
    if "deadline" in told:
        return deadline(told["deadline"], most)
    return None if DEADLINE not in headers else deadline(_header(headers, DEADLINE), most, DEADLINE)


def _utility(told: Mapping[str, Any], headers: Headers) -> float:
    return utility(told["utility"] if "utility" in told else _header(headers, UTILITY) if UTILITY in headers else 1.0)


def _header(headers: Headers, name: str) -> float:
    try:
        return float(headers[name])
    except ValueError:
        raise InputError(name, shorten(headers[name]), "a number") from None


def _prompts(value: object, limits: Limits) -> tuple[Given, ...]:
    if isinstance(value, str):
        return (_text("prompt", value),)
    if not isinstance(value, list) or not value:
        raise InputError("prompt", shorten(value), "a text, a list of token ids, or a list of these")
    if isinstance(value[0], int):
        return (_ids("prompt", value),)
    check_count("prompt", value, limits.max_texts)
    return tuple(
        _ids(f"prompt[{place}]", one) if isinstance(one, list) else _text(f"prompt[{place}]", one)
        for place, one in enumerate(value)
    )


def _text(name: str, value: object) -> Given:
    return Given(name, text=_clean(name, value))


def _clean(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(name, shorten(value), "a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        found = f"a text with the lone surrogate {shorten(value[error.start])} at character {error.start}"
        raise InputError(name, found, "a text that UTF-8 can hold") from None
    return value


def _ids(name: str, value: Sequence[object]) -> Given:
    if not value or not all(isinstance(id, int) and not isinstance(id, bool) for id in value):
        raise InputError(name, shorten(value), "a list of token ids")
    return Given(name, ids=tuple(value))  # type: ignore[arg-type]


def _conversation(value: object) -> Given:
    if not isinstance(value, list) or not value:
        raise InputError("messages", shorten(value), "a list of at least one message")
    return Given("messages", messages=tuple(_message(f"messages[{place}]", one) for place, one in enumerate(value)))


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
    return "".join(_part(f"{name}[{place}]", part) for place, part in enumerate(value))


def _part(name: str, value: object) -> str:
    if not isinstance(value, dict) or value.get("type") != "text":
        raise InputError(name, shorten(value), 'an object of type "text"')
    return _clean(f"{name}.text", value.get("text"))
