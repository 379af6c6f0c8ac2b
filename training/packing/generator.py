"""Trains a small causal language model on questions about docstrings, or loads any causal model of transformers.

The small one has its own tokenizer (byte-level BPE, trained on the questions and answers to fit) and learns to end by
itself, since every answer ends with <|end|>. Its matrices are trained by Muon: after one pass over the texts the
held-out loss of an answer's token was 3.65, against 4.48 with Adam alone (one seed and one untuned rate each). Knows no
lengths and no scheduling.

Shape suffixes: B texts of a batch, N tokens, T tokens that count in the loss, V vocabulary, H width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import DTYPES, weights
from pliant.precision import TRAINING_PRECISIONS, lowered
from pliant.progress import Progress, silent
from pliant.training import loading
from pliant.training.classifier import schedule
from pliant.training.curves import note
from pliant.training.packing import chat
from pliant.training.packing.architecture import check_architecture
from pliant.training.packing.corpus import ASSISTANT, CHAT_TEMPLATE, END, USER, Corpus, select
from pliant.training.starts import read_tokenizer, reading

SAMPLING: Mapping[str, tuple[str, float, float]] = {
    "temperature": ("temperature", 0, 2),
    "top_p": ("top_p", 1e-6, 1),
    "top_k": ("top_k", 0, 1 << 31),
    "min_p": ("min_p", 0, 1),
    "repetition_penalty": ("repetition_penalty", 1e-6, 1e6),
    "max_new_tokens": ("max_tokens", 1, 1 << 31),
}
"""Key of generation_config.json -> the field of a request whose default it is, and its limits."""
UNSERVED: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences", "encoder_repetition_penalty"), (1,)),
    **dict.fromkeys(("typical_p", "guidance_scale"), (1,)),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "penalty_alpha", "top_h"), (0,)),
    **dict.fromkeys(("encoder_no_repeat_ngram_size", "min_length", "min_new_tokens", "diversity_penalty"), (0,)),
    **dict.fromkeys(
        ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "stop_strings"), ([], {})
    ),
    **dict.fromkeys(("exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id"), ()),
    **dict.fromkeys(("dola_layers", "watermarking_config", "constraints", "force_words_ids"), ()),
}
"""Keys of generation_config.json that would change outputs and are not served, with the values that have no effect."""
_reading = partial(reading, field="generator", other="docstrings", instead="the embedded generator (docstrings)")
PAD = "<|pad|>"
SPECIAL = (PAD, END, USER, ASSISTANT)


@dataclass(frozen=True, slots=True)
class GeneratorConfig:
    """The size of a Llama and its training, which by default takes a core about half a minute.

    With the defaults lengths follow from the question and outputs end by themselves, but texts are poor. With `first` the
    model grows as it learns (see `_fit`): a deep one then takes little longer to train than a shallow one. Raises
    `InputError` for a value outside its limits.
    """

    width: int = 96
    layers: int = 2
    heads: int = 4
    vocabulary: int = 1024
    context: int = 384  # most tokens of a prompt and its output
    first: int | None = None  # layers that learn alone at the beginning; default: all learn all the time
    joined: float = 0.1  # share of the steps, the last ones, in which all layers learn
    epochs: float = 0.8  # passes over the texts to fit
    batch_tokens: int = 2048  # of a batch, padding included
    matrix_rate: float = 0.02  # Muon's learning rate
    rate: float = 4e-3  # Adam's learning rate
    warmup: float = 0.05  # share of all steps
    decay: float = 0.05  # Muon's weight decay
    prompt_weight: float = 0.3  # of a question's token in the loss, where an answer's has 1
    precision: str = "auto"  # see pliant/precision.py
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in TRAINING_PRECISIONS:
            raise InputError("precision", self.precision, f"one of {', '.join(TRAINING_PRECISIONS)}")
        if self.width % (2 * self.heads):
            raise InputError("width", self.width, f"a multiple of twice the heads, {2 * self.heads}")
        least = {"layers": 1, "vocabulary": 300, "context": 16, "batch_tokens": self.context}
        for key, value in least.items():
            if getattr(self, key) < value:
                raise InputError(key, getattr(self, key), f"at least {value}")
        if self.first is not None and not 1 <= self.first <= self.layers:
            raise InputError("first", self.first, f"from 1 to the layers, {self.layers}")
        if not 0 < self.joined <= 1:
            raise InputError("joined", self.joined, "above 0, and at most 1")
        if not self.epochs > 0:
            raise InputError("epochs", self.epochs, "above 0")


def train(config: GeneratorConfig, corpus: Corpus, progress: Progress = silent, name: str = "docstrings") -> Generator:
    """Return a generator trained on the texts to fit, without those longer than the context.

    Raises `InputError` if all are longer, and if the loss diverges.
    """
    torch.manual_seed(config.seed)
    turns = select(corpus, "fit")
    tokenizer = new_tokenizer([turn.text for turn in turns], config.vocabulary)
    questions = tokenizer.encode_batch([turn.prompt for turn in turns])
    said = tokenizer.encode_batch([turn.text[len(turn.prompt) :] for turn in turns])
    rows = [_Row(len(ask.ids), ask.ids + answer.ids) for ask, answer in zip(questions, said, strict=True)]
    rows = [row for row in rows if len(row.ids) <= config.context]
    if not rows:
        raise InputError("context", config.context, "as long as one of the texts at least")
    model = new_model(config, tokenizer)
    _fit(model, rows, config, progress)
    ends = (SPECIAL.index(END),)
    model_config = model.config.to_json_string(use_diff=False)
    trained = weights(model)
    texts = model_config, tokenizer.to_str(), CHAT_TEMPLATE
    return Generator(name, *texts, config.context, ends, corpus.fingerprint, trained, special_tokens={})


def load(address: str, precision: str = "float32") -> Generator:
    """Return any causal model of transformers, in `precision`, from `path:FOLDER` or `hub:NAME`.

    Raises `InputError`, and `OfflineError` if the hub is out of reach.
    """
    with _reading(address) as (scheme, name):
        check_architecture(name)
        return _read(scheme, name, precision)


def check(address: str) -> None:
    """Raise as `load` for what a configuration alone says, before any weights are read."""
    with _reading(address) as (_, name):
        check_architecture(name)


def new_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Train a byte-level BPE tokenizer of `size` tokens, which encodes and restores every text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def new_model(config: GeneratorConfig, tokenizer: Tokenizer) -> Any:
    """Return a Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model_config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=config.width,
        intermediate_size=round(config.width * 8 / 3 / 8) * 8,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=config.context,
        tie_word_embeddings=True,
        pad_token_id=SPECIAL.index(PAD),
        bos_token_id=None,
        eos_token_id=SPECIAL.index(END),
        architectures=["LlamaForCausalLM"],
    )
    return LlamaForCausalLM._from_config(model_config, attn_implementation="sdpa")


