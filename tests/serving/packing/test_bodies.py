"""Bodies of completions and chats are taken within their limits, which the OpenAPI page names, and refused by name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from starlette.datastructures import Headers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.chat import Tool
from pliant.packing.engine.submission import Sampling
from pliant.serving.http.api_errors import ApiError, api_error_of
from pliant.serving.packing.api import create_app
from pliant.serving.packing.bodies import ChatBody, CompletionBody
from pliant.serving.packing.request import IGNORED, NO_TOOLS, PromptInput, ToolRequest, read_request
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.packing.text import PromptReader
from tests.fixtures.documented import body_schema, check_body
from tests.fixtures.packing.in_process import CONTEXT
from tests.fixtures.packing.in_process import error_of as openai_error

LIMITS = PackingSettings(max_texts=6, max_deadline=30.0)


def complete(headers=(), prompt="Tell me", limits=LIMITS, **fields):
    return read_request({"prompt": prompt, **fields}, Headers(dict(headers)), CompletionBody, limits)


def chat(messages, **fields):
    return read_request({"messages": messages, **fields}, Headers(), ChatBody, LIMITS)


def say(content="a", **more):
    return [{"role": "user", "content": content, **more}]


def error_of(read, *arguments, **fields) -> ApiError:
    with pytest.raises((InputError, ApiError)) as refused:
        read(*arguments, **fields)
    return api_error_of(refused.value)


def tool(name="add", **changes) -> dict:
    return {"type": "function", "function": {"name": name, "description": "Add.", "parameters": {}, **changes}}


def calls(**function):
    return [{"function": {"name": "add", **function}}]


def test_every_field_reaches_the_request():
    sampling = {
        "temperature": 0.5, "top_p": 0.25, "top_k": 9, "min_p": 0.25, "repetition_penalty": 1.5, "frequency_penalty": -2.0,
        "presence_penalty": 2.0, "min_tokens": 3, "ignore_eos": True, "seed": -5, "logprobs": 2,
    }  # fmt: skip
    rest = {
        "model": "tales", "max_tokens": 7, "logit_bias": {"5": -100, "0": 7.5}, "stop_token_ids": [9, 4, 9], "n": 2,
        "best_of": 2, "add_special_tokens": False, "stream": True, "stop": ["b", "a", "b"], "deadline": 12.5, "utility": 3,
        "slo_ttft_ms": 250, "slo_tpot_ms": 12.5, "priority": -4, "offline": True, "echo": True,
    }  # fmt: skip
    options = {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False}
    request = complete(**sampling, **rest, stream_options=options)
    assert (request.model, request.max_tokens, request.choices, request.stops) == ("tales", 7, 2, ("b", "a"))
    assert (request.stream, request.usage, request.continuous_usage, request.echo) == (True, True, True, True)
    assert (request.deadline, request.utility, request.priority, request.offline) == (12.5, 3.0, -4, True)
    assert (request.ttft, request.tpot, request.prompts[0].special, request.logprobs) == (0.25, 0.0125, False, True)
    biases = ((5, -100.0), (0, 7.5))
    assert request.sampling == Sampling(**sampling, logit_bias=biases, stop_tokens=(9, 4), prompt_logprobs=2)


@pytest.mark.parametrize(
    "fields",
    [
        dict.fromkeys(("model", "max_tokens", "temperature", "n", "stop", "stream_options", "deadline", "logprobs")),
        {"presence_penalty": 0, "logit_bias": {}, "logprobs": False, "best_of": 1, "stop": [], "stop_token_ids": []},
        {"suffix": "", "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "modalities": ["text"]},
        {"length_penalty": 1.0, "use_beam_search": False, "priority": 0, "skip_special_tokens": True},
        {"top_logprobs": 0, "repetition_penalty": 1, "min_p": 0, "top_k": -1, "ignore_eos": False, "min_tokens": 0},
        {"tool_choice": "none", "functions": [], "function_call": "auto", "response_format": {"type": "text"}},
        {"stream": False, "stream_options": None, "suffix": None, "audio": None},
        dict.fromkeys(IGNORED, "anything"),
    ],
)
def test_null_and_what_has_no_effect_is_taken(fields):
    assert complete(seed=1, **fields) == complete(seed=1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt": [5, 6]}, [("prompt", "", (5, 6))]),
        ({"prompt": ["a", "b"]}, [("prompt[0]", "a", ()), ("prompt[1]", "b", ())]),
        ({"prompt": [[5], "b"]}, [("prompt[0]", "", (5,)), ("prompt[1]", "b", ())]),
    ],
)
def test_prompts_are_texts_or_token_ids_alone_or_in_lists(fields, expected):
    assert [(prompt.name, prompt.text, prompt.ids) for prompt in complete(**fields).prompts] == expected


REFUSED_COMPLETIONS = [  # what the documented limits of single fields do not show
    *(({"prompt": value}, "prompt") for value in (None, 7, [], {"text": "a"}, [5, "a"], "half \ud800 a pair")),
    *(({"prompt": value}, "prompt[0]") for value in ([True, 5], [[5, True]])),
    *(({"prompt": value}, "prompt[1]") for value in (["a", 7], [[5], []])),
    *(({"max_tokens": value}, "max_tokens") for value in (0, 2.0, True)),
    *(({"temperature": value}, "temperature") for value in (-0.01, float("nan"), "1", True, 10**400)),
    *(({"seed": value}, "seed") for value in (1 << 63, -(1 << 63) - 1, 1.5)),
    ({"repetition_penalty": float("inf")}, "repetition_penalty"),
    *(({"logit_bias": value}, "logit_bias") for value in ({"tea": 1}, {str(token): 1 for token in range(1025)})),
    ({"logit_bias": {"5": 101}}, "logit_bias[5]"),
    ({"stop_token_ids": [5, -1]}, "stop_token_ids[1]"),
    ({"min_tokens": 4, "max_tokens": 3}, "min_tokens"),
    *(({"stop": value}, "stop") for value in (["x"] * 17, ["a", "x" * 257], "", {"a": 1}, ["a", 7])),
    *(({"best_of": 1, "n": 2}, "best_of"), ({"best_of": 2, "stream": True}, "best_of")),
    *(({"stream_options": value}, "stream_options") for value in ({"include_usage": True}, {})),
    *(({"stream": True, "stream_options": value}, "stream_options") for value in ([], {"other": 1})),
    *(({"deadline": value}, "deadline") for value in (0, 30.1, float("nan"))),
    *(({"slo_ttft_ms": value}, "slo_ttft_ms") for value in (5e-324, 30_001)),
    ({"stream": 1}, "stream"),
]
UNSUPPORTED = [
    *((complete, {"length_penalty": value}, "length_penalty") for value in (0.5, True)),  # equal to 1, but no number
    *((complete, {name: value}, name) for name, value in (("top_logprobs", 2), ("prompt_logprobs", 0))),  # of chats
    *((complete, {name: value}, name) for name, value in (("tool_choice", "required"), ("tools", [tool()]))),
    (complete, {"reasoning_effort": "low"}, "reasoning_effort"),
    (chat, {"messages": say(), "echo": True}, "echo"),
    (chat, {"messages": say(audio={"id": "1"})}, "messages[0]"),
    (chat, {"messages": say(), "tools": [{"type": "web_search", "function": {"name": "a"}}]}, "tools[0].type"),
]
DEEP: dict = {}
for _ in range(100_000):
    DEEP = {"items": DEEP}
CALLED = "messages[0].tool_calls[0].function.arguments"
REFUSED_CHATS = [
    *(({"messages": value}, "messages") for value in (None, "Tell me", [], say() * 4097)),
    ({"messages": ["a"]}, "messages[0]"),
    ({"messages": [*say(), {"content": "a"}]}, "messages[1].role"),
    ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": say(7)}, "messages[0].content"),
    ({"messages": say("\ud800")}, "messages[0].content"),
    ({"messages": say(name=7)}, "messages[0].name"),
    ({"messages": say([{"type": "text", "text": "a"}, {"type": "image_url"}])}, "messages[0].content[1]"),
    ({"messages": say(["a"])}, "messages[0].content[0]"),
    ({"messages": say([{"type": "text", "text": 7}])}, "messages[0].content[0].text"),
    ({"messages": say(tool_calls=calls())}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": "add"}]}, "messages[0].tool_calls"),
    *(
        ({"messages": [{"role": "assistant", "tool_calls": calls(arguments=bad)}]}, CALLED)
        for bad in ("{", "7", "[" * 50_000)
    ),
    ({"messages": [{"role": "tool", "content": "3", "tool_call_id": 7}]}, "messages[0].tool_call_id"),
    ({"chat_template_kwargs": 7}, "chat_template_kwargs"),
    ({"logprobs": 1}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
    *(({"tools": value}, "tools") for value in ("add", [tool()] * 129, [tool(), tool()])),
    ({"tools": [tool(description="x" * 262_144)]}, "tools"),
    ({"tools": [tool(parameters=DEEP)]}, "tools"),
    ({"tools": ["add"]}, "tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [tool(name="a b")]}, "tools[0].function.name"),
    ({"tools": [tool(name="a" * 65)]}, "tools[0].function.name"),
    ({"tools": [tool(description=7)]}, "tools[0].function.description"),
    ({"tools": [tool(parameters="a")]}, "tools[0].function.parameters"),
    *(
        ({"tools": [tool()], "tool_choice": value}, "tool_choice")
        for value in ("some", {"function": {"name": "add"}}, {"type": "function", "function": {"name": "other"}}, 7)
    ),
    ({"tool_choice": "required"}, "tool_choice"),
]


@pytest.mark.parametrize(("fields", "name"), REFUSED_COMPLETIONS)
def test_a_field_of_a_completion_outside_its_limit_is_named(fields, name):
    error = error_of(complete, **fields)
    assert (error.status, error.code, error.field) == (422, "invalid", name)
    assert str(error).startswith(f"{name} is ") and ", but must be " in str(error)


@pytest.mark.parametrize(("fields", "name"), REFUSED_CHATS)
def test_a_field_of_a_chat_outside_its_limit_is_named(fields, name):
    error = error_of(chat, **{"messages": say(), **fields})
    assert (error.status, error.code, error.field) == (422, "invalid", name)


@pytest.mark.parametrize(("read", "fields", "name"), UNSUPPORTED)
def test_what_would_change_the_output_and_is_not_supported_is_refused_by_name(read, fields, name):
    error = error_of(read, **fields)
    assert (error.status, error.code, error.field) == (400, "unsupported_parameter", name)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"n": 2, "prompt": ["a"] * 4}, "prompt times n"),
        ({"best_of": 2, "prompt": ["a"] * 4}, "prompt times best_of"),
        ({"n": 7}, "prompt times n"),
        ({"prompt": ["a"] * 7}, "prompt"),
    ],
)
def test_more_outputs_than_the_service_allows_are_too_many(fields, name):
    error = error_of(complete, **fields)
    assert (error.status, error.code, error.field) == (413, "too_many_texts", name)
    assert complete(n=2, prompt=["a", "b", "c"]).choices == 2


def test_a_field_that_nobody_knows_is_named_or_refused_where_the_service_is_strict():
    request = complete(seed=1, temprature=0.5, max_completion_tokens=3, **{"x" * 200: 1})
    assert request.ignored == ("temprature", "max_completion_tokens", "x" * 80)
    assert replace(request, ignored=()) == complete(seed=1)
    error = error_of(complete, limits=LIMITS.replace(strict_fields=True), temprature=1)
    assert (error.status, error.code, error.field) == (400, "unknown_parameter", "temprature")


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("x-pliant-deadline", "soon", "x-pliant-deadline"),
        ("x-pliant-deadline", "31", "x-pliant-deadline"),
        ("x-pliant-utility", "much", "x-pliant-utility"),
        ("x-pliant-utility", "-1", "x-pliant-utility"),
        ("x-slo-ttft-ms", "soon", "x-slo-ttft-ms"),
        ("x-slo-tpot-ms", "-1", "x-slo-tpot-ms"),
    ],
)
def test_a_header_outside_its_limit_is_named(name, value, field):
    assert error_of(complete, {name: value}).field == field


def test_headers_count_where_no_field_says_otherwise():
    headers = {"x-pliant-deadline": "2.5", "x-pliant-utility": "4", "x-slo-ttft-ms": "500", "x-slo-tpot-ms": "40"}
    request = complete(headers)
    assert (request.deadline, request.utility, request.ttft, request.tpot) == (2.5, 4.0, 0.5, 0.04)
    request = complete(headers, deadline=1, utility=0.5, slo_ttft_ms=100, slo_tpot_ms=20)
    assert (request.deadline, request.utility, request.ttft, request.tpot) == (1.0, 0.5, 0.1, 0.02)


def test_seeds_that_are_drawn_differ_and_are_never_negative():
    seeds = [complete().sampling.seed for _ in range(64)]
    assert len(set(seeds)) == 64 and min(seeds) >= 0


def test_a_chats_limit_of_tokens_has_two_names_of_which_the_newer_counts_and_is_the_one_in_errors():
    request = chat(say(), max_tokens=5, max_completion_tokens=3)
    assert (request.max_tokens, request.max_tokens_name) == (3, "max_completion_tokens")
    assert chat(say(), max_tokens=5).max_tokens_name == "max_tokens"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (complete(), (False, -1, -1)),
        (complete(logprobs=0), (True, 0, -1)),
        (complete(logprobs=1, echo=True, max_tokens=0), (True, 1, 1)),
        (complete(best_of=2), (False, 0, -1)),
        (chat(say(), logprobs=True), (True, 0, -1)),
        (chat(say(), logprobs=True, top_logprobs=20), (True, 20, -1)),
        (chat(say(), logprobs=False, top_logprobs=0), (False, -1, -1)),
    ],
)
def test_log_probabilities_are_a_number_for_completions_and_a_flag_with_a_number_for_chats(request_, expected):
    sampling = request_.sampling
    assert (request_.logprobs, sampling.logprobs, sampling.prompt_logprobs) == expected


def test_a_length_is_known_where_nothing_ends_an_output_before_its_limit():
    assert complete(ignore_eos=True).known_length and complete(max_tokens=0, echo=True).known_length
    for fields in ({}, {"ignore_eos": True, "stop": "x"}, {"ignore_eos": True, "stop_token_ids": [4]}):
        assert not complete(**fields).known_length


def test_messages_keep_their_fields_in_order_and_parts_are_joined():
    parts = [{"type": "text", "text": "Tell "}, {"type": "text", "text": "me"}]
    call = {"type": "function", "id": "c1", "function": {"arguments": '{"a": 3}', "name": "add", "more": 1}}
    conversation = [
        {"role": "system", "content": "Be short.", "name": None, "tool_calls": None},
        {"name": "ann", "role": "user", "content": parts, "audio": []},
        {"role": "assistant", "content": None, "thinking": "Hm.", "tool_calls": [call, *calls(arguments="")]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    (prompt,) = chat(conversation, chat_template_kwargs={"a": 1}, add_special_tokens=True).prompts
    assert (prompt.name, prompt.template, prompt.special) == ("messages", {"a": 1}, True)
    read = {**call, "function": {**call["function"], "arguments": {"a": 3}}}
    expected = [
        {"role": "system", "content": "Be short."},
        {"name": "ann", "role": "user", "content": "Tell me"},
        {"role": "assistant", "thinking": "Hm.", "tool_calls": [read, *calls(arguments={})]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
    ]
    assert [list(message.items()) for message in prompt.messages] == [list(message.items()) for message in expected]


ADD, STOP = Tool("add", "Add.", {}), Tool("stop", "", {})
BOTH = [tool(), {"function": {"name": "stop", "parameters": []}}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": []}, NO_TOOLS),
        ({"tools": BOTH}, ToolRequest((ADD, STOP), (ADD, STOP), False, True)),
        ({"tools": BOTH, "tool_choice": "none"}, NO_TOOLS),
        ({"tools": BOTH, "tool_choice": "required"}, ToolRequest((ADD, STOP), (ADD, STOP), True, True)),
        ({"tools": BOTH, "parallel_tool_calls": False}, ToolRequest((ADD, STOP), (ADD, STOP), False, False)),
        (
            {"tools": BOTH, "tool_choice": {"type": "function", "function": {"name": "stop"}}},
            ToolRequest((ADD, STOP), (STOP,), True, False),
        ),
    ],
)
def test_tools_and_the_choice_among_them_are_read(fields, expected):
    assert chat(say(), **fields).tools == expected


@pytest.mark.parametrize(
    ("path", "kind", "usual"),
    [("/completions", CompletionBody, {"prompt": "A tale"}), ("/chat/completions", ChatBody, {"messages": say()})],
)
def test_a_request_is_taken_within_the_documented_limits_of_its_fields(path, kind, usual, tmp_path):
    def read(fields):
        try:
            request = read_request(fields, Headers(), kind, PackingSettings())
        except (InputError, ApiError) as error:
            return api_error_of(error).status, str(error)
        # A name says which field is to blame, and the seed is drawn where none is given.
        return 200, replace(request, max_tokens_name="", sampling=replace(request.sampling, seed=0))

    schema = body_schema(create_app(tmp_path), path)
    assert check_body(schema, usual, read, {"prompt", "messages", "top_logprobs", "tools", "tool_choice", "seed"}) == {
        422
    }
    assert set(schema["properties"]) == set(kind.model_fields)


REFUSED_FIELDS = [
    ({"max_tokens": 10_000}, "max_tokens", 400, "context_length_exceeded"),
    ({"prompt": "tea " * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": "t" * 100_000}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": [5] * CONTEXT}, "prompt", 400, "context_length_exceeded"),
    ({"prompt": ""}, "prompt", 400, "invalid_value"),
    ({"prompt": [10_000]}, "prompt", 400, "invalid_value"),
    ({"prompt": [-1]}, "prompt", 400, "invalid_value"),
    ({"prompt": ["tea"] * 300}, "prompt", 400, "too_many_texts"),
    ({"model": "gpt"}, "model", 404, "model_not_found"),
    ({"n": 0}, "n", 400, "invalid_value"),
    ({"logit_bias": {"300": 1}}, "logit_bias", 400, "invalid_value"),
    ({"stop_token_ids": [300]}, "stop_token_ids", 400, "invalid_value"),
    ({"suffix": "end"}, "suffix", 400, "unsupported_parameter"),
]


@pytest.mark.parametrize(("fields", "param", "status", "code"), REFUSED_FIELDS)
def test_a_field_outside_its_limit_is_refused_by_name(service, fields, param, status, code):
    response = service.complete(**fields)
    error = openai_error(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error" and error["message"]


def test_a_conversation_that_the_models_template_refuses_is_refused_by_name(service):
    messages = [{"role": "system", "content": "x"}]
    response = service.post("/chat/completions", {"model": "tales", "messages": messages})
    assert (response.status_code, openai_error(response)["param"]) == (400, "messages")


BODIES = [
    (b"{", 400, "malformed"),
    (b"[]", 400, "malformed"),
    (b"\xff\xfe", 400, "malformed"),
    (b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400, "malformed"),
    (b'{"prompt": "a", "prompt": "b"}', 400, "invalid_value"),
    (b'{"prompt": "\\ud800"}', 400, "invalid_value"),
    (b'{"prompt": "' + b"a" * 300_000 + b'"}', 413, "body_too_large"),
]


@pytest.mark.parametrize(("body", "status", "code"), BODIES)
def test_a_body_that_is_no_request_is_an_error_in_openais_shape(service, body, status, code):
    response = service.post("/completions", body)
    assert (response.status_code, openai_error(response)["code"]) == (status, code)


WORDS = ("a", "b", "c", "tell")
SHORT = 6


def reader(vocabulary: int | None = None, special: bool = False, template: str = "") -> PromptReader:
    """A reader of a tokenizer of words, which may put <s> before every text."""
    words = Tokenizer(models.WordLevel({word: id for id, word in enumerate((*WORDS, "<s>"))}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        words.add_special_tokens(["<s>"])
        words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", len(WORDS))])
    words.enable_truncation(2)  # as a tokenizer may come; whole prompts are read all the same
    words.enable_padding(length=4)
    config = json.dumps({} if vocabulary is None else {"vocab_size": vocabulary})
    return PromptReader(Generator("g", config, words.to_str(), template, SHORT, (), "", {}), SHORT)


@pytest.mark.parametrize("ids", [False, True])
def test_a_prompt_leaves_at_least_one_token_for_the_output(ids):
    def prompt(length):
        return PromptInput("prompt[1]", ids=(1,) * length) if ids else PromptInput("prompt[1]", text="b " * length)

    assert len(reader().read(prompt(SHORT - 1)).ids) == SHORT - 1
    sentence = r"prompt\[1\] is 6 tokens, but must be at most 5 tokens, to leave one for the output"
    with pytest.raises(ApiError, match=sentence) as refused:
        reader().read(prompt(SHORT))
    error = refused.value
    assert (error.status, error.code, error.field) == (400, "context_length_exceeded", "prompt[1]")


@pytest.mark.parametrize(("vocabulary", "last"), [(None, len(WORDS)), (10, 9)])
def test_ids_must_be_of_the_vocabulary(vocabulary, last):
    read = reader(vocabulary).read
    assert read(PromptInput("prompt", ids=(0, last))).ids == (0, last)
    for id in (last + 1, -1):
        with pytest.raises(InputError, match=f"prompt is with the token {id}, but must be of tokens from 0 to {last}"):
            read(PromptInput("prompt", ids=(0, id)))


def test_a_texts_special_tokens_are_the_tokenizers_and_a_conversations_are_the_templates():
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}tell"
    talk = PromptInput("messages", messages=({"role": "user", "content": "a b"}, {"role": "user", "content": "b"}))
    text = PromptInput("prompt", text="a b")
    special = len(WORDS)
    read = reader(None, True, template).read
    assert (read(text).ids, read(text).text, read(text).echo) == ((special, 0, 1), "a b", "a b")
    assert (read(talk).ids, read(talk).echo) == ((0, 1, 1, 3), "a b b tell")
    plain = reader(None, True).read(talk)
    assert (plain.ids, plain.text, plain.echo) == ((special, 0, 1, 1), "a b b", "a b\nb")
    ids = reader(None, True).read(PromptInput("prompt", ids=(special, 1)))
    assert (ids.ids, ids.text, ids.echo) == ((special, 1), "b", "b")
