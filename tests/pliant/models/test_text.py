"""Reading gives the tokens of training, and words that lead back to the text, for every kind of tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from pliant.models.text import Reader, shorten
from pliant.training.classifier import encode
from pliant.training.starts import new_tokenizer

TEXTS = ["the cat sat on the mat, and it isn't sure of naïve café things", "another unbelievable text in pairs"] * 9


def byte_level(trim: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "</s>"]
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    roberta = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    tokenizer.post_processor = roberta if trim else processors.ByteLevel(trim_offsets=False)
    return tokenizer


def unigram(split: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(
        TEXTS, trainers.UnigramTrainer(vocab_size=80, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=split)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


TOKENIZERS = {
    "wordpiece": new_tokenizer(TEXTS, 150),
    "roberta": byte_level(trim=True),
    "gpt2": byte_level(trim=False),
    "unigram": unigram(split=True),
    "whole": unigram(split=False),  # for this pre-tokenizer the whole text is one word
}
JSON = {name: tokenizer.to_str() for name, tokenizer in TOKENIZERS.items()}
READERS = {name: Reader(text, 24) for name, text in JSON.items()}
kinds = pytest.mark.parametrize("kind", TOKENIZERS)
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(["the", "cat", " ", "  ", "isn't", "naïve", "\n", "…", ",", "\0", "猫"]), max_size=40).map(
        "".join
    ),
)


def words(reading, *given):
    return [given[which][start:end] for which, start, end in reading.spans]


@kinds
@settings(deadline=None, max_examples=60)
@given(first=texts, second=st.none() | texts)
@example(first="the cat " * 30, second="the cat " * 30)
@example(first="the", second="the cat " * 30)
def test_the_tokens_are_those_that_the_model_was_trained_on(kind, first, second):
    (expected,) = encode(Tokenizer.from_str(JSON[kind]), [(first, second)], 24)
    reading = READERS[kind].read(first, second)
    assert reading.ids.tolist() == (expected.ids or [0])
    assert reading.types.tolist() == (expected.type_ids or [0])
    assert reading.truncated == bool(expected.overflowing)


@kinds
@settings(deadline=None, max_examples=60)
@given(first=texts, second=st.none() | texts)
def test_words_are_ascending_bare_parts_of_the_texts_and_every_one_has_tokens(kind, first, second):
    reading = READERS[kind].read(first, second)
    assert reading.ids.shape == reading.types.shape == reading.words.shape
    assert sorted(set(reading.words.tolist()) - {-1}) == list(range(len(reading.spans)))
    assert np.all(np.diff(reading.words[reading.words >= 0]) >= 0)
    for (before, _, end), (which, start, _) in zip(reading.spans, reading.spans[1:], strict=False):
        assert (before, end) <= (which, start)
    for word in words(reading, first, second):
        assert word and word == word.strip()


@kinds
@settings(deadline=None, max_examples=60)
@given(first=texts, second=st.none() | texts, data=st.data())
def test_kept_words_are_the_shorter_text_in_order_with_one_space_for_a_gap(kind, first, second, data):
    reading = READERS[kind].read(first, second)
    count = len(reading.spans)
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)), dtype=bool)
    for number, (text, short) in enumerate(
        zip((first, second), shorten(first, second, reading.spans, kept), strict=True)
    ):
        own = [(span, stays) for span, stays in zip(reading.spans, kept, strict=True) if span[0] == number]
        if text is None or all(stays for _, stays in own):
            assert short == text
            continue
        runs = "".join("x" if stays else " " for _, stays in own).split()
        left = iter([span for span, stays in own if stays])
        runs_of_words = [[next(left) for _ in run] for run in runs]
        assert short == " ".join(text[part[0][1] : part[-1][2]] for part in runs_of_words)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        (" " * 1530 + "thecatsat", ()),  # cut at the blank before it
        ("\n" * 1530 + "the catsat", ((0, 1530, 1533),)),
        ("\n" * 1530 + "thecatsat", ((0, 1530, 1536),)),  # no blank: cut after 64 characters a token
        ("\n" * 700 + " " + "\n" * 829 + "thecatsat", ((0, 1530, 1536),)),  # a blank in the first half does not count
    ],
)
def test_a_text_far_too_long_is_cut_before_a_word_in_its_second_half(text, spans):
    reading = READERS["wordpiece"].read(text)
    assert (reading.spans, reading.truncated) == (spans, True)


def test_what_a_tokenizer_s_file_says_of_padding_and_truncation_does_not_count():
    tokenizer = Tokenizer.from_str(JSON["wordpiece"])
    tokenizer.enable_padding(length=20)
    tokenizer.enable_truncation(5)
    reader = Reader(tokenizer.to_str(), 24)
    for text in ("the cat", "the cat sat on the mat"):
        reading, expected = reader.read(text), READERS["wordpiece"].read(text)
        assert (reading.ids.tolist(), reading.spans) == (expected.ids.tolist(), expected.spans)
        assert not reading.truncated


def test_white_space_belongs_to_the_next_word_of_its_text_or_else_to_the_one_before():
    assert READERS["gpt2"].read("  , ", " ,").words.tolist() == [0, 0, 0, 0, 1, 1]
    assert READERS["gpt2"].read(", ", "  ").words.tolist() == [0, 0, -1, -1]
