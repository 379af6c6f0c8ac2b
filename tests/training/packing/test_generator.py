"""The embedded generator learns to answer and to end; any other causal model of transformers can take its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import normalizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pliant.errors import InputError
from pliant.flows.stage import contents
from pliant.packing import chat as chat_program
from pliant.packing.engine.model import load_generator, tokenizer_of
from pliant.training.data import Split
from pliant.training.packing import chat
from pliant.training.packing.corpus import END, USER, Corpus, Turn
from pliant.training.packing.generator import GeneratorConfig, load, new_tokenizer, train
from tests.fixtures.places import SHARED

STORIES = SHARED / "models" / "stories260K"
COLOURS = ("red", "green", "blue", "grey")
TINY = GeneratorConfig(
    width=32, layers=2, heads=2, vocabulary=300, context=48, epochs=40, batch_tokens=512, matrix_rate=0.03, rate=1e-2
)


def corpus(count: int = 48) -> Corpus:
    """Return a corpus of questions for a colour, once or three times."""
    turns = []
    for n in range(count):
        colour, times = COLOURS[n % 4], (1, 3)[n // 4 % 2]
        turns.append(Turn(f"{n}.py", "x", f"{colour} {'once' if times == 1 else 'thrice'}", " ".join([colour] * times)))
    rows = np.arange(count)
    return Corpus(tuple(turns), Split(rows[:40], rows[40:44], rows[44:]), "sha256:some")


@pytest.fixture(scope="module")
def generator():
    return train(TINY, corpus())


def answer(generator, ask: str) -> str:
    tokenizer, model = tokenizer_of(generator.tokenizer), load_generator(generator)
    ids = torch.tensor([tokenizer.encode(Turn("", "", ask, "").prompt).ids])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=30, do_sample=False)[0]
    return tokenizer.decode(out[ids.shape[1] :].tolist(), skip_special_tokens=False)


def test_it_learns_to_answer_at_the_asked_length_and_to_end(generator):
    assert answer(generator, "blue once") == f"blue{END}"
    assert answer(generator, "red thrice") == f"red red red{END}"


def test_layers_that_join_at_last_learn_too_and_spoil_nothing():
    grown = train(replace(TINY, layers=4, first=1, joined=0.2), corpus())
    assert json.loads(grown.config)["num_hidden_layers"] == 4
    assert all(np.any(grown.weights[f"model.layers.{n}.self_attn.o_proj.weight"]) for n in range(4))
    assert answer(grown, "blue once") == f"blue{END}"
    assert answer(grown, "red thrice") == f"red red red{END}"


def test_texts_that_are_held_out_are_never_read():
    whole = corpus()
    unseen = [replace(turn, ask="zzz", answer="yyy") for turn in whole.turns[40:]]
    other = replace(whole, turns=(*whole.turns[:40], *unseen))
    first, second = (train(replace(TINY, epochs=1), each) for each in (whole, other))
    assert first.tokenizer == second.tokenizer
    assert all(np.array_equal(array, second.weights[name]) for name, array in first.weights.items())


def test_texts_beyond_the_context_are_left_out_and_none_left_is_told():
    with pytest.raises(InputError, match="context is 16, but must be as long as one of the texts"):
        train(replace(TINY, context=16, vocabulary=300), corpus_of_long())


def corpus_of_long() -> Corpus:
    short = corpus()
    return replace(short, turns=tuple(replace(t, answer=" ".join(f"{n}q" for n in range(40))) for t in short.turns))


def gpt2() -> GPT2LMHeadModel:
    sizes = {"vocab_size": 300, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 40}
    return GPT2LMHeadModel(GPT2Config(**sizes, eos_token_id=1, bos_token_id=1))


def save(folder: Path, model, template: str | dict[str, str] | None = None, **tokens: str) -> None:
    tokenizer = new_tokenizer(["some words"], 300)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, **tokens)
    fast.chat_template = template
    fast.save_pretrained(folder)
    model.save_pretrained(folder)


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_of_transformers_is_read_whole(tmp_path, tied):
    config = LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=77, tie_word_embeddings=tied, eos_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = [1, 2]
    save(tmp_path / "small", model, "{{ messages[0]['content'] }}")
    generator = load(f"path:{tmp_path / 'small'}")
    assert (generator.name, generator.context, generator.ends, generator.data) == ("small", 77, (1, 2), "path:small")
    assert generator.chat_template == "{{ messages[0]['content'] }}"
    ids = torch.tensor([[5, 9, 30]])
    with torch.no_grad():
        assert torch.equal(load_generator(generator)(ids).logits, model(ids).logits)


def test_special_tokens_are_the_tokenizers_and_named_templates_are_kept(tmp_path):
    named = {"default": "{{ bos_token }}{{ messages[0].content }}", "tool_use": "{{ tools }}", "rag": "x"}
    save(tmp_path, gpt2(), named, bos_token=USER)
    assert {path.stem for path in (tmp_path / "additional_chat_templates").iterdir()} == {"tool_use", "rag"}
    before = list(contents(f"path:{tmp_path}"))
    generator = load(f"path:{tmp_path}")
    assert generator.special_tokens == {"bos_token": USER, "eos_token": END}
    assert {"default": generator.chat_template, **generator.chat_templates} == named
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("y")
    assert list(contents(f"path:{tmp_path}")) != before


FOREVER = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (FOREVER, "the chat template of .* is unusable: .* takes more than 0.1 s of a processor"),
        ("{% if tools %}{{ [1] | tojson(colour=2) }}{% endif %}", "the chat template of .* is unusable: .*colour"),
        ("{% nothing %}", "cannot be read"),
        ({"tool_use": "x", "rag": "y"}, "rag|tool_use.*several with default"),
    ],
)
def test_a_chat_template_that_cannot_be_served_is_refused_with_its_models_name(
    tmp_path, monkeypatch, template, sentence
):
    monkeypatch.setattr(chat_program, "SECONDS", 0.1)
    save(tmp_path / "small", gpt2(), template)
    with pytest.raises(InputError, match=sentence) as caught:
        load(f"path:{tmp_path / 'small'}")
    assert "small" in str(caught.value)


def test_a_prompt_that_transformers_writes_otherwise_is_refused_with_the_first_difference():
    fast = PreTrainedTokenizerFast(tokenizer_object=new_tokenizer(["some words"], 300), eos_token=END)
    fast.chat_template = "{{ messages[0].content }}"
    settings, own = chat.read(fast, "small"), new_tokenizer(["some words"], 300)
    chat.check(settings, fast, own, "small")
    own.normalizer = normalizers.Lowercase()
    with pytest.raises(InputError, match=r"template of small is .*\(a question: token 0 is \d+ in place of \d+\)"):
        chat.check(settings, fast, own, "small")
    refusing = replace(settings, source="{{ raise_exception('not today') }}")
    with pytest.raises(InputError, match=r"a question: refused by the model's template \(not today\) alone"):
        chat.check(refusing, fast, own, "small")


@pytest.mark.parametrize(
    ("key", "value", "sampling"),
    [
        ("temperature", 0.6, {"temperature": 0.6}),
        ("top_k", 20, {"top_k": 20}),
        ("max_new_tokens", 9, {"max_tokens": 9}),
        ("do_sample", True, {}),
        ("num_beams", 1, {}),
        ("num_beams", 4, None),
        ("no_repeat_ngram_size", 3, None),
        ("suppress_tokens", [5], None),
        ("temperature", 9, None),
        ("top_p", "all", None),
    ],
)
def test_what_a_generation_configuration_says_is_kept_or_refused_by_name(tmp_path, key, value, sampling):
    save(tmp_path, gpt2())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 4], "top_p": None, key: value}))
    if sampling is None:
        with pytest.raises(InputError, match=f"{key} of generation_config.json is "):
            load(f"path:{tmp_path}")
    else:
        generator = load(f"path:{tmp_path}")
        assert (generator.sampling, generator.ends, generator.context) == (sampling, (1, 4), 40)


@pytest.mark.skipif(not STORIES.is_dir(), reason="needs ../shared/data/models/stories260K")
def test_a_pretrained_model_is_read_and_tells_a_story():
    generator = load(f"path:{STORIES}")
    assert (generator.name, generator.context, generator.ends) == ("stories260K", 512, (1, 2))
    tokenizer, model = tokenizer_of(generator.tokenizer), load_generator(generator)
    ids = torch.tensor([tokenizer.encode("Once upon a time").ids])
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=400, do_sample=False)[0]
    assert int(out[-1]) in generator.ends
    assert "there was" in tokenizer.decode(out.tolist())
