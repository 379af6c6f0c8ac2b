"""Encoders of many architectures answer as in transformers, alone and beside longer texts, or are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from pliant.bins.runtimes.model import load_model
from pliant.errors import InputError
from pliant.training.bins.encoder import load
from tests.fixtures.architectures import tiny_config, written

SAME = (
    "albert", "bert", "big_bird", "camembert", "data2vec-text", "deberta", "deberta-v2", "distilbert", "electra",
    "ernie", "esm", "eurobert", "gpt2", "llama", "longformer", "megatron-bert", "mobilebert", "modernbert", "mpnet",
    "nomic_bert", "rembert", "roberta", "roformer", "squeezebert", "xlm-roberta",
)  # fmt: skip
REFUSED = {
    "fnet": "FNetModel answers otherwise beside longer texts",  # it knows no mask
    "convbert": "ConvBertModel answers otherwise beside longer texts",  # it mixes padding in
    "t5": "T5Model cannot be run by token ids and a mask alone: You must specify exactly one of",
    "xmod": "XmodModel cannot be run by token ids and a mask alone: Input language unknown",
}


def write(folder: Path, kind: str, head: bool) -> Any:
    """Write a tiny random model of this kind with a tokenizer; return it."""
    config = tiny_config(kind, **({"num_labels": 3} if head else {}))
    return written(folder, AutoModelForSequenceClassification if head else AutoModel, config)


@pytest.mark.parametrize("head", [False, True], ids=["embedding", "classifier"])
@pytest.mark.parametrize("kind", SAME)
def test_an_encoder_answers_as_in_transformers(kind, head, tmp_path):
    model = write(tmp_path, kind, head)
    ours = load_model(load(f"path:{tmp_path}", "tiny"))
    id_BN = torch.randint(5, 45, (3, 12), generator=torch.Generator().manual_seed(2))
    valid_BN = (torch.arange(12) < torch.tensor([12, 8, 5])[:, None]).long()
    with torch.no_grad():
        output = model(input_ids=id_BN * valid_BN, attention_mask=valid_BN)
        answer_BK = ours(id_BN * valid_BN, valid_BN)
    weight_BN1 = valid_BN[..., None]
    wanted_BK = output.logits if head else (output.last_hidden_state * weight_BN1).sum(1) / weight_BN1.sum(1)
    assert torch.nn.functional.cosine_similarity(answer_BK, wanted_BK).min() >= 0.9999


@pytest.mark.parametrize("kind", REFUSED)
def test_an_encoder_that_would_not_is_refused_with_the_reason(kind, tmp_path):
    write(tmp_path, kind, False)
    with pytest.raises(InputError, match=REFUSED[kind]):
        load(f"path:{tmp_path}", "tiny")