@dataclass(frozen=True, slots=True)
class _Row:
    """The ids of a turn, of which the first `prompt` are the question."""

    prompt: int
    ids: list[int]


def _fit(model: Any, rows: list[_Row], config: GeneratorConfig, progress: Progress) -> None:
    """Train in place. Layers beyond the `first` join at last, behind those: they add nothing until they have learnt to.

    That is block expansion (Wu et al. 2024), but with new layers in place of copies.
    """
    rng = np.random.default_rng(config.seed)
    first = config.first or config.layers
    for layer in model.model.layers[first:]:
        nn.init.zeros_(layer.self_attn.o_proj.weight)
        nn.init.zeros_(layer.mlp.down_proj.weight)
    each = _batches(rows, config.batch_tokens, rng)
    steps = max(1, math.ceil(config.epochs * len(each)))
    alone = math.floor((1 - config.joined) * steps)
    # Muon (Jordan et al. 2024) is for the matrices of the layers, Adam for embeddings and norms.
    matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
    of_layers = {id(parameter) for parameter in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in of_layers]
    optimizers: tuple[torch.optim.Optimizer, ...] = (
        torch.optim.Muon(matrices, config.matrix_rate, config.decay),
        torch.optim.AdamW(others, config.rate, (0.9, 0.98), weight_decay=0.0, fused=True),
    )
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    model.train()
    for step in range(steps):
        if not each:
            each = _batches(rows, config.batch_tokens, rng)
        model.config.num_hidden_layers = first if step < alone else config.layers  # those behind do not run
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * schedule(step, steps, config.warmup)
        loss = _loss(model, [rows[i] for i in each.pop()], config)
        if not math.isfinite(float(loss.detach())):
            raise InputError("rate", f"{config.rate} or {config.matrix_rate}", "so small that the loss stays finite")
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        note("loss", step, steps, loss.detach())
        progress(step + 1, steps)


