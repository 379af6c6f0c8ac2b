"""Checkpoints that are spoilt are refused with their reason before anything is trained, and whole ones are read."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
)
from transformers import AutoModelForSequenceClassification as Classifiers

import pliant.training.bins.encoder
import pliant.training.packing.generator
import pliant.training.packing.predictor
import pliant.training.starts
from pliant.errors import InputError
from pliant.training import loading
from pliant.training.loading import quick_if_offline
from pliant.training.starts import new_tokenizer, pretrained
from tests.fixtures.architectures import tiny_config as small_config
from tests.fixtures.architectures import written
from tests.fixtures.cascade.classifiers import TEXTS, tiny_config

FIRST = "encoder.layer.0.attention.self.query.weight"
WORDS = "embeddings.word_embeddings.weight"
LLAMA = LlamaConfig(
    vocab_size=40, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, eos_token_id=1
)


def write(folder: Path, auto=AutoModel, family: str = "bert", **settings) -> dict[str, torch.Tensor]:
    """Write a tiny model with a seed, and return its weights."""
    torch.manual_seed(0)
    auto.from_config(AutoConfig.for_model(**{**tiny_config(family, 3), **settings})).save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def rewrite(folder: Path, values: dict[str, torch.Tensor]) -> None:
    save_file(
        {key: value.contiguous() for key, value in values.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def without(word: str):
    return lambda values: {key: value for key, value in values.items() if word not in key}


def beside(name: str):
    return lambda values: {**values, name: torch.ones(1, 2)}


def prefixed(prefix: str):
    return lambda values: {prefix + key: value for key, value in values.items()}


def changed(key: str, change):
    return lambda values: {**values, key: change(values[key])}


def filled(number: float):
    return changed(FIRST, lambda value: torch.full_like(value, number))


def renamed(old: str, new: str):
    return lambda values: {key.replace(old, new): value for key, value in values.items()}


def doubled(values):
    return values | {key.replace("layer.0", "layer.9"): value.clone() for key, value in values.items()}


SPOILT = {
    "a key is missing": (without(FIRST), rf"1 missing \({FIRST}\)"),
    "a layer is missing": (without("layer.0"), r"16 missing \(encoder.layer.0.*, \.\.\.\)"),
    "embeddings are missing": (without("embeddings"), r"5 missing \(embeddings"),
    "a layer too many": (doubled, "16 superfluous"),
    "something else": (beside("linear.weight"), r"1 superfluous \(linear.weight\)"),
    "a part is renamed": (renamed("attention.self.query", "attention.q"), "missing.*superfluous"),
    "a part is misspelt": (renamed("encoder.layer", "encodr.layer"), "missing.*superfluous"),
    "another shape": (changed(FIRST, lambda x: x[:, :-1]), rf"1 of another shape \({FIRST}: \(\d+, \d+\) for"),
    "another vocabulary": (changed(WORDS, lambda x: x[:-3]), "1 of another shape .*word_embeddings"),
    "transposed": (changed("encoder.layer.0.output.dense.weight", lambda x: x.T), "1 of another shape"),
    "DataParallel": (prefixed("module."), "begin with module., as DataParallel saves them: remove the prefix"),
    "compiled": (prefixed("_orig_mod."), "begin with _orig_mod., as torch.compile saves them: remove the prefix"),
    "both": (prefixed("module._orig_mod."), "begin with module._orig_mod., as DataParallel and torch.compile"),
    "adapted": (prefixed("base_model.model."), "begin with base_model.model., as PEFT saves them"),
    "lightning": (prefixed("model."), "begin with model., as Lightning saves them"),
    "doubled": (prefixed("bert.bert.bert."), r"begin with (bert\.)+, as a model around it saves them"),
    "wrapped": (prefixed("encoder."), "begin with encoder., as a model around it saves them"),
    "too short": (renamed("encoder.layer", "layer"), r"its keys lack encoder.: put that prefix before them"),
    "not a number": (filled(float("nan")), rf"1 hold NaN or infinity \({FIRST}\)"),
    "infinite": (filled(float("inf")), rf"1 hold NaN or infinity \({FIRST}\)"),
    "low-rank": (beside("base_model.model.x.lora_A.weight"), "merge it into the model first"),
}


@pytest.mark.parametrize("ignored", [loading.headless, loading.new_head])
@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_weights_are_refused_with_their_reason(tmp_path, case, ignored):
    spoil, sentence = SPOILT[case]
    rewrite(tmp_path, spoil(write(tmp_path)))
    auto = AutoModel if ignored is loading.headless else Classifiers
    sentence = sentence.replace(FIRST, rf"(bert\.)?{FIRST}").replace(r"\(e", r"\((bert\.)?e")
    with pytest.raises(InputError, match=sentence) as raised:
        loading.load(auto, str(tmp_path), "encoder", ignored)
    assert str(raised.value).startswith(f"encoder is {tmp_path}, but must be ")


@pytest.mark.parametrize("auto", [AutoModel, AutoModelForMaskedLM, Classifiers])
@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_an_encoder_and_a_start_are_read_from_checkpoints_with_other_heads(tmp_path, auto, family):
    values = write(tmp_path, auto, family)
    rewrite(tmp_path, {key: value for key, value in values.items() if "pooler" not in key})
    loading.load(AutoModel, str(tmp_path), "encoder", loading.headless)
    assert loading.load(Classifiers, str(tmp_path), "model", loading.new_head, num_labels=7).config.num_labels == 7


@pytest.mark.parametrize("part", ["classifier.weight", "bert.pooler.dense.weight"])
def test_a_classifier_that_is_served_needs_its_head_and_pooler(tmp_path, part):
    values = write(tmp_path, Classifiers)
    loading.load(Classifiers, str(tmp_path), "encoder")
    rewrite(tmp_path, {key: value for key, value in values.items() if key != part})
    with pytest.raises(InputError, match=rf"1 missing \({part}\)"):
        loading.load(Classifiers, str(tmp_path), "encoder")


def test_a_generator_needs_every_key_but_tied_ones(tmp_path):
    torch.manual_seed(0)
    for tied in (True, False):
        LLAMA.tie_word_embeddings = tied
        AutoModelForCausalLM.from_config(LLAMA).save_pretrained(tmp_path)
        values = load_file(tmp_path / "model.safetensors")
        assert ("lm_head.weight" in values) is not tied
        loading.load(AutoModelForCausalLM, str(tmp_path), "generator")
    rewrite(tmp_path, {key: value for key, value in values.items() if key != "lm_head.weight"})
    with pytest.raises(InputError, match=r"generator is .*1 missing \(lm_head.weight\)"):
        loading.load(AutoModelForCausalLM, str(tmp_path), "generator")
    rewrite(tmp_path, {**values, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)})
    loading.load(AutoModelForCausalLM, str(tmp_path), "generator")  # an old buffer, which transformers ignores


@pytest.mark.parametrize("form", ["sharded", "bin", "legacy", "float16", "bfloat16"])
def test_whole_checkpoints_of_every_form_are_read(tmp_path, form):
    values = write(tmp_path)
    if form == "sharded":
        AutoModel.from_pretrained(tmp_path).save_pretrained(tmp_path / "in", max_shard_size="5KB")
        assert len(list((tmp_path / "in").glob("*.safetensors"))) > 1
    elif form in ("bin", "legacy"):
        (tmp_path / "model.safetensors").unlink()
        torch.save(values, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=form == "bin")
    else:
        rewrite(tmp_path, {key: value.to(getattr(torch, form)) for key, value in values.items()})
    folder = tmp_path / "in" if form == "sharded" else tmp_path
    loaded = loading.load(AutoModel, str(folder), "encoder", loading.headless, dtype=torch.float32).state_dict()
    assert all(torch.allclose(loaded[key], value, atol=1e-2) for key, value in values.items())


def cut(name: str, kept: float):
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[: int((folder / name).stat().st_size * kept)])

    return spoil


def overwritten(name: str, content: bytes):
    return lambda folder: (folder / name).write_bytes(content)


def sharded(spoil):
    def write(folder: Path) -> None:
        AutoModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="5KB")
        (folder / MODEL).unlink(missing_ok=True)
        (folder / "shard").symlink_to(sorted(folder.glob("model-*"))[0])
        spoil(folder)

    return write


def pickled(spoil):
    def write(folder: Path) -> None:
        torch.save(load_file(folder / MODEL), folder / PICKLE)
        (folder / MODEL).unlink()
        spoil(folder)

    return write


MODEL, PICKLE, SHARD = "model.safetensors", "pytorch_model.bin", r"model-00001-of-\d+.safetensors"
POINTER = loading.POINTER + b"v1\noid sha256:12\nsize 9\n"
INDEX = "model.safetensors.index.json"
FILES = {
    "truncated": (cut(MODEL, 0.9), rf"{MODEL} is truncated: it has \d+ bytes of \d+"),
    "truncated within the header": (cut(MODEL, 0.01), f"{MODEL} is truncated, or no"),
    "empty": (cut(MODEL, 0), rf"{MODEL} is truncated.*\(0 bytes\)"),
    "a page of a proxy": (
        overwritten(MODEL, b"<html>" + b"x" * 99),
        f"{MODEL} is truncated, or no file of safetensors",
    ),
    "a pointer": (overwritten(MODEL, POINTER), f"{MODEL} is a pointer of Git LFS"),
    "a pointer beside the weights": (overwritten("tokenizer.json", POINTER), "tokenizer.json is a pointer of Git LFS"),
    "a truncated pickle": (pickled(cut(PICKLE, 0.9)), f"{PICKLE} is truncated"),
    "a pickle that is a pointer": (pickled(overwritten(PICKLE, POINTER)), f"{PICKLE} is a pointer"),
    "a shard is missing": (sharded(lambda folder: (folder / "shard").readlink().unlink()), f"{SHARD} is missing"),
    "a shard is truncated": (sharded(cut("shard", 0.9)), f"{SHARD} is truncated"),
    "the index is none": (sharded(overwritten(INDEX, b"{")), f"{INDEX} is not an index of weights"),
    "an adapter": (overwritten("adapter_config.json", b'{"peft_type": "LORA"}'), "an adapter of PEFT: merge it into"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_not_whole_are_refused_by_name(tmp_path, case):
    spoil, sentence = FILES[case]
    write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(InputError, match=sentence):
        loading.load(AutoModel, str(tmp_path), "encoder", loading.headless)


def test_weights_that_the_memory_cannot_hold_are_refused_before_they_are_read(tmp_path, monkeypatch):
    AutoModelForCausalLM.from_config(LLAMA, dtype=torch.bfloat16).save_pretrained(tmp_path)
    numbers = sum(value.numel() for value in load_file(tmp_path / "model.safetensors").values())
    monkeypatch.setattr(loading, "free_memory", lambda: 3 * numbers)
    loading.load(AutoModelForCausalLM, str(tmp_path), "generator", dtype=torch.bfloat16)
    with pytest.raises(InputError, match=r"whose weights take .* as float32, but must be a model for the memory"):
        loading.load(AutoModelForCausalLM, str(tmp_path), "generator", dtype=torch.float32)


@pytest.mark.parametrize(
    ("read", "field"),
    [
        (lambda folder: pliant.training.packing.generator.load(f"path:{folder}"), "generator"),
        (lambda folder: pliant.training.packing.predictor.read_encoder(f"path:{folder}", 16), "encoder"),
        (lambda folder: pliant.training.bins.encoder.load(f"path:{folder}", "name"), "encoder"),
        (lambda folder: pliant.training.starts.pretrained(f"path:{folder}"), "model"),
    ],
    ids=["generator", "predictor", "encoder", "start"],
)
def test_a_tokenizer_of_more_tokens_than_the_model_has_embeddings_is_refused(tmp_path, read, field):
    kind = ("llama", AutoModelForCausalLM) if field == "generator" else ("bert", AutoModel)
    written(tmp_path, kind[1], small_config(kind[0], vocab_size=44, eos_token_id=2))
    with pytest.raises(InputError, match=f"^{field} is .*, whose tokenizer gives w39 the id 44"):
        read(tmp_path)


def write_model(folder, family: str = "bert", outputs: int = 5) -> str:
    """Write a folder as transformers does, with a head of so many outputs, and return its address."""
    from transformers import AutoConfig

    AutoModelForSequenceClassification.from_config(
        AutoConfig.for_model(**tiny_config(family, outputs))
    ).save_pretrained(folder)
    new_tokenizer(TEXTS, 80).save(str(folder / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind))
    return f"path:{folder}"


def test_a_new_tokenizer_is_the_same_for_the_same_texts_and_no_larger_than_asked():
    """The trainer's own numbers depended on the order of a hash map, so every run gave another vocabulary."""
    tokenizers = [new_tokenizer(TEXTS, 60) for _ in range(4)]
    assert len({tokenizer.to_str() for tokenizer in tokenizers}) == 1
    assert tokenizers[0].get_vocab_size() <= 60
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert [tokenizers[0].token_to_id(name) for name in special] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_a_folder_keeps_its_encoder_and_gets_a_head_of_the_size_asked(tmp_path, family):
    start = pretrained(write_model(tmp_path, family))
    stored = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model = start.model(3)
    assert model.config.num_labels == 3
    assert not start.fresh
    kept = dict(stored.base_model.named_parameters())
    assert all(torch.equal(kept[name], value) for name, value in model.base_model.named_parameters())


@pytest.fixture(autouse=True)
def direct(monkeypatch):
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")


def refusing(address, timeout):
    raise OSError("no route to host")


def test_a_hub_that_cannot_be_reached_is_not_asked(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", refusing)
    with quick_if_offline() as reason:
        assert reason == "hub.example cannot be reached: no route to host"
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
