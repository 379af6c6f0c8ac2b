"""Prompts become tokens that leave room for an output, and what does not fit is named with the limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.catalog import ServedGenerator
from pliant.serving.packing.reading import MIN_TOKEN_CHARACTERS, PromptReader
from pliant.serving.packing.request import PromptInput

WORDS = ("a", "b", "c", "tell")
CONTEXT = 6


def reader(vocabulary: int | None = None, tokenizer: str | None = None, context: int = CONTEXT) -> PromptReader:
    words = Tokenizer(models.WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.enable_truncation(2)  # as a tokenizer may come; whole prompts are read all the same
    words.enable_padding(length=4)
    config = json.dumps({} if vocabulary is None else {"vocab_size": vocabulary})
    text = words.to_str() if tokenizer is None else tokenizer
    return PromptReader(ServedGenerator(Path(), 1, "d", config, text, "", context, ()), context)


@pytest.mark.parametrize("ids", [False, True])
def test_a_prompt_leaves_at_least_one_token_for_the_output(ids):
    def prompt(length):
        return PromptInput("prompt[1]", ids=(1,) * length) if ids else PromptInput("prompt[1]", text="b " * length)

    assert len(reader().read(prompt(CONTEXT - 1)).ids) == CONTEXT - 1
    sentence = r"prompt\[1\] is 6 tokens, but must be at most 5 tokens, to leave one for the output"
    with pytest.raises(ApiError, match=sentence) as refused:
        reader().read(prompt(CONTEXT))
    assert (refused.value.status, refused.value.code, refused.value.field) == (
        400,
        "context_length_exceeded",
        "prompt[1]",
    )


def test_a_text_that_cannot_fit_is_refused_by_its_characters_before_it_is_tokenized():
    longest = CONTEXT * MIN_TOKEN_CHARACTERS
    assert reader().read(PromptInput("prompt", text="b" + " " * (longest - 1))).ids == (1,)
    with pytest.raises(ApiError, match=f"prompt is {longest + 1} characters, but must be at most 5 tokens"):
        reader().read(PromptInput("prompt", text="b" + " " * longest))


@pytest.mark.parametrize(("vocabulary", "last"), [(None, len(WORDS) - 1), (10, 9)])
def test_ids_must_be_of_the_vocabulary(vocabulary, last):
    read = reader(vocabulary).read
    assert read(PromptInput("prompt", ids=(0, last))).ids == (0, last)
    for id in (last + 1, -1):
        with pytest.raises(InputError, match=f"prompt is with the token {id}, but must be of tokens from 0 to {last}"):
            read(PromptInput("prompt", ids=(0, id)))


def test_an_output_may_have_what_the_prompt_leaves_and_no_more():
    reading = reader()
    tokens = reading.read(PromptInput("prompt", text="a b"))
    assert reading.max_new_tokens(tokens, None, "max_tokens") == CONTEXT - 2
    assert [reading.max_new_tokens(tokens, count, "max_tokens") for count in (1, CONTEXT - 2)] == [1, CONTEXT - 2]
    sentence = "max_completion_tokens is 5, but must be at most 4: the prompt has 2 of 6 tokens"
    with pytest.raises(ApiError, match=sentence) as refused:
        reading.max_new_tokens(tokens, CONTEXT - 1, "max_completion_tokens")
    assert (refused.value.status, refused.value.field) == (400, "max_completion_tokens")


def with_special_tokens(template: str = "") -> PromptReader:
    """A reader whose tokenizer puts <s> before every text."""
    vocabulary = {word: index for index, word in enumerate((*WORDS, "<s>"))}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(["<s>"])
    words.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", len(WORDS))])
    return PromptReader(ServedGenerator(Path(), 1, "d", "{}", words.to_str(), template, 20, ()), 20)


def test_a_texts_special_tokens_are_the_tokenizers_and_a_conversations_are_the_templates():
    template = "{% for message in messages %}{{ message['content'] }} {% endfor %}tell"
    talk = PromptInput("messages", messages=({"role": "user", "content": "a b"}, {"role": "user", "content": "b"}))
    text = PromptInput("prompt", text="a b")
    special = len(WORDS)
    read = with_special_tokens(template).read
    assert (read(text).ids, read(text).text, read(text).echo) == ((special, 0, 1), "a b", "a b")
    assert (read(talk).ids, read(talk).echo) == ((0, 1, 1, 3), "a b b tell")
    plain = with_special_tokens().read(talk)
    assert (plain.ids, plain.text, plain.echo) == ((special, 0, 1, 1), "a b b", "a b\nb")
    ids = with_special_tokens().read(PromptInput("prompt", ids=(special, 1)))
    assert (ids.ids, ids.text, ids.echo) == ((special, 1), "b", "b")
