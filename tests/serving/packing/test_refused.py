"""Invalid requests to the packing service: each error names the field, in OpenAI's shape."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.request import PromptInput
from pliant.serving.packing.text import PromptReader
from tests.fixtures.packing.in_process import CONTEXT, error_of

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
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error" and error["message"]


def test_a_conversation_that_the_models_template_refuses_is_refused_by_name(service):
    messages = [{"role": "system", "content": "x"}]
    response = service.post("/chat/completions", {"model": "tales", "messages": messages})
    assert (response.status_code, error_of(response)["param"]) == (400, "messages")


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
    assert (response.status_code, error_of(response)["code"]) == (status, code)


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
