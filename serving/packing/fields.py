"""Reads and checks the JSON fields of /v1/completions and /v1/chat/completions.

They follow OpenAI's documentation and, where that has nothing, vLLM's. Every field of both is known: it is done, or it never
changes an output (`user`, `metadata`), or it is an error unless its value has no effect. A field that is in neither is named
in the answer's header x-pliant-ignored, or is an error where the service is strict. Our own fields are `deadline`, `utility`
and `offline`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers

from pliant.errors import InputError
from pliant.packing.scheduling.request import MAX_PRIORITY
from serving.http.api_errors import ApiError
from serving.http.json_body import deadline, number, shorten, utility
from serving.http.texts import check_count
from serving.packing.output_form import output_grammar
from serving.packing.prompt_fields import conversation, prompts
from serving.packing.request import GenerationRequest, Limits, PromptInput
from serving.packing.sampling_fields import sampling, stops
from serving.packing.tool_fields import NO_TOOLS, ToolRequest, read_tools
from serving.packing.values import flag, whole

DEADLINE, UTILITY = "x-pliant-deadline", "x-pliant-utility"
TTFT, TPOT = "slo_ttft_ms", "slo_tpot_ms"
TARGET_HEADERS = {TTFT: "x-slo-ttft-ms", TPOT: "x-slo-tpot-ms"}
MAX_CHOICES = 128
NAME_CHARACTERS = 80  # of an unknown field's name that are repeated

COMMON = (
    *("model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "stream", "stream_options", "stop", "seed"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs"),
    *("min_tokens", "stop_token_ids", "ignore_eos", "add_special_tokens", "response_format", "structured_outputs"),
    *("deadline", TTFT, TPOT, "utility", "priority", "offline"),
)
TOOLS = ("tools", "tool_choice", "parallel_tool_calls")
TOKENIZE = ("model", "add_special_tokens", "return_token_strs")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "prompt": (*COMMON, "prompt", "echo", "best_of"),
    "messages": (*COMMON, "messages", "max_completion_tokens", "top_logprobs", "chat_template_kwargs", *TOOLS),
    "tokenize": ("model", "prompt", "add_special_tokens", "return_token_strs"),
    "tokenize conversation": (
        "model",
        "messages",
        "add_special_tokens",
        "return_token_strs",
        "chat_template_kwargs",
        "tools",
    ),
    "detokenize": ("model", "tokens"),
}
"""The fields of a route, which is named by the field that holds its prompt where it generates."""
STREAM_OPTIONS = ("include_usage", "continuous_usage_stats", "include_obfuscation")
IGNORED = (
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
    *("prediction", "request_id", "cache_salt"),
)
"""Fields that never change an output: what they are for is not done, and nobody can tell from the answer."""
_OFF: tuple[object, ...] = (False,)
_EMPTY: tuple[object, ...] = ([],)
NO_EFFECT: Mapping[str, tuple[object, ...]] = {
    "best_of": (1,),
    "echo": _OFF,
    "suffix": ("",),
    "tools": _EMPTY,
    "tool_choice": ("none", "auto"),
    "functions": _EMPTY,
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "length_penalty": (1, 1.0),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "include_reasoning": (True,),
    "chat_template_kwargs": ({},),
    "top_logprobs": (0,),
    **dict.fromkeys(
        ("use_beam_search", "early_stopping", "include_stop_str_in_output", "continue_final_message"), _OFF
    ),
    **dict.fromkeys(("return_token_ids", "return_tokens_as_token_ids"), _OFF),
    **dict.fromkeys(("bad_words", "allowed_token_ids", "documents"), _EMPTY),
    **dict.fromkeys(("audio", "reasoning_effort", "web_search_options", "moderation"), ()),
    **dict.fromkeys(("prompt_logprobs", "truncate_prompt_tokens", "logits_processors", "chat_template"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    **dict.fromkeys(("mm_processor_kwargs", "kv_transfer_params", "vllm_xargs", "prompt_embeds"), ()),
}
"""Fields that are not supported (on the route), with the values besides null that are accepted: they have no effect."""


def read_request(fields: Mapping[str, Any], headers: Headers, prompt: str, limits: Limits) -> GenerationRequest:
    """Return the checked request. `prompt` is the field that holds the prompt. Raises `InputError` and `ApiError`."""
    fields = {name: value for name, value in fields.items() if value is not None}
    ignored, chat = unknown_fields(fields, prompt, limits.strict_fields), prompt == "messages"
    if prompt not in fields:
        raise InputError(prompt, "missing", "given")
    tools = read_tools(fields) if chat else NO_TOOLS
    inputs = (
        (read_chat_prompt(fields, tools),)
        if chat
        else prompts(fields["prompt"], limits.max_texts, flag(fields, "add_special_tokens", True))
    )
    choices = whole("n", fields.get("n", 1), 1, MAX_CHOICES)
    stream, echo = flag(fields, "stream"), flag(fields, "echo")
    best_of = _best_of(fields, choices, stream) if "best_of" in fields else choices
    check_count(
        "prompt times n" if best_of == choices else "prompt times best_of",
        range(len(inputs) * best_of),
        limits.max_texts,
    )
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    max_tokens = whole(name, fields[name], 0 if echo else 1) if name in fields else None
    grammar, form = output_grammar(fields)
    drawn = sampling(fields, chat, echo, best_of > choices, grammar)
    if max_tokens is not None and drawn.min_tokens > max(max_tokens, 1):
        raise InputError("min_tokens", drawn.min_tokens, f"at most {name}, which is {max_tokens}")
    usage, continuous_usage = _usage(fields.get("stream_options"), stream)
    return GenerationRequest(
        model=model_name(fields.get("model")),
        prompts=inputs,
        choices=choices,
        best_of=best_of,
        max_tokens=max_tokens,
        max_tokens_name=name,
        sampling=drawn,
        tools=tools,
        form=form,
        logprobs=fields.get("logprobs", False) is not False,
        stops=stops(fields.get("stop")),
        stream=stream,
        usage=usage,
        continuous_usage=continuous_usage,
        echo=echo,
        deadline=_deadline(fields, headers, limits.max_deadline),
        ttft=_target(TTFT, fields, headers, limits.max_deadline),
        tpot=_target(TPOT, fields, headers, limits.max_deadline),
        utility=_utility(fields, headers),
        priority=whole("priority", fields.get("priority", 0), -MAX_PRIORITY, MAX_PRIORITY),
        offline=flag(fields, "offline"),
        ignored=ignored,
    )


def read_chat_prompt(fields: Mapping[str, Any], tools: ToolRequest) -> PromptInput:
    """Return the prompt of a conversation, with what its template is given besides the messages."""
    special = flag(fields, "add_special_tokens") if "add_special_tokens" in fields else None
    template = fields.get("chat_template_kwargs", {})
    if not isinstance(template, dict):
        raise InputError("chat_template_kwargs", shorten(template), "an object")
    return conversation(fields.get("messages"), special, template, tools.tools)


def unknown_fields(fields: Mapping[str, Any], route: str, strict: bool) -> tuple[str, ...]:
    """Return the names of fields that nobody knows. Raises `ApiError` for those if strict, and for what is not supported."""
    ignored = []
    for name, value in fields.items():
        if name in FIELDS[route] or name in IGNORED:
            continue
        if name in NO_EFFECT:
            if not any(type(value) is type(other) and value == other for other in NO_EFFECT[name]):
                raise ApiError(400, "unsupported_parameter", f"{name} is not supported by this service", name)
        elif strict:
            message = f"{shorten(name)} is not a field of this route"
            raise ApiError(400, "unknown_parameter", message, name[:NAME_CHARACTERS])
        else:
            ignored.append(name[:NAME_CHARACTERS])
    return tuple(ignored)


def model_name(value: object) -> str | None:
    """Return the model's name, if one is given. Raises `InputError`."""
    if value is not None and not isinstance(value, str):
        raise InputError("model", shorten(value), "the name of a model")
    return value


