"""Fields of a request are taken within their limits, which belong to them, and named with these otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.datastructures import Headers

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.packing.fields import FIELDS, IGNORED, NO_EFFECT, read_request
from serving.packing.settings import PackingSettings
from serving.packing.values import flag, whole

LIMITS = PackingSettings(max_texts=6, max_deadline=30.0)


@pytest.mark.parametrize(("value", "minimum", "maximum"), [(1, 1, 4), (4, 1, 4), (0, 0, 0), (10**9, 1, None)])
def test_a_whole_number_within_its_limits_is_taken(value, minimum, maximum):
    assert whole("n", value, minimum, maximum) == value


@pytest.mark.parametrize("value", [0, 5, -1, 2.0, True, "2", None])
def test_anything_else_is_named_with_the_limits(value):
    with pytest.raises(InputError, match=r"n is .*, but must be a whole number from 1 to 4"):
        whole("n", value, 1, 4)
    with pytest.raises(InputError, match="a whole number from 6 on"):
        whole("n", value, 6)


def test_a_flag_is_false_unless_it_is_there():
    assert (flag({}, "echo"), flag({"echo": False}, "echo"), flag({"echo": True}, "echo")) == (False, False, True)
    with pytest.raises(InputError, match="echo is 1, but must be true or false"):
        flag({"echo": 1}, "echo")


def complete(headers=(), prompt="Tell me", **fields):
    return read_request({"prompt": prompt, **fields}, Headers(dict(headers)), "prompt", LIMITS)


def chat(messages, **fields):
    return read_request({"messages": messages, **fields}, Headers(), "messages", LIMITS)


def say(content, **more):
    return [{"role": "user", "content": content, **more}]


def test_a_request_that_names_nothing_but_a_prompt_has_openais_defaults():
    request = complete()
    assert (request.model, request.choices, request.max_tokens, request.stops) == (None, 1, None, ())
    assert (request.stream, request.usage, request.echo, request.offline) == (False, False, False, False)
    assert (request.deadline, request.utility, request.max_tokens_name) == (None, 1.0, "max_tokens")
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)
    assert [prompt.text for prompt in request.prompts] == ["Tell me"]


def test_every_field_reaches_the_request():
    request = complete(
        model="tales",
        max_tokens=7,
        temperature=0.5,
        top_p=0.25,
        top_k=9,
        n=2,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        stop=["b", "a", "b"],
        seed=-5,
        deadline=12.5,
        utility=3,
        offline=True,
        echo=True,
    )
    assert (request.model, request.max_tokens, request.choices, request.stops) == ("tales", 7, 2, ("b", "a"))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.25, 9, -5)
    assert (request.stream, request.usage, request.echo, request.offline) == (True, True, True, True)
    assert (request.deadline, request.utility) == (12.5, 3.0)


def test_a_field_that_is_null_counts_as_left_out():
    usual = complete(seed=1)
    names = ("model", "max_tokens", "temperature", "n", "stop", "stream_options", "deadline", "suffix", "logprobs")
    assert complete(seed=1, **dict.fromkeys(names)) == usual
    with pytest.raises(InputError, match="prompt is missing, but must be given"):
        complete(prompt=None)


def test_outputs_of_a_request_without_a_seed_differ_from_one_to_the_next():
    assert complete().sampling.seed != complete().sampling.seed
    assert all(complete().sampling.seed >= 0 for _ in range(8))


def test_a_chats_limit_of_tokens_has_two_names_of_which_the_newer_counts_and_is_the_one_in_errors():
    request = chat(say("a"), max_tokens=5, max_completion_tokens=3)
    assert (request.max_tokens, request.max_tokens_name) == (3, "max_completion_tokens")
    assert chat(say("a"), max_tokens=5).max_tokens_name == "max_tokens"
    assert complete(max_completion_tokens=3).ignored == ("max_completion_tokens",)
    with pytest.raises(ApiError, match="echo is not supported"):
        chat(say("a"), echo=True)


@pytest.mark.parametrize("value", [{"n": 2, "prompt": ["a", "b", "c"]}, {"n": 6}])
def test_as_many_outputs_as_the_service_allows_are_taken(value):
    assert len(complete(**value).prompts) * complete(**value).choices == 6


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"n": 2, "prompt": ["a"] * 4}, "prompt times n is a list of 8, but must be at most 6"),
        ({"n": 7}, "prompt times n is a list of 7, but must be at most 6"),
        ({"prompt": ["a"] * 7}, "prompt is a list of 7, but must be at most 6"),
        ({"n": 129}, "n is 129, but must be a whole number from 1 to 128"),
    ],
)
def test_more_outputs_are_too_many(value, sentence):
    with pytest.raises((InputError, ApiError), match=sentence):
        complete(**value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"temperature": -0.01}, "temperature is -0.01, but must be from 0 to 2"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 1.01}, "top_p is 1.01, but must be more than 0 and at most 1"),
        ({"top_k": (1 << 31) + 1}, "top_k is 2147483649, but must be a whole number from -1 to 2147483648"),
        ({"seed": 1 << 63}, "seed is 9223372036854775808, but must be"),
        ({"seed": -(1 << 63) - 1}, "seed is -9223372036854775809, but must be"),
        ({"stop": ["x"] * 17}, "stop is a list of 17, but must be a list of at most 16"),
        ({"stop": ["a", "x" * 257]}, "stop is 257 characters, but must be at most 256 characters"),
        ({"stop": ""}, "a text or a list of texts, none of them empty"),
        ({"stop": {"a": 1}}, "a text or a list of texts"),
        ({"stream_options": {"include_usage": True}}, "left out unless stream is true"),
        ({"stream": True, "stream_options": []}, r"stream_options is \[\], but must be an object"),
        ({"stream": True, "stream_options": {"other": 1}}, "stream_options is 'other', but must be an object with inc"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "include_usage is 1, but must be true or false"),
        ({"deadline": 30.1}, "deadline is 30.1, but must be more than 0 and at most 30 seconds"),
        ({"model": 7}, "model is 7, but must be the name of a model"),
        ({"prompt": {"text": "a"}}, "a text, a list of token ids, or a list of these"),
        ({"prompt": ["a", 7]}, r"prompt\[1\] is 7, but must be a text"),
        ({"prompt": [[5, 6], []]}, r"prompt\[1\] is \[\], but must be a list of token ids"),
        ({"prompt": [[5, True]]}, r"prompt\[0\] is \[5, True\], but must be a list of token ids"),
        ({"prompt": "half \ud800 a pair"}, r"prompt is a text with the lone surrogate '\\ud800' at character 5"),
    ],
)
def test_a_field_beyond_its_limit_is_named_with_value_and_limit(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        complete(**fields)


def test_values_at_the_limits_are_taken():
    for fields in (
        {"temperature": 0, "top_p": 1, "top_k": 1 << 31, "seed": -(1 << 63)},
        {"temperature": 2, "top_p": 1e-9, "seed": (1 << 63) - 1, "deadline": 30},
        {"stop": [str(number) for number in range(16)], "utility": 0},
        {"stop": "x" * 256},
        {"stream": True, "stream_options": {}},
        {"stream": False, "stream_options": None, "stop": []},
    ):
        complete(**fields)


def test_deadline_and_utility_come_from_headers_where_no_field_says_otherwise():
    headers = {"x-pliant-deadline": "2.5", "x-pliant-utility": "4"}
    request = complete(headers)
    assert (request.deadline, request.utility) == (2.5, 4.0)
    request = complete(headers, deadline=1, utility=0.5)
    assert (request.deadline, request.utility) == (1.0, 0.5)
    for name, value, sentence in (
        ("x-pliant-deadline", "soon", "x-pliant-deadline is 'soon', but must be a number"),
        ("x-pliant-deadline", "31", "x-pliant-deadline is 31, but must be more than 0 and at most 30"),
        ("x-pliant-utility", "much", "x-pliant-utility is 'much', but must be a number"),
        ("x-pliant-utility", "-1", "utility is -1, but must be 0 or more"),
    ):
        with pytest.raises(InputError, match=sentence):
            complete({name: value})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"length_penalty": 0.5}, "unsupported_parameter"),
        ({"length_penalty": True}, "unsupported_parameter"),  # equal to 1, but no number
        ({"top_logprobs": 2}, "unsupported_parameter"),  # of chats
        ({"prompt_logprobs": 0}, "unsupported_parameter"),
        ({"tool_choice": "required"}, "unsupported_parameter"),
        ({"reasoning_effort": "low"}, "unsupported_parameter"),
    ],
)
def test_what_would_change_the_output_and_is_not_supported_is_refused_by_name(fields, code):
    (name,) = fields
    with pytest.raises(ApiError) as refused:
        complete(**fields)
    assert (refused.value.status, refused.value.code, refused.value.field) == (400, code, name[:80])


def test_what_has_no_effect_is_taken():
    usual = complete(seed=1)
    for fields in (
        {"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "logprobs": False, "best_of": 1},
        {"suffix": "", "tools": [], "tool_choice": "auto", "parallel_tool_calls": False, "modalities": ["text"]},
        {"parallel_tool_calls": True},
        {"length_penalty": 1.0, "use_beam_search": False, "priority": 0, "skip_special_tokens": True},
        {"top_logprobs": 0, "repetition_penalty": 1, "min_p": 0, "top_k": -1, "ignore_eos": False, "min_tokens": 0},
        {"tool_choice": "none", "functions": [], "function_call": "auto", "response_format": {"type": "text"}},
        {"user": "me", "metadata": {"a": 1}, "store": True, "service_tier": "flex", "prompt_cache_key": "k"},
    ):
        assert complete(seed=1, **fields) == usual


def test_prompts_are_texts_or_token_ids_alone_or_in_lists():
    shapes = [
        ("a", [("prompt", "a", ())]),
        ([5, 6], [("prompt", "", (5, 6))]),
        (["a", "b"], [("prompt[0]", "a", ()), ("prompt[1]", "b", ())]),
        ([[5], "b", [6, 7]], [("prompt[0]", "", (5,)), ("prompt[1]", "b", ()), ("prompt[2]", "", (6, 7))]),
    ]
    for value, expected in shapes:
        prompts = complete(prompt=value).prompts
        assert [(prompt.name, prompt.text, tuple(prompt.ids)) for prompt in prompts] == expected


def test_messages_keep_role_text_and_name_and_parts_are_joined():
    parts = [{"type": "text", "text": "Tell "}, {"type": "text", "text": "me"}]
    conversation = [
        {"role": "system", "content": "Be short.", "name": None, "tool_calls": None},
        {"role": "user", "content": parts, "name": "ann", "audio": []},
    ]
    (prompt,) = chat(conversation).prompts
    assert prompt.name == "messages"
    assert list(prompt.messages) == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Tell me", "name": "ann"},
    ]


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ("Tell me", "messages is 'Tell me', but must be a list of at least one message"),
        ([], r"messages is \[\], but must be a list of at least one message"),
        (say("a") * 4097, "messages is a list of 4097, but must be of at most 4096 messages"),
        (["a"], r"messages\[0\] is 'a', but must be an object with role and content"),
        ([*say("a"), {"content": "a"}], r"messages\[1\].role is None, but must be one of system, developer, user, ass"),
        (say(7), r"messages\[0\].content is 7, but must be a text"),
        (say("a", name=7), r"messages\[0\].name is 7, but must be a text"),
        (say([{"type": "text", "text": "a"}, {"type": "image_url"}]), r"content\[1\] is .* an object of type"),
        (say(["a"]), r"content\[0\] is 'a', but must be an object of type"),
        (say([{"type": "text", "text": 7}]), r"content\[0\].text is 7, but must be a text"),
    ],
)
def test_a_message_that_cannot_be_read_is_named(messages, sentence):
    with pytest.raises(InputError, match=sentence):
        chat(messages)


def test_a_message_with_what_is_not_supported_is_refused_by_name():
    with pytest.raises(ApiError, match=r"messages\[0\] has 'audio', which is not supported") as refused:
        chat(say("a", audio={"id": "1"}))
    assert (refused.value.status, refused.value.code) == (400, "unsupported_parameter")


def test_as_many_messages_as_are_allowed_are_taken():
    assert len(chat(say("a") * 4096).prompts[0].messages) == 4096


def test_fields_that_never_change_an_output_are_passed_over_and_null_is_no_field():
    names = (
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "prediction",
        "request_id",
    )
    assert complete(seed=1, **dict.fromkeys(names, "anything")) == complete(seed=1)
    unsupported = (
        "top_logprobs",
        "audio",
        "reasoning_effort",
        "verbosity",
        "web_search_options",
        "chat_template",
    )
    assert complete(seed=1, **dict.fromkeys(unsupported)) == complete(seed=1)
    for name in unsupported:
        with pytest.raises(ApiError, match=f"^{name} is not supported by this service$"):
            complete(**{name: 0.5})


def test_one_request_may_ask_for_128_choices_where_the_service_allows_as_many():
    limits = PackingSettings(max_texts=128)
    fields = {"prompt": "a", "n": 128}
    assert read_request(fields, Headers(), "prompt", limits).choices == 128
    with pytest.raises(InputError, match="n is 129, but must be a whole number from 1 to 128"):
        read_request({**fields, "n": 129}, Headers(), "prompt", limits)


def test_a_conversation_may_have_4096_messages():
    assert len(chat(say("a") * 4096).prompts[0].messages) == 4096


def test_a_seed_that_is_drawn_is_never_negative_and_has_many_bits():
    seeds = [complete().sampling.seed for _ in range(64)]
    assert len(set(seeds)) == 64 and min(seeds) >= 0 and max(seeds) > 2**50


def test_a_field_that_nobody_knows_is_named_or_refused_where_the_service_is_strict():
    usual = complete(seed=1)
    request = complete(seed=1, temprature=0.5, **{"x" * 200: 1})
    assert request.ignored == ("temprature", "x" * 80)
    assert replace(request, ignored=()) == usual
    with pytest.raises(ApiError, match="'temprature' is not a field of this route") as refused:
        read_request({"prompt": "a", "temprature": 1}, Headers(), "prompt", replace(LIMITS, strict_fields=True))
    assert (refused.value.status, refused.value.code, refused.value.field) == (400, "unknown_parameter", "temprature")


def test_no_field_is_both_done_and_not_done():
    for prompt in ("prompt", "messages"):
        assert not set(FIELDS[prompt]) & set(IGNORED)
        for name in set(FIELDS[prompt]) & set(NO_EFFECT):
            other = FIELDS["messages" if prompt == "prompt" else "prompt"]
            assert name not in other, f"{name} is done by both routes"


def test_a_template_gets_the_variables_of_a_request():
    (prompt,) = chat(say("a"), chat_template_kwargs={"enable_thinking": False}, add_special_tokens=True).prompts
    assert (prompt.template, prompt.special) == ({"enable_thinking": False}, True)
    with pytest.raises(InputError, match="chat_template_kwargs is 7, but must be an object"):
        chat(say("a"), chat_template_kwargs=7)


def test_a_stream_may_say_its_numbers_of_tokens_in_every_chunk():
    request = complete(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert (request.usage, request.continuous_usage) == (True, True)


def test_targets_come_in_milliseconds_from_fields_or_headers():
    assert (complete().ttft, complete().tpot) == (None, None)
    request = complete(slo_ttft_ms=250, slo_tpot_ms=12.5)
    assert (request.ttft, request.tpot) == (0.25, 0.0125)
    request = complete({"x-slo-ttft-ms": "500", "x-slo-tpot-ms": "40"}, slo_ttft_ms=100)
    assert (request.ttft, request.tpot) == (0.1, 0.04)
    for fields, headers, sentence in (
        ({"slo_ttft_ms": 0}, {}, "slo_ttft_ms is 0, but must be more than 0 and at most 30000 milliseconds"),
        ({"slo_tpot_ms": float("nan")}, {}, "slo_tpot_ms is nan"),
        ({"slo_tpot_ms": 30_001}, {}, "slo_tpot_ms is 30001, but must be"),
        ({"slo_ttft_ms": "1"}, {}, "slo_ttft_ms is '1', but must be a number"),
        ({}, {"x-slo-ttft-ms": "soon"}, "x-slo-ttft-ms is 'soon', but must be a number"),
        ({}, {"x-slo-tpot-ms": "-1"}, "x-slo-tpot-ms is -1, but must be more than 0"),
    ):
        with pytest.raises(InputError, match=sentence):
            complete(headers, **fields)
