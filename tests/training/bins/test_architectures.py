"""Encoders of many architectures answer as in transformers, alone and beside longer texts, or are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedTokenizerFast

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.compile import compile_shapes
from pliant.bins.runtimes.model import load_model
from pliant.errors import InputError
from training.bins.encoder import load

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"w{number}" for number in range(40))]
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "dim", "n_embd", "embedding_size", "emb_dim"), 32),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "d_ff"), 48),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads", "n_head"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 64),
    "vocab_size": 45,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "d_kv": 16,
}
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


def written(folder: Path, kind: str, head: bool) -> Any:
    """Write a tiny random model of this kind with a tokenizer; return it."""
    torch.manual_seed(1)
    known = AutoConfig.for_model(kind)
    sizes = {key: value for key, value in SMALL.items() if hasattr(known, key)}
    config = AutoConfig.for_model(kind, **sizes, **({"num_labels": 3} if head else {}))
    model = (AutoModelForSequenceClassification if head else AutoModel).from_config(config).eval()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return model


@pytest.mark.parametrize("head", [False, True], ids=["embedding", "classifier"])
@pytest.mark.parametrize("kind", SAME)
def test_an_encoder_answers_as_in_transformers(kind, head, tmp_path):
    model = written(tmp_path, kind, head)
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
    written(tmp_path, kind, False)
    with pytest.raises(InputError, match=REFUSED[kind]):
        load(f"path:{tmp_path}", "tiny")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mpnet", "deberta-v2"])
def test_an_encoder_without_sdpa_is_compiled(kind, tmp_path):
    written(tmp_path / "model", kind, False)
    encoder = load(f"path:{tmp_path / 'model'}", "tiny")
    compile_shapes(encoder, [Shape(16, 2)], "onnx", tmp_path / "runtimes")
