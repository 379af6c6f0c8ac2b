"""The requests of the packing service, and how they are read from the models of bodies (bodies.py).

Every field of OpenAI and of vLLM is known: it is done, or it never changes an output (`user`, `metadata`), or it is an error
unless its value has no effect. A field that is in neither is named in the answer's header x-pliant-ignored, or is an error
where the service is strict.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers

from pliant.errors import InputError
from pliant.packing import chat
from pliant.packing.chat import Tool
from pliant.packing.engine.grammar import json_rule
from pliant.packing.engine.submission import Sampling
from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import check_count, deadline, given, header_number, shorten
from pliant.serving.packing.bodies import (
    ANY_OBJECT,
    ChatBody,
    CompletionBody,
    Conversation,
    FunctionTool,
    Generation,
    Message,
    ModelBody,
    ResponseFormat,
    StructuredOutputs,
)
from pliant.serving.packing.settings import PackingSettings


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """The tools that an answer may call. `forced`: it must be calls of them, and nothing else."""

    tools: tuple[Tool, ...]
    callable: tuple[Tool, ...]  # those that it may call
    forced: bool
    parallel: bool  # it may call several


NO_TOOLS = ToolRequest((), (), forced=False, parallel=True)


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A prompt: a text, token ids or a conversation. `name` is its field in errors.

    `special`: the tokenizer adds its special tokens; None: it does, unless the chat template writes them itself.
    `template`: further variables of the chat template.
    """

    name: str
    text: str = ""
    ids: tuple[int, ...] = ()
    messages: tuple[chat.Message, ...] = ()
    special: bool | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A checked request: prompts for one model, each of which is continued `best_of` times; `choices` are answered."""

    model: str | None  # None: the only one
    prompts: tuple[PromptInput, ...]
    choices: int
    best_of: int
    max_tokens: int | None  # of each output; None: as many as the context leaves; 0: only the prompt is answered
    max_tokens_name: str  # its field in errors
    sampling: Sampling  # the seed is that of the first choice
    tools: ToolRequest  # that its answer may call
    form: str  # the field that gives the outputs' grammar, in errors
    logprobs: bool  # the answer has log-probabilities
    stops: tuple[str, ...]
    stream: bool
    usage: bool  # a stream ends with the numbers of tokens
    continuous_usage: bool  # so does each of its chunks
    echo: bool  # the answer repeats the prompt
    deadline: float | None  # seconds from arrival; None: none
    ttft: float | None  # target of the seconds to the first token; None: the service's
    tpot: float | None  # target of the seconds a token from then on; None: the service's
    utility: float  # of an output in time
    priority: int  # lower goes first
    offline: bool  # one of a batch of requests that is needed as a whole
    ignored: tuple[str, ...] = ()  # names of unknown fields
    client: Client = ANYBODY

    @property
    def chat(self) -> bool:
        """Whether it is a conversation."""
        return bool(self.prompts[0].messages)

    @property
    def silent(self) -> bool:
        """Whether nothing is to be generated, and only the prompt is answered."""
        return self.max_tokens == 0

    @property
    def known_length(self) -> bool:
        """Whether nothing ends its outputs before their limit."""
        return self.silent or (self.sampling.ignore_eos and not (self.stops or self.sampling.stop_tokens))


HEADERS: Mapping[str, str] = {
    "deadline": "x-pliant-deadline",
    "utility": "x-pliant-utility",
    "slo_ttft_ms": "x-slo-ttft-ms",
    "slo_tpot_ms": "x-slo-tpot-ms",
}
"""Headers that count where a body does not have the field."""
NAME_CHARACTERS = 80  # of an unknown field's name that are repeated
TOOLS_CHARACTERS = 256 * 1024  # of all tools as JSON
MESSAGE_FIELDS = frozenset(Message.model_fields)

IGNORED = frozenset(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prediction", "request_id", "cache_salt"),
        *("prompt_cache_key", "prompt_cache_retention"),
    )
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
    "chat_template_kwargs": ({},),
    "top_logprobs": (0,),
    **dict.fromkeys(("skip_special_tokens", "spaces_between_special_tokens"), (True,)),
    **dict.fromkeys(("add_generation_prompt", "include_reasoning"), (True,)),
    **dict.fromkeys(("use_beam_search", "early_stopping", "continue_final_message"), _OFF),
    **dict.fromkeys(("include_stop_str_in_output", "return_token_ids", "return_tokens_as_token_ids"), _OFF),
    **dict.fromkeys(("bad_words", "allowed_token_ids", "documents"), _EMPTY),
    **dict.fromkeys(("audio", "reasoning_effort", "web_search_options", "moderation"), ()),
    **dict.fromkeys(("prompt_logprobs", "truncate_prompt_tokens", "logits_processors", "chat_template"), ()),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ()),
    **dict.fromkeys(("mm_processor_kwargs", "kv_transfer_params", "vllm_xargs", "prompt_embeds"), ()),
}
"""Fields that are not supported (on the route), with the values besides null that are accepted: they have no effect."""


def read_request(
    fields: Mapping[str, Any], headers: Headers, kind: type[CompletionBody] | type[ChatBody], limits: PackingSettings
) -> GenerationRequest:
    """Return the checked request of a body's fields. Raises `InputError` and `ApiError`."""
    fields = given(fields)
    ignored = unknown_fields(fields, kind, limits.strict_fields)
    body = kind.read(fields)
    tools, echo, best_of = NO_TOOLS, False, body.n
    if isinstance(body, ChatBody):
        tools = read_tools(body.tools, fields.get("tools", ()), body.tool_choice, body.parallel_tool_calls)
        inputs: tuple[PromptInput, ...] = (conversation(body, fields, tools.tools),)
    else:
        inputs, echo, best_of = _prompts(body, limits.max_texts), body.echo, body.best_of or body.n
        if best_of < body.n:
            raise InputError("best_of", best_of, f"at least n, which is {body.n}")
        if body.stream and best_of > body.n:
            raise InputError("best_of", best_of, "equal to n in a stream, which cannot take back an output")
    outputs = "prompt times n" if best_of == body.n else "prompt times best_of"
    check_count(outputs, range(len(inputs) * best_of), limits.max_texts)
    max_tokens, name = body.max_tokens, "max_tokens"
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        max_tokens, name = body.max_completion_tokens, "max_completion_tokens"
    if max_tokens == 0 and not echo:  # it is for a prompt that is repeated
        raise InputError(name, 0, "a whole number from 1 on")
    if isinstance(body, CompletionBody):
        logprobs = -1 if body.logprobs is None else body.logprobs
    elif body.top_logprobs and not body.logprobs:
        raise InputError("top_logprobs", body.top_logprobs, "left out unless logprobs is true")
    else:
        logprobs = body.top_logprobs if body.logprobs else -1
    grammar, form = output_grammar(body.response_format, body.structured_outputs)
    sampling = Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=max(body.top_k, 0),
        seed=secrets.randbits(62) if body.seed is None else body.seed,
        min_p=body.min_p,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        logit_bias=tuple({int(key): bias for key, bias in (body.logit_bias or {}).items()}.items()),
        min_tokens=body.min_tokens,
        stop_tokens=tuple(dict.fromkeys(body.stop_token_ids or ())),
        ignore_eos=body.ignore_eos,
        logprobs=max(logprobs, 0) if best_of > body.n else logprobs,  # by which outputs are compared
        prompt_logprobs=logprobs if echo else -1,
        grammar=grammar,
    )
    if max_tokens is not None and sampling.min_tokens > max(max_tokens, 1):
        raise InputError("min_tokens", sampling.min_tokens, f"at most {name}, which is {max_tokens}")
    options = body.stream_options
    if options and not body.stream:
        raise InputError("stream_options", shorten(fields["stream_options"]), "left out unless stream is true")
    seconds, source = _given(body, headers, "deadline")
    worth, source_of_worth = _given(body, headers, "utility")
    if worth is not None and not 0 <= worth < math.inf:
        raise InputError(source_of_worth, f"{worth:g}", "0 or more, and finite")
    return GenerationRequest(
        model=body.model,
        prompts=inputs,
        choices=body.n,
        best_of=best_of,
        max_tokens=max_tokens,
        max_tokens_name=name,
        sampling=sampling,
        tools=tools,
        form=form,
        logprobs=logprobs >= 0,
        stops=tuple(dict.fromkeys(body.stop or ())),
        stream=body.stream,
        usage=options is not None and options.include_usage,
        continuous_usage=options is not None and options.continuous_usage_stats,
        echo=echo,
        deadline=None if seconds is None else deadline(seconds, limits.max_deadline, source),
        ttft=_target(body, headers, "slo_ttft_ms", limits.max_deadline),
        tpot=_target(body, headers, "slo_tpot_ms", limits.max_deadline),
        utility=body.utility if worth is None else worth,
        priority=body.priority,
        offline=body.offline,
        ignored=ignored,
    )


