"""What a classifier's training starts from: a model of the hub, of a local folder, or fresh weights and a new tokenizer.

Knows where weights and vocabularies come from; knows no data set but the texts that a new vocabulary is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from pliant.errors import InputError, OfflineError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MARKS: Mapping[str, str] = {"pad": "[PAD]", "cls": "[CLS]", "bos": "[CLS]", "sep": "[SEP]", "eos": "[SEP]"}


@dataclass(frozen=True, slots=True)
class Start:
    """`model(outputs)` makes the classifier with a new head; `fresh`: no part of it has been trained before."""

    model: Callable[[int], nn.Module]
    tokenizer: Tokenizer
    fresh: bool


@dataclass(frozen=True, slots=True)
class ScratchConfig:
    """A small ModernBERT (Warner et al. 2024) with a vocabulary of its own.

    Normalised before each part and pooled by the mean, it learns from a few thousand texts in a fraction of BERT's steps.
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    vocabulary: int = 6000
    positions: int = 512
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise InputError("width", self.width, f"a multiple of heads, {self.heads}")


# Trained on the embedded corpus in 8 and 40 s of one core: 63% and 76% of 8 packages (LOG.md).
SMALL = ScratchConfig(width=48, layers=1, heads=2, vocabulary=600)
LARGE = ScratchConfig(width=128, layers=4, heads=4, vocabulary=4000, dropout=0.5)


def pretrained(address: str) -> Start:
    """`path:FOLDER` or `hub:NAME`. Raises `InputError`, and `OfflineError` where the hub is out of reach."""
    scheme, _, rest = address.partition(":")
    if scheme == "path" and not Path(rest).is_dir():
        raise InputError("model", rest, "an existing folder with config.json, tokenizer.json and weights")
    if scheme not in ("path", "hub") or not rest:
        raise InputError("model", address, "scratch, path:FOLDER or hub:NAME")
    try:
        tokenizer = read_tokenizer(rest)
        _load(rest, 2)
    except Exception as error:  # whatever a reader or the network raises
        tell(scheme, rest, error, "model", "train from scratch (scratch)")
    return Start(lambda outputs: _load(rest, outputs), tokenizer, fresh=False)


def scratch(config: ScratchConfig, texts: Iterable[str]) -> Start:
    """Fresh weights, and a vocabulary made of `texts`."""
    tokenizer = new_tokenizer(texts, config.vocabulary)
    return Start(lambda outputs: _new(config, tokenizer, outputs), tokenizer, fresh=True)


def new_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """A WordPiece tokenizer in BERT's manner: lower case, [CLS] a [SEP] b [SEP]. The same texts give the same one."""
    told = list(texts)
    made = _bare(_vocabulary(told, size))
    made.add_special_tokens(list(SPECIAL))
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return made


def _bare(vocabulary: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def _vocabulary(texts: Sequence[str], size: int) -> dict[str, int]:
    """Learnt from a draft whose single characters, both in front of a word ("a") and within ("##a"), are numbered by us.

    The trainer numbers those within words as its hash map yields them, and decides between equally frequent pieces by
    number: every run would give another vocabulary.
    """
    draft = _bare({})
    counts = Counter(character for text in texts for character in draft.normalizer.normalize_str(text))
    ranked = sorted((one for one in counts if not one.isspace()), key=lambda one: (-counts[one], one))
    characters = sorted(ranked[: (size - len(SPECIAL)) // 3])
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *(f"##{one}" for one in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    draft.train_from_iterator(texts, trainer)
    return draft.get_vocab()


def _new(config: ScratchConfig, tokenizer: Tokenizer, outputs: int) -> nn.Module:
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    given: dict[str, Any] = {
        **{f"{use}_token_id": tokenizer.token_to_id(token) for use, token in MARKS.items()},
        **dict.fromkeys(("embedding_dropout", "mlp_dropout", "classifier_dropout"), config.dropout),
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": 2 * config.width,  # gated
        "max_position_embeddings": config.positions,
        "global_attn_every_n_layers": 1,
        "classifier_pooling": "mean",
    }
    told = ModernBertConfig(**given)
    told.num_labels = outputs
    made: nn.Module = ModernBertForSequenceClassification._from_config(told, attn_implementation="sdpa")
    return made


def _load(name: str, outputs: int) -> nn.Module:
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()  # it tells at length that the head is new, which is the point
    logging.disable_progress_bar()
    made: nn.Module = AutoModelForSequenceClassification.from_pretrained(
        name, num_labels=outputs, ignore_mismatched_sizes=True, attn_implementation="sdpa"
    )
    return made.float()


def read_tokenizer(name: str) -> Tokenizer:
    """Of a folder or a model of the hub, without truncation and padding. Raises `InputError`, and what readers raise."""
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(name)
    if getattr(loaded, "backend_tokenizer", None) is None:
        raise InputError("tokenizer", type(loaded).__name__, "one of the tokenizers library (with a tokenizer.json)")
    made = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
    made.no_truncation()
    made.no_padding()
    return made


def tell(scheme: str, name: str, error: Exception, field: str, instead: str) -> NoReturn:
    """Why a model could not be read, as one sentence: `instead` is what works without a network, besides a folder."""
    if isinstance(error, InputError):
        raise error
    if scheme == "hub":
        raise OfflineError(
            f"the model {name} could not be fetched from the hub ({type(error).__name__}); without a network use a local "
            f"folder (path:FOLDER) or {instead}"
        ) from error
    raise InputError(field, name, f"a folder with a model of transformers ({type(error).__name__}: {error})") from error
