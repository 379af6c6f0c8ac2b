"""Where the training of a classifier starts: vocabularies, fresh weights, local folders, and a hub out of reach."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from pliant.models.classifier import layers
from pliant.training.starts import ScratchConfig, new_tokenizer, pretrained, scratch
from tests.fixtures.cascade.classifiers import TEXTS, tiny_config

TINY = ScratchConfig(width=16, layers=2, heads=2, vocabulary=80, positions=32)


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


def test_scratch_has_the_size_told_and_as_many_outputs_as_asked():
    start = scratch(TINY, TEXTS)
    model = start.model(7)
    config = model.config
    assert (config.hidden_size, len(layers(model)), config.num_labels, config.max_position_embeddings) == (16, 2, 7, 32)
    assert config.vocab_size == start.tokenizer.get_vocab_size()
    assert start.fresh


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_a_folder_keeps_its_encoder_and_gets_a_head_of_the_size_asked(tmp_path, family):
    start = pretrained(write_model(tmp_path, family))
    stored = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model = start.model(3)
    assert model.config.num_labels == 3
    assert not start.fresh
    kept = dict(stored.base_model.named_parameters())
    assert all(torch.equal(kept[name], value) for name, value in model.base_model.named_parameters())
