"""What the training of a classifier starts from: a model of the hub or of a local folder, or fresh weights.

A fresh start has a new tokenizer, whose vocabulary is learnt from given texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

from pliant.errors import InputError, OfflineError
from pliant.training import loading

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MARKS: Mapping[str, str] = {"pad": "[PAD]", "cls": "[CLS]", "bos": "[CLS]", "sep": "[SEP]", "eos": "[SEP]"}
"""The special token for each use that a configuration names, as in `pad_token_id`."""
SENTENCE = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""The files in which sentence-transformers keeps what it does to texts, in its order."""


@dataclass(frozen=True, slots=True)
class Start:
    """`model(outputs)` makes the classifier with a new head; `fresh`: none of its weights have been trained before."""

    model: Callable[[int], nn.Module]
    tokenizer: Tokenizer
    fresh: bool


@dataclass(frozen=True, slots=True)
class ScratchConfig:
    """The size of a small ModernBERT (Warner et al. 2024) with a vocabulary of its own.

    Normalised before each part and pooled by the mean, it learns from a few thousand texts in a fraction of BERT's
    steps.
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


# On the embedded corpus they train in 8 and 40 s on one core, to 63% and 76% accuracy on 8 packages (docs/log).
SMALL = ScratchConfig(width=48, layers=1, heads=2, vocabulary=600)
LARGE = ScratchConfig(width=128, layers=4, heads=4, vocabulary=4000, dropout=0.5)


def pretrained(address: str) -> Start:
    """Return the start from `path:FOLDER` or `hub:NAME`.

    Raises `InputError` for what cannot be read, and `OfflineError` where the hub is out of reach.
    """
    with reading(address, "model", "scratch", "train from scratch (scratch)") as (_, name):
        model, tokenizer = _load_model(name, 2), read_tokenizer(name)
        loading.check_tokens(tokenizer, model, name, "model")
        del model  # another one is made for each level
    return Start(lambda outputs: _load_model(name, outputs), tokenizer, fresh=False)


def finished(address: str) -> tuple[nn.Module, Tokenizer, tuple[str, ...]]:
    """Return the classifier at `path:FOLDER` or `hub:NAME` with its head, its tokenizer, and the names of its classes.

    Raises `InputError` for what cannot be read, or has no head for two or more classes, and `OfflineError` as `pretrained`.
    """
    from transformers import AutoModelForSequenceClassification

    with reading(address, "model", "scratch", "train from scratch (scratch)") as (_, name):
        model = loading.load(AutoModelForSequenceClassification, name, "model").float()
        tokenizer = read_tokenizer(name)
        loading.check_tokens(tokenizer, model, name, "model")
    names = model.config.id2label
    if len(names) < 2:
        raise InputError(
            "model", name, "a classifier of two or more classes, where it is not trained (fine_tune = false)"
        )
    return model, tokenizer, tuple(str(names[number]) for number in range(len(names)))


def scratch(config: ScratchConfig, texts: Iterable[str]) -> Start:
    """Return a start with fresh weights, and a vocabulary learnt from `texts`."""
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    tokenizer = new_tokenizer(texts, config.vocabulary)
    settings: dict[str, Any] = {
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

    def fresh(outputs: int) -> nn.Module:
        kind, model_config = ModernBertForSequenceClassification, ModernBertConfig(**settings)
        model_config.num_labels = outputs
        model: nn.Module = kind._from_config(model_config, attn_implementation="sdpa")
        return model

    return Start(fresh, tokenizer, fresh=True)


def new_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Return a WordPiece tokenizer in BERT's manner: lower case, [CLS] a [SEP] b [SEP].

    The same texts give the same tokenizer.
    """
    tokenizer = _new_wordpiece(_vocabulary(list(texts), size))
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return tokenizer


def _new_wordpiece(vocabulary: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def _vocabulary(texts: Sequence[str], size: int) -> dict[str, int]:
    """Return the vocabulary, learnt with single characters that are numbered here.

    A character has two forms, at the start of a word ("a") and within ("##a"). The trainer numbers the latter in the
    order of a hash map, and decides between equally frequent pieces by number, so every run would give another
    vocabulary.
    """
    draft = _new_wordpiece({})
    counts = Counter(character for text in texts for character in draft.normalizer.normalize_str(text))
    ranked = sorted((mark for mark in counts if not mark.isspace()), key=lambda mark: (-counts[mark], mark))
    characters = sorted(ranked[: (size - len(SPECIAL)) // 3])
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *(f"##{character}" for character in characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    draft.train_from_iterator(texts, trainer)
    return draft.get_vocab()


def _load_model(name: str, outputs: int) -> nn.Module:
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
    logging.disable_progress_bar()
    kind = AutoModelForSequenceClassification
    model: nn.Module = loading.load(kind, name, "model", loading.new_head, num_labels=outputs)
    return model.float()


def read_tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a folder or a model of the hub, without truncation and padding.

    Raises `InputError` for one of another library, and what readers raise.
    """
    from transformers import AutoTokenizer

    loaded: Any = AutoTokenizer.from_pretrained(name)
    if getattr(loaded, "backend_tokenizer", None) is None:
        raise InputError("tokenizer", type(loaded).__name__, "one of the tokenizers library (with a tokenizer.json)")
    tokenizer = Tokenizer.from_str(loaded.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # Whether sentence-transformers writes the texts of a model in lower case before they are tokenized.
    files = () if loading.read_json(name, "modules.json") is None else SENTENCE
    settings = [loading.read_json(name, file) for file in files]
    if any(isinstance(each, dict) and bool(each.get("do_lower_case")) for each in settings):
        own = tokenizer.normalizer
        lower = normalizers.Lowercase()
        tokenizer.normalizer = lower if own is None else normalizers.Sequence([lower, own])
    return tokenizer


@contextmanager
def reading(address: str, field: str, other: str, instead: str) -> Iterator[tuple[str, str]]:
    """Give the scheme and the rest of `path:FOLDER` or `hub:NAME`; whatever reading that raises becomes one sentence.

    `field`: the setting that names it; `other`: what it may be besides; `instead`: what works without a network, besides
    a folder. Raises `OfflineError` for a model of the hub, otherwise `InputError`.
    """
    scheme, _, name = address.partition(":")
    if scheme == "path" and not Path(name).is_dir():
        raise InputError(field, name, "an existing folder with config.json, tokenizer.json and weights")
    if scheme not in ("path", "hub") or not name:
        raise InputError(field, address, f"{other}, path:FOLDER or hub:NAME")
    try:
        yield scheme, name
    except InputError:
        raise
    except Exception as error:  # readers and the network raise many kinds
        if scheme == "hub":
            raise OfflineError(
                f"the model {name} could not be fetched from the hub ({type(error).__name__}); without a network use a "
                f"local folder (path:FOLDER) or {instead}"
            ) from error
        wanted = f"a folder with a model of transformers ({type(error).__name__}: {error})"
        raise InputError(field, name, wanted) from error