def _batches(rows: list[_Row], tokens: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return batches of rows of similar length with at most `tokens` tokens, padding included, in random order."""
    lengths = np.array([len(row.ids) for row in rows]) + rng.uniform(0, 8, len(rows))
    order = np.argsort(lengths, kind="stable")
    batches, start = [], 0
    for at in range(1, len(order) + 1):
        if at == len(order) or (at + 1 - start) * len(rows[order[at]].ids) > tokens:
            batches.append(order[start:at])
            start = at
    return [batches[i] for i in rng.permutation(len(batches))]


def _loss(model: Any, rows: list[_Row], config: GeneratorConfig) -> Tensor:
    """Return the mean cross-entropy of a token, where a question's tokens weigh `prompt_weight`."""
    longest = max(len(row.ids) for row in rows)
    ids_BN = torch.zeros(len(rows), longest, dtype=torch.long)  # padded behind, where causal attention does not look
    weight_BN = torch.zeros(len(rows), longest)
    for at, row in enumerate(rows):
        ids_BN[at, : len(row.ids)] = torch.tensor(row.ids)
        weight_BN[at, : row.prompt] = config.prompt_weight
        weight_BN[at, row.prompt : len(row.ids)] = 1.0
    weight_BN, target_BN = weight_BN[:, 1:], ids_BN[:, 1:]
    counted_BN = weight_BN > 0  # the scores of the others are not needed
    with lowered(config.precision, ids_BN.device):
        hidden_BNH = model.model(input_ids=ids_BN[:, :-1], use_cache=False).last_hidden_state
        logits_TV = model.lm_head(hidden_BNH[counted_BN])
    loss_T, weight_T = cross_entropy(logits_TV.float(), target_BN[counted_BN], reduction="none"), weight_BN[counted_BN]
    return (loss_T * weight_T).sum() / weight_T.sum()


def _read(scheme: str, name: str, precision: str) -> Generator:
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
    logging.disable_progress_bar()
    label = Path(name).resolve().name if scheme == "path" else name
    tokenizer, own = AutoTokenizer.from_pretrained(name), read_tokenizer(name)
    settings = chat.read(tokenizer, label)
    chat.check(settings, tokenizer, own, label)
    model = loading.load(AutoModelForCausalLM, name, "generator", dtype=DTYPES[precision])
    context = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(context, int):
        raise InputError("generator", name, "a model whose configuration says max_position_embeddings")
    loading.check_tokens(own, model, name, "generator")
    return Generator(
        name=label.rsplit("/", 1)[-1],
        config=model.config.to_json_string(use_diff=False),
        tokenizer=own.to_str(),
        chat_template=settings.source,
        context=context,
        ends=_ends(model, name),
        data=f"{scheme}:{label}",
        weights=weights(model, precision),
        sampling=_sampling(loading.read_json(name, "generation_config.json", "generator")),
        chat_templates=settings.named,
        special_tokens=settings.special,
    )


def _sampling(config: Any) -> dict[str, float]:
    """Return the defaults of a request's fields by a generation_config.json. Raises `InputError` for what is not served.

    As in vLLM: a request's own fields win, and `do_sample` and `max_length` say nothing.
    """
    settings = {key: value for key, value in (config if isinstance(config, dict) else {}).items() if value is not None}
    for key, value in settings.items():
        if key in UNSERVED and value not in UNSERVED[key]:
            raise InputError(f"{key} of generation_config.json", value, "left out: a request cannot ask for it, either")
    defaults = {}
    for key, (name, least, most) in SAMPLING.items():
        value = settings.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise InputError(f"{key} of generation_config.json", value, f"a number from {least:g} to {most:g}")
        defaults[name] = float(value)
    return defaults


def _ends(model: Any, name: str) -> tuple[int, ...]:
    """Return the end tokens by the generation configuration, or else the model's. Raises `InputError` without any."""
    for config in (model.generation_config, model.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return tuple(int(token) for token in (ids if isinstance(ids, list) else [ids]))
    raise InputError("generator", name, "a model that says which token ends its output (eos_token_id)")