def unknown_model(name: str, served: Iterable[str]) -> ApiError:
    """Return the error for a model that is not served."""
    message = f"model is {shorten(name)}, but must be one of {', '.join(served)}"
    return ApiError(404, "model_not_found", message, "model")


def unknown_fields(fields: Mapping[str, Any], kind: type[ModelBody], strict: bool) -> tuple[str, ...]:
    """Return the names of fields that nobody knows. Raises `ApiError` for those if strict, and for what is not supported."""
    ignored, known = [], kind.__pydantic_fields__
    for name, value in fields.items():
        if name in known or name in IGNORED:
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


def conversation(body: Conversation, fields: Mapping[str, Any], tools: tuple[Tool, ...]) -> PromptInput:
    """Return the prompt of a conversation, with what its template is given besides the messages."""
    pairs = zip(body.messages, fields["messages"], strict=True)
    messages = tuple(_message(f"messages[{index}]", *pair) for index, pair in enumerate(pairs))
    special, template = fields.get("add_special_tokens"), body.chat_template_kwargs or {}
    return PromptInput("messages", messages=messages, special=special, template=template, tools=tools)


def _message(name: str, message: Message, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message as templates expect it: its fields in their order, which a template may write."""
    known: dict[str, Any] = {}
    for key, value in fields.items():
        if key in MESSAGE_FIELDS:
            if value is not None:
                known[key] = getattr(message, key)
        elif value is not None and value != []:
            raise ApiError(400, "unsupported_parameter", f"{name} has {shorten(key)}, which is not supported", name)
    if message.tool_calls is None:
        known.pop("tool_calls", None)
        if message.content is None:
            raise InputError(f"{name}.content", "missing", "given")
    elif message.role != "assistant":
        raise InputError(f"{name}.tool_calls", "given", "left out unless the role is assistant")
    else:
        known["tool_calls"] = [
            {**given, "function": {**given["function"], "arguments": call.function.arguments}}
            for given, call in zip(fields["tool_calls"], message.tool_calls, strict=True)
        ]
    return known


def _prompts(body: CompletionBody, most: int) -> tuple[PromptInput, ...]:
    special, prompt = body.add_special_tokens is not False, body.prompt
    alone = isinstance(prompt, str) or isinstance(prompt[0], int)
    prompts: Mapping[str, Any] = {"prompt": prompt}
    if not alone:
        check_count("prompt", prompt, most)
        prompts = {f"prompt[{index}]": each for index, each in enumerate(prompt)}
    return tuple(
        PromptInput(name, text=value, special=special)
        if isinstance(value, str)
        else PromptInput(name, ids=tuple(value))
        for name, value in prompts.items()
    )


def read_tools(
    tools: Sequence[FunctionTool] | None, given: Sequence[Any], choice: object, parallel: bool
) -> ToolRequest:
    """Return the tools that an answer may call. `given`: as the client wrote them, which templates get."""
    read = tuple(
        Tool(tool.function.name, tool.function.description or "", tool.function.parameters or {}, as_given)
        for tool, as_given in zip(tools or (), given, strict=True)
    )
    if len({tool.name for tool in read}) < len(read):
        raise InputError("tools", "two functions of one name", "functions of different names")
    try:
        size = sum(len(json.dumps(tool.to_dict())) for tool in read)
    except (RecursionError, ValueError):
        raise InputError("tools", "nested too deep", "tools of reasonable depth") from None
    if size > TOOLS_CHARACTERS:
        raise InputError("tools", f"{size} characters", f"at most {TOOLS_CHARACTERS} characters")
    if isinstance(choice, dict):
        function = choice.get("function") if choice.get("type") == "function" else None
        wanted = function.get("name") if isinstance(function, dict) else None
        named = tuple(tool for tool in read if tool.name == wanted)
        if not named:
            raise InputError("tool_choice", shorten(choice), "an object that names one of the tools")
        return ToolRequest(read, named, forced=True, parallel=False)
    if choice == "required" and not read:
        raise InputError("tool_choice", "required", "left out without tools")
    return NO_TOOLS if choice == "none" else ToolRequest(read, read, choice == "required", parallel)


def output_grammar(response: ResponseFormat | None, structured: StructuredOutputs | None) -> tuple[str, str]:
    """Return the grammar of a request's outputs, empty if they may be any text, and the field that gives it.

    It is in llguidance's dialect of Lark, which both engines understand. Whether it can be compiled is not checked. Raises
    `InputError` and `ApiError`.
    """
    is_text = response is None or response.type == "text"
    if structured is not None:
        if not is_text:
            raise InputError("structured_outputs", "given", "left out beside response_format")
        return _structured_grammar(structured), "structured_outputs"
    if response is None or is_text:
        return "", "response_format"
    schema = response.value
    if response.type == "json_schema":
        if response.json_schema is None:
            raise InputError("response_format.json_schema", "missing", "an object with a name and a schema")
        schema = response.json_schema.schema_
    elif schema is None:
        schema = ANY_OBJECT
    return f"start: {json_rule(schema)}", "response_format"


def _structured_grammar(structured: StructuredOutputs) -> str:
    shown = structured.model_dump(by_alias=True, exclude_unset=True)
    given = [name for name, value in shown.items() if value not in (None, False)]
    if len(given) != 1:
        limit = "an object with one of json, json_object, regex, choice and grammar"
        raise InputError("structured_outputs", shorten(shown), limit)
    match given[0]:
        case "json":
            return f"start: {json_rule(structured.json_)}"
        case "json_object":
            return f"start: {json_rule(ANY_OBJECT)}"
        case "regex":
            return f"start: {regex_rule(structured.regex or '')}"
        case "choice":
            choices = structured.choice or ()
            return f"start: {' | '.join(json.dumps(choice, ensure_ascii=False) for choice in choices)}"
        case "grammar":
            return structured.grammar or ""
    field = f"structured_outputs.{given[0]}"
    raise ApiError(400, "unsupported_parameter", f"{field} is not supported by this service", field)


def regex_rule(pattern: str) -> str:
    """Return the rule for a regular expression."""
    escaped = re.sub(
        r"(\\.)|/|\n", lambda part: part[1] or {"/": r"\/", "\n": r"\n"}[part[0]], pattern, flags=re.DOTALL
    )
    return f"/{escaped}/"


def _given(body: Generation, headers: Headers, name: str) -> tuple[float | None, str]:
    """Return a field, or else the number in its header, and which of them it is."""
    value = getattr(body, name) if name in body.model_fields_set else None
    return (value, name) if value is not None else (header_number(headers, HEADERS[name]), HEADERS[name])


def _target(body: Generation, headers: Headers, name: str, maximum: float) -> float | None:
    """Return a target in seconds from its field or header, which are in milliseconds; None: the service's own counts."""
    milliseconds, source = _given(body, headers, name)
    if milliseconds is None:
        return None
    if not 0 < milliseconds / 1000 <= maximum:
        raise InputError(source, f"{milliseconds:g}", f"more than 0 and at most {1000 * maximum:g} milliseconds")
    return milliseconds / 1000
