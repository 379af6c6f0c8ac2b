"""A generator that is loaded by MLflow answers a row a prompt: its text without the end, and all of its tokens."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from tokenizers import Tokenizer

from pliant.errors import InputError
from pliant.packing.engine.complete import Completion
from registry import codec
from tests.fixtures.cascade.classifiers import TEXTS, tiny_classifier
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.pyfunc import served

WORDS = ("a", "b", "end", "c")


@pytest.fixture
def words(monkeypatch):
    """A model of four words with a context of 40 tokens, and how it asks for completions."""
    module, model = served("packing-generator")
    calls = []

    def complete(generator, prompts, memory, limit, **options):
        calls.append((prompts, memory, limit, options))
        return [Completion((1, 3, 2), "stop"), Completion((1, 0), "length")][: len(prompts)]

    monkeypatch.setattr(module, "complete", complete)
    model.generator, model.device = SimpleNamespace(context=40), "cpu"
    model.tokenizer = SimpleNamespace(
        encode=lambda text: SimpleNamespace(ids=[WORDS.index(word) for word in text.split()]),
        decode=lambda ids: " ".join(WORDS[number] for number in ids),
    )
    return model, calls


def test_a_completion_that_ended_is_its_text_without_the_end_token_which_is_counted(words):
    model, calls = words
    frame = model.predict(pd.DataFrame({"text": ["a b", "c"]}))
    assert frame.to_dict("records") == [
        {"completion": "b c", "tokens": 3, "finished": "stop"},
        {"completion": "b a", "tokens": 2, "finished": "length"},
    ]
    ((prompts, memory, limit, options),) = calls
    assert [list(ids) for ids in prompts] == [[0, 1], [3]]
    assert limit == 64 and options == {"device": "cpu"}
    assert memory.pages == 8 * memory.need(40), "eight whole contexts at a time"


def test_the_limit_is_a_parameter_and_at_least_1(words):
    model, calls = words
    model.predict(pd.DataFrame({"text": ["a"]}), {"max_tokens": 1})
    assert calls[0][2] == 1
    with pytest.raises(InputError, match="max_tokens is 0, but must be at least 1"):
        model.predict(pd.DataFrame({"text": ["a"]}), {"max_tokens": 0})


@pytest.mark.parametrize(("config", "device"), [({}, "cpu"), ({"device": "cuda"}, "cuda")])
def test_it_loads_its_weights_and_its_own_tokenizer(tmp_path, config, device):
    tokenizer = tiny_classifier().tokenizer
    codec.save(replace(tiny_generator(), tokenizer=tokenizer), tmp_path)
    model = served("packing-generator", tmp_path, **config)[1]
    assert model.generator.name == tiny_generator().name and model.device == device
    assert model.tokenizer.encode(TEXTS[0]).ids == Tokenizer.from_str(tokenizer).encode(TEXTS[0]).ids
