"""Texts keep to their grammar, in company, under preemption and after a crash, and nobody else's text changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine import grammar as module
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.policy import Rules
from tests.fixtures.packing.fakes import new_tokenizer
from tests.fixtures.packing.generators import HOSTED, SCARCE, generated, prompts, running, submission, tiny_generator

CONTEXT, COUNT = 160, 8
TOKENIZER = new_tokenizer()
VOCABULARY = TOKENIZER.get_vocab_size()
PAGED = Rules("paged", CONTEXT)
MEMORY = replace(HOSTED, pages=40)
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["tea", "shop"]}, "size": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "size"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
JSON = f"start: %json {json.dumps(SCHEMA)}"
DIGITS = "start: /[0-9]{5,9}/"


def generator() -> Generator:
    """A tiny random Llama that reads the byte-level tokenizer; token 0 ends an output."""
    return tiny_generator(0, VOCABULARY, CONTEXT, (0,), TOKENIZER.to_str())


def text_of(tokens: tuple[int, ...]) -> str:
    return TOKENIZER.decode(list(tokens))


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_texts_keep_to_their_grammar_and_others_stay_as_they_are(temperature: float) -> None:
    texts = prompts(COUNT)
    plain = generated(generator(), texts, limit=60)
    with running(MEMORY, PAGED, generator=generator()) as (engine, desk):
        for id, ids in enumerate(texts):
            grammar = ("", JSON, DIGITS, "")[id % 4]
            warm = temperature if grammar else 0.0
            engine.submit(submission(id, ids, limit=60, sampling=Sampling(warm, seed=id, grammar=grammar)))
        desk.wait(COUNT)
        assert desk.preemptions() > 0
        for id, tokens in enumerate(desk.texts()):
            match id % 4:
                case 1:
                    value = json.loads(text_of(tokens))
                    assert set(value) == {"name", "size"} and value["name"] in ("tea", "shop")
                    assert 0 <= value["size"] <= 99
                case 2:
                    assert re.fullmatch("[0-9]{5,9}", text_of(tokens))
                case _:
                    assert tokens == plain[id]
            if id % 4 in (1, 2):
                assert (desk.last[id].finished, tokens[-1]) == ("stop", 0)


def test_after_a_crash_a_text_goes_on_in_its_grammar() -> None:
    ids, sampling = prompts(1, seed=3)[0], Sampling(1.0, seed=4, grammar=JSON)
    with running(MEMORY, PAGED, generator=generator()) as (engine, desk):
        engine.submit(submission(0, ids, limit=60, sampling=sampling))
        desk.wait(1)
        whole = desk.texts()[0]
        prompt = submission(1, ids, limit=60).prompt
        engine.submit(Submission(prompt, ids + whole[:5], sampling, generated=5))
        desk.wait(2)
        assert whole[:5] + tuple(desk.tokens[1]) == whole


def test_a_grammar_that_says_nothing_more_ends_its_text_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Giving(module.Matcher):
        """A matcher whose library gives up after three tokens."""

        left = 3

        def take(self, token: int) -> None:
            super().take(token)
            self.left -= 1

        @property
        def stuck(self) -> bool:
            return self.left <= 0

    texts = prompts(2)
    with running(MEMORY, PAGED, generator=generator()) as (engine, desk):
        monkeypatch.setattr(module, "Matcher", Giving)
        engine.submit(submission(0, texts[0], limit=20, sampling=Sampling(grammar=DIGITS)))
        engine.submit(submission(1, texts[1], limit=20))
        desk.wait(2)
        assert (desk.last[0].finished, len(desk.tokens[0])) == ("grammar", 3)
        assert tuple(desk.tokens[1]) == generated(generator(), texts[1:], limit=20)[0]
        engine.check()
        assert not engine.status().error


REFUSED: dict[str, Any] = {
    "no type": ('start: %json {"type": "objekt"}', "Invalid type: objekt"),
    "no reference": ('start: %json {"$ref": "#/missing"}', "Pointer '/missing' does not exist"),
    "look-around": ('start: %json {"type": "string", "pattern": "(?=a)b"}', "look-around"),
    "no rule": ("start: missing", "missing"),
    "no grammar": ("{{{", "refused"),
}


@pytest.mark.parametrize(("grammar", "part"), REFUSED.values(), ids=REFUSED)
def test_a_grammar_that_cannot_be_compiled_is_refused_with_the_reason(grammar: str, part: str) -> None:
    with running(MEMORY, PAGED, generator=generator()) as (engine, _):
        with pytest.raises(InputError, match=part) as refused:
            engine.submit(submission(0, prompts(1)[0], sampling=Sampling(grammar=grammar)))
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


def test_a_model_without_an_end_and_an_engine_without_a_tokenizer_take_no_grammar() -> None:
    with pytest.raises(InputError, match="the model has no token that ends an output"):
        Grammars(TOKENIZER.to_str(), VOCABULARY, ()).check(DIGITS, "response_format")
    engine = PagedEngine(load_generator(generator()), SCARCE)
    with pytest.raises(InputError, match="this engine has no tokenizer"):
        engine.add(0, (5,), 3, sampling=Sampling(grammar=DIGITS), prompt=1)


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"min_tokens": 2}])
def test_what_contradicts_a_grammar_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="left out where the output's form is given"):
        Sampling(grammar=DIGITS, **fields)


def test_a_text_whose_grammar_takes_too_much_time_ends_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = prompts(2)
    with running(MEMORY, PAGED, generator=generator()) as (engine, desk):
        monkeypatch.setattr(module, "TOKEN_SECONDS", -module.BURST_SECONDS / 3)
        engine.submit(submission(0, texts[0], limit=20, sampling=Sampling(grammar=DIGITS)))
        engine.submit(submission(1, texts[1], limit=20))
        desk.wait(2)
        assert desk.last[0].finished == "grammar" and 3 <= len(desk.tokens[0]) <= 4
        assert tuple(desk.tokens[1]) == generated(generator(), texts[1:], limit=20)[0]
        engine.check()
        assert not engine.status().error
