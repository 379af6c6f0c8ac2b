"""What a generator is asked and how long its outputs are: read as a service would, run through the engine."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.flows.packing.config import LengthsConfig, read
from pliant.flows.packing.stages import PromptSet, observe, rendered, select_prompts
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import tokenizer_of
from pliant.packing.scheduling.request import Memory
from pliant.progress import silent
from pliant.registry.store import FolderStore
from pliant.training.data import Split
from pliant.training.packing.corpus import Corpus, Turn
from pliant.training.packing.generator import load
from tests.fixtures.packing.tiny import write_generator, write_prompts

TEMPLATE = (
    "{% for m in messages %}{{ bos_token }}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<go>{% endif %}"
)


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    return load(f"path:{write_generator(tmp_path_factory.mktemp('tiny'))}")


def corpus(count: int = 60) -> Corpus:
    turns = tuple(Turn("file", "kind", f"what is {number}?", "a thing") for number in range(count))
    return Corpus(turns, Split(np.arange(0), np.arange(40), np.arange(40, 60)), "sha256:c")


def config(**changes):
    return read(overrides={"lengths": {"requests": 40, "held_out": 0.25, **changes}})


def test_of_the_corpus_neither_part_is_of_texts_that_the_generator_was_trained_on():
    prompts = select_prompts(config(), corpus())
    assert (len(prompts.fit), len(prompts.held_out)) == (30, 10)
    assert set(prompts.fit) <= {f"what is {number}?" for number in range(40)}
    assert set(prompts.held_out) <= {f"what is {number}?" for number in range(40, 60)}
    assert prompts == select_prompts(config(), corpus())


def test_of_a_file_a_share_is_held_out_and_no_prompt_is_in_both_parts(tmp_path):
    path = write_prompts(tmp_path)
    path.write_text(2 * path.read_text())
    config = read(overrides={"data": [f"json:{path}"], "lengths": {"requests": 60, "held_out": 0.25}})
    prompts = select_prompts(config, None)
    assert len(prompts.held_out) == 15
    assert not set(prompts.fit) & set(prompts.held_out)
    assert len(set(prompts.fit)) == len(prompts.fit)


def test_too_few_prompts_are_refused_before_anything_runs(tmp_path):
    path = write_prompts(tmp_path, count=12)
    with pytest.raises(InputError, match="at least 10 each"):
        select_prompts(read(overrides={"data": [f"json:{path}"]}), None)


def test_lengths_are_those_of_the_engines_own_completions(generator, tmp_path):
    path = write_prompts(tmp_path, count=40)
    prompts = select_prompts(
        read(overrides={"data": [f"json:{path}"], "lengths": {"requests": 40, "held_out": 0.5}}), None
    )
    config = LengthsConfig(temperature=1.0, limit=9, pages=64)
    seen = observe(generator, prompts, config, "cpu", 1, 5, silent)
    tokenizer = tokenizer_of(generator.tokenizer)
    ids = [tuple(tokenizer.encode(text).ids) for text in (*prompts.fit, *prompts.held_out)]
    completions = complete(generator, ids, Memory(64, 16, step_tokens=64, sequences=32), 9, 1.0, 5)
    assert seen.output_tokens.tolist() == [len(completion.tokens) for completion in completions]
    assert seen.prompt_tokens.tolist() == [len(row) for row in ids]
    assert seen.limited == np.mean([completion.finished == "length" for completion in completions])
    assert 0 < seen.limited < 1
    assert seen.part(held_out=False).prompts == prompts.fit
    assert seen.part(held_out=True).prompts == prompts.held_out
    assert seen.part(held_out=True).tokens.tolist() == seen.output_tokens[seen.fit :].tolist()
    again = observe(generator, prompts, config, "cpu", 1, 5, silent)
    assert again.data == seen.data
    store = FolderStore(tmp_path / "store")
    assert store.load(type(seen), "x", store.save("x", seen)).prompts == seen.prompts


def test_the_predictor_reads_what_a_service_has_it_read_and_not_the_template(generator):
    """Else it would learn from texts that it is never asked about."""
    end = tokenizer_of(generator.tokenizer).id_to_token(1)  # a special token
    chat = replace(generator, chat_template=f"{{% for m in messages %}}{end}{{{{ m.content }}}}{end}{{% endfor %}}")
    prompts = PromptSet("x", tuple(f"the oak {n}" for n in range(12)), tuple(f"iron {n}" for n in range(12)), "f")
    seen, plain = (
        observe(model, prompts, LengthsConfig(limit=3, pages=64), "cpu", 1, 0, silent) for model in (chat, generator)
    )
    assert seen.part(held_out=False).prompts == plain.part(held_out=False).prompts == prompts.fit
    assert (seen.prompt_tokens == plain.prompt_tokens + 2).all()


def test_a_chat_template_is_applied_with_the_models_own_special_tokens(generator):
    tokenizer = tokenizer_of(generator.tokenizer)
    config = json.dumps(json.loads(generator.config) | {"bos_token_id": 2})
    templated = replace(generator, chat_template=TEMPLATE, config=config)
    for special, first in (({}, ""), ({"bos_token": "<s>"}, "<s>"), (None, tokenizer.id_to_token(2))):
        (text,) = rendered(replace(templated, special_tokens=special), tokenizer, ["hello"])
        assert text == f"{first}<user>hello<go>"
    assert rendered(generator, tokenizer, ["hello"]) == ["hello"]
