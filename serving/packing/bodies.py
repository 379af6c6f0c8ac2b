"""The bodies that the packing service takes, as models that parse and document them.

They follow OpenAI's documentation and, where that has nothing, vLLM's. Our own fields are `deadline`, `slo_ttft_ms`,
`slo_tpot_ms`, `utility` and `offline`. request.py has what depends on several fields, on headers or on settings.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, WithJsonSchema

from pliant.packing.scheduling.request import MAX_PRIORITY
from pliant.serving.http.bodies import BY_SHAPE, BY_TYPE, FIRST_ERROR, Body, Closed, Utf8, or_none, refused, shorten

MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_CHOICES = 128
MAX_STOPS = 16
STOP_CHARACTERS = 256  # of one stop string, at most
MAX_TOKENS_NAMED = 1024  # entries of logit_bias or stop_token_ids
MAX_LOGPROBS = 20  # likeliest tokens that are reported with each token
MAX_PENALTY = 2.0
MAX_BIAS = 100.0
ANY_OBJECT = {"type": "object"}
FORM_CHARACTERS = 64 * 1024  # of a schema, a regular expression, the choices or a grammar


def _token_ids(value: list[Any]) -> list[int]:
    if not set(map(type, value)) <= {int}:
        raise refused("a list of token ids")
    return value


def _function_only(kind: object) -> object:
    if kind != "function":
        raise refused("function", status=400, code="unsupported_parameter")
    return kind


def _arguments(value: Any) -> Any:
    """Return the arguments of a call, which come as JSON in a text, as chat templates expect them."""
    try:
        return json.loads(value) if isinstance(value, str) and value else value or {}
    except (ValueError, RecursionError):
        raise refused("a text with a JSON object") from None


def _form_text(text: str) -> str:
    if len(text) > FORM_CHARACTERS:
        raise refused(f"at most {FORM_CHARACTERS} characters", f"{len(text)} characters")
    return text


def _json_schema(value: Any) -> Any:
    if not isinstance(value, dict | bool):
        raise refused("a JSON schema, which is an object")
    try:
        _form_text(json.dumps(value))
    except (RecursionError, ValueError):
        raise refused("a JSON schema of reasonable depth", "nested too deep") from None
    return value


def _parsed_schema(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise refused("a JSON schema") from None


def _choices(value: list[str]) -> list[str]:
    _form_text("".join(value))
    return value


def _token_keys(biases: Any) -> Any:
    if isinstance(biases, dict) and len(biases) > MAX_TOKENS_NAMED:
        raise refused(f"of at most {MAX_TOKENS_NAMED} tokens", f"an object of {len(biases)}")
    for key in biases if isinstance(biases, dict) else ():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise refused("an object whose keys are token ids", f"with the key {shorten(key)}")
    return biases


def _text_part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") != "text":
        raise refused('an object of type "text"')
    return part


def _call(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        raise refused("an object with id, type and function")
    return call


_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
AnyIds = Annotated[list[Any], AfterValidator(_token_ids), WithJsonSchema(_IDS)]
TokenIds = Annotated[
    list[Any], Field(min_length=1), AfterValidator(_token_ids), WithJsonSchema({**_IDS, "minItems": 1})
]
Prompt = Annotated[Annotated[Utf8, Tag("<str>")] | Annotated[TokenIds, Tag("<list>")], BY_TYPE]
Prompts = Annotated[
    Annotated[Utf8, Tag("<str>")]
    | Annotated[TokenIds, Tag("<ids>")]
    | Annotated[list[Prompt], Field(min_length=1, fail_fast=True), Tag("<list>")],
    BY_SHAPE,
]
"""A text, token ids of the model's own tokenizer, or a list of these."""
NotEmpty = Annotated[str, Field(min_length=1)]
FunctionName = Annotated[str, Field(pattern="^[a-zA-Z0-9_.-]{1,64}$")]
JsonSchema = Annotated[Any, AfterValidator(_json_schema), WithJsonSchema({"type": "object"})]
FormText = Annotated[NotEmpty, AfterValidator(_form_text)]
Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Milliseconds = Annotated[float, Field(gt=0)]
OutputTokens = Annotated[int, Field(ge=0, json_schema_extra={"minimum": 1})]  # 0 where the prompt is repeated


class Part(Body):
    type: Literal["text"]
    text: Utf8


class CalledFunction(Body):
    name: FunctionName
    arguments: Annotated[
        dict[str, Any],
        BeforeValidator(_arguments),
        WithJsonSchema({"type": ["string", "object"], "description": "JSON of an object"}),
    ] = Field(default_factory=dict)


class Call(Body):
    """A call of a tool, as it was answered."""

    id: str = ""
    type: Any = Field("function", json_schema_extra={"enum": ["function"]})
    function: CalledFunction


Content = Annotated[
    Annotated[Utf8, Tag("<str>")]
    | Annotated[
        list[Annotated[Part, BeforeValidator(_text_part)]],
        FIRST_ERROR,
        AfterValidator(lambda parts: "".join([part.text for part in parts])),
        Tag("<list>"),
    ],
    BY_TYPE,
]
"""A message's content: a text, or parts, which are joined."""


Calls = Annotated[list[Annotated[Call, BeforeValidator(_call)]], FIRST_ERROR]