def _best_of(fields: Mapping[str, Any], choices: int, stream: bool) -> int:
    best_of = whole("best_of", fields["best_of"], 1, MAX_CHOICES)
    if best_of < choices:
        raise InputError("best_of", best_of, f"at least n, which is {choices}")
    if stream and best_of > choices:
        raise InputError("best_of", best_of, "equal to n in a stream, which cannot take back an output")
    return best_of


def _usage(options: object, stream: bool) -> tuple[bool, bool]:
    """Return whether a stream ends with the numbers of tokens, and whether each of its chunks has them."""
    if options is None:
        return False, False
    if not stream:
        raise InputError("stream_options", shorten(options), "left out unless stream is true")
    if not isinstance(options, dict):
        raise InputError("stream_options", shorten(options), "an object")
    for name in options:
        if name not in STREAM_OPTIONS:
            raise InputError("stream_options", shorten(name), f"an object with {', '.join(STREAM_OPTIONS)}")
    flag(options, "include_obfuscation")
    return flag(options, "include_usage"), flag(options, "continuous_usage_stats")


def _deadline(fields: Mapping[str, Any], headers: Headers, maximum: float) -> float | None:
    if "deadline" in fields:
        return deadline(fields["deadline"], maximum)
    return None if DEADLINE not in headers else deadline(_header(headers, DEADLINE), maximum, DEADLINE)


def _target(name: str, fields: Mapping[str, Any], headers: Headers, maximum: float) -> float | None:
    """Return a target in seconds from its field or header, which are in milliseconds; None: the service's own counts."""
    header = TARGET_HEADERS[name]
    if name not in fields and header not in headers:
        return None
    shown, value = (name, fields[name]) if name in fields else (header, _header(headers, header))
    milliseconds = number(shown, value)
    if not 0 < milliseconds <= 1000 * maximum:
        raise InputError(shown, f"{milliseconds:g}", f"more than 0 and at most {1000 * maximum:g} milliseconds")
    return milliseconds / 1000


def _utility(fields: Mapping[str, Any], headers: Headers) -> float:
    return utility(
        fields["utility"] if "utility" in fields else _header(headers, UTILITY) if UTILITY in headers else 1.0
    )


def _header(headers: Headers, name: str) -> float:
    try:
        return float(headers[name])
    except ValueError:
        raise InputError(name, shorten(headers[name]), "a number") from None