class Message(Body):
    """A message, with its content unless an assistant calls tools."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: Utf8 | None = None
    tool_calls: Annotated[Calls | None, BeforeValidator(or_none)] = Field(None, description="of assistants")
    tool_call_id: Utf8 | None = Field(None, description="the call whose result it is")
    reasoning_content: Utf8 | None = None
    thinking: Utf8 | None = None
    reasoning: Utf8 | None = None


class Function(Body):
    name: FunctionName
    description: Annotated[str | None, BeforeValidator(or_none)] = None
    parameters: Annotated[dict[str, Any] | None, BeforeValidator(or_none)] = Field(
        None, description="JSON schema of the arguments"
    )


class FunctionTool(Body):
    type: Annotated[Any, AfterValidator(_function_only), WithJsonSchema({"enum": ["function"]})] = "function"
    function: Function


class NamedSchema(Body):
    schema_: JsonSchema = Field(ANY_OBJECT, alias="schema")
    name: Any = Field(None, json_schema_extra={"type": "string"})
    strict: Any = Field(None, json_schema_extra={"type": "boolean"})


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    value: JsonSchema | None = Field(
        None, description="of json_object: a schema, as text-generation-inference takes it"
    )
    json_schema: NamedSchema | None = None


class StructuredOutputs(Body, extra="allow"):
    """One of its fields."""

    json_: Annotated[JsonSchema, BeforeValidator(_parsed_schema)] | None = Field(None, alias="json")
    json_object: Any = Field(None, json_schema_extra={"type": "boolean"})
    regex: FormText | None = None
    choice: Annotated[list[NotEmpty], Field(min_length=1, fail_fast=True), AfterValidator(_choices)] | None = None
    grammar: FormText | None = Field(None, description="llguidance's dialect of Lark")


class StreamOptions(Closed):
    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class ModelBody(Body):
    """What the bodies of all routes have."""

    model: str | None = Field(None, description="optional if only one is served")


class Generation(ModelBody):
    """The fields that completions and chats share."""

    whole: ClassVar[frozenset[str]] = frozenset(("stop", "stream_options"))

    max_tokens: OutputTokens | None = Field(None, description="of each output; default: as many as the context leaves")
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1, le=1 << 31, description="vLLM's; 0 or -1: all tokens")
    min_p: float = Field(
        0.0,
        ge=0,
        le=1,
        description="vLLM's: excludes tokens with less than this share of the likeliest one's probability",
    )
    repetition_penalty: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=False,
        description="vLLM's: divides positive scores of tokens in the prompt or output, and multiplies negative ones",
    )
    frequency_penalty: Penalty = 0.0
    presence_penalty: Penalty = 0.0
    logit_bias: (
        Annotated[
            dict[str, Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]],
            Field(max_length=MAX_TOKENS_NAMED),
            BeforeValidator(_token_keys),
        ]
        | None
    ) = Field(None, description="by token id", json_schema_extra={"propertyNames": {"pattern": "^[0-9]{1,9}$"}})
    min_tokens: int = Field(0, ge=0, description="vLLM's: nothing ends it before")
    stop_token_ids: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, max_length=MAX_TOKENS_NAMED, description="vLLM's"
    )
    ignore_eos: bool = Field(False, description="vLLM's: the model's end tokens end nothing")
    add_special_tokens: bool | None = Field(None, description="vLLM's: of the tokenizer")
    response_format: ResponseFormat | None = Field(None, description="outputs that are JSON, or JSON of a schema")
    structured_outputs: StructuredOutputs | None = Field(None, description="vLLM's: what outputs keep to")
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions | None = Field(None, description="for streams only")
    stop: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=STOP_CHARACTERS)]],
            Field(max_length=MAX_STOPS),
            BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
        ]
        | None
    ) = Field(None, description="a text or a list of texts")
    seed: int | None = Field(
        None, ge=-(1 << 63), le=(1 << 63) - 1, description="the same seed gives the same text, whatever else runs"
    )
    deadline: float | None = Field(
        None, gt=0, description="an extension: seconds from arrival; default: the header x-pliant-deadline, else none"
    )
    slo_ttft_ms: Milliseconds | None = Field(
        None,
        description="an extension: target of the milliseconds to the first token; default: x-slo-ttft-ms, a header",
    )
    slo_tpot_ms: Milliseconds | None = Field(
        None, description="an extension: target of the milliseconds a token behind it; default: x-slo-tpot-ms, a header"
    )
    utility: float = Field(
        1.0,
        ge=0,
        allow_inf_nan=False,
        description="an extension: worth of an output in time; default: the header x-pliant-utility",
    )
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="vLLM's: lower goes first")
    offline: bool = Field(False, description="an extension: one of a batch of requests that is needed as a whole")


class CompletionBody(Generation):
    prompt: Prompts
    echo: bool = False
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None, BeforeValidator(lambda top: None if top is False else top)
    ] = None
    best_of: int | None = Field(None, ge=1, le=MAX_CHOICES, description="at least n, which is its default")


class Conversation(Body):
    """What a chat template is given."""

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="vLLM's: variables of the chat template")
    tools: list[FunctionTool] | None = Field(None, max_length=MAX_TOOLS, fail_fast=True)


class ChatBody(Conversation, Generation):
    max_completion_tokens: OutputTokens | None = Field(None, description="max_tokens, by its newer name")
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MAX_LOGPROBS)
    tool_choice: Annotated[
        Annotated[Literal["none", "auto", "required"], Tag("<str>")] | Annotated[dict[str, Any], Tag("<dict>")], BY_TYPE
    ] = Field("auto", description="an object names a function: {type: function, function: {name: ...}}")
    parallel_tool_calls: bool = True


class TokenizeBody(ModelBody):
    add_special_tokens: bool | None = None
    return_token_strs: bool = False


class TokenizePrompt(TokenizeBody):
    prompt: Utf8


class TokenizeConversation(Conversation, TokenizeBody):
    pass


class DetokenizeBody(ModelBody):
    tokens: AnyIds
