"""Fine-tunes a sequence classifier or regressor of transformers, or trains a small one from scratch.

Training stops early, and the weights of the best epoch are kept. The loop is our own, as transformers' Trainer needs
another distribution (accelerate) and reports to trackers of its own.

Shape suffixes: R rows, B batch, N tokens, K outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, positions, typed, weights
from pliant.precision import TRAINING_PRECISIONS, lowered
from pliant.progress import Progress, silent
from pliant.training import groups
from pliant.training.curves import note
from pliant.training.starts import Start, finished
from pliant.training.text_data import TextData


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """How one classifier is trained. Raises `InputError` for values outside their limits."""

    layers: int | None = None  # how many of the first layers are kept; None: all
    epochs: int = 4
    patience: int = 1  # epochs in a row without a better held-out loss; one more ends training
    held_out: float = 0.1  # share of the fit split on which early stopping judges
    batch: int = 32
    rate: float = 1e-4
    head_rate: float = 1e-3  # learning rate of weights that have not been trained before
    decay: float = 0.01
    warmup: float = 0.1  # share of all steps
    smoothing: float = 0.0  # of labels
    max_length: int = 128  # tokens
    train_length: int | None = None  # tokens of a text while training, where fewer than max_length
    precision: str = "auto"  # see pliant/precision.py
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in TRAINING_PRECISIONS:
            raise InputError("precision", self.precision, f"one of {', '.join(TRAINING_PRECISIONS)}")
        if not 0 < self.held_out < 1:
            raise InputError("held_out", self.held_out, "between 0 and 1")
        for key, value, minimum in (
            ("epochs", self.epochs, 1),
            ("patience", self.patience, 0),
            ("batch", self.batch, 1),
            ("max_length", self.max_length, 8),
            ("train_length", 8 if self.train_length is None else self.train_length, 8),
        ):
            if value < minimum:
                raise InputError(key, value, f"at least {minimum}")


@dataclass(frozen=True, slots=True)
class Curves:
    """One value per epoch: losses per text, and the held-out score (accuracy, or Pearson's r of a regression)."""

    train_loss: tuple[float, ...]
    loss: tuple[float, ...]
    score: tuple[float, ...]


Weights = dict[str, NDArray[np.float32]]
Checkpoint = Callable[[int, Classifier], None]
"""Called with the epoch and the classifier whenever it is the best so far."""


def train(
    config: ClassifierConfig,
    name: str,
    data: TextData,
    start: Start,
    device: str = "cpu",
    progress: Progress = silent,
    checkpoint: Checkpoint | None = None,
) -> tuple[Classifier, Curves]:
    """Return the best classifier by held-out loss, and its curves.

    Raises `InputError` for settings that do not fit the model or the data, and where the loss is never finite.
    """
    torch.manual_seed(config.seed)
    model: Any = start.model(len(data.classes) or 1)
    _shorten(model, config.layers)
    longest, settings = positions(model), model.config
    if longest is not None and config.max_length > longest:
        raise InputError("max_length", config.max_length, f"at most {longest} for this model")
    settings.id2label = dict(enumerate(data.classes or (data.name,)))  # whatever the model was made for before
    settings.label2id = {label: number for number, label in settings.id2label.items()}
    settings.problem_type = "regression" if data.regression else "single_label_classification"
    rows, standard = fit_rows(data, start.tokenizer, min(config.max_length, config.train_length or config.max_length))
    model_config = model.config.to_json_string(use_diff=False)
    tokenizer_json = start.tokenizer.to_str()

    def stored(values: Weights) -> Classifier:
        """Return the classifier. A regressor's mean and deviation go into the last linear layer."""
        mean, deviation = standard
        if standard != (0.0, 1.0):
            *_, bias = (name for name in values if name.endswith(".bias") and values[name].shape == (1,))
            weight = bias.removesuffix("bias") + "weight"
            own = (values[bias] * deviation + mean).astype(np.float32)
            values = values | {weight: values[weight] * deviation, bias: own}
        return Classifier(
            name, data.name, data.classes, model_config, tokenizer_json, config.max_length, data.fingerprint, values
        )

    fit = data.split.fit.tolist()
    second = None if data.second is None else (data.second[row] for row in fit)
    group_R = groups.of_texts((data.first[row] for row in fit), second)
    run = _Run(config, model.to(device), rows, group_R, torch.device(device), start.fresh, _arguments(model))
    on_better = None if checkpoint is None else lambda epoch, best: checkpoint(epoch, stored(best))
    values, curves = run.epochs(progress, on_better)
    return stored(values), curves


def taken_over(config: ClassifierConfig, name: str, data: TextData, address: str) -> Classifier:
    """Return the classifier at an address as it is. Raises `InputError` as `starts.finished`, and for too many tokens."""
    model, tokenizer, classes = finished(address)
    longest: Any = positions(model)
    if longest is not None and config.max_length > longest:
        raise InputError("max_length", config.max_length, f"at most {longest} for this model")
    settings: Any = model.config
    text, length = settings.to_json_string(use_diff=False), config.max_length
    return Classifier(name, data.name, classes, text, tokenizer.to_str(), length, data.fingerprint, weights(model))


@dataclass(frozen=True, slots=True)
class _Run:
    """One training run."""

    config: ClassifierConfig
    model: nn.Module
    rows: Rows
    group_R: NDArray[np.int64]
    device: torch.device
    fresh: bool  # none of the weights have been trained before
    accepted: frozenset[str]  # arguments that the model takes

    def epochs(self, progress: Progress, better: Callable[[int, Weights], None] | None) -> tuple[Weights, Curves]:
        """Return the weights of the best epoch; `better` gets those of every epoch that is the best so far."""
        held, seen = groups.divide(self.group_R, self.config.held_out, self.config.seed)
        if not len(seen):
            raise InputError("data", f"{len(held)} texts to fit", "at least 2 different ones")
        steps = self.config.epochs * math.ceil(len(seen) / self.config.batch)
        optimizer, counted = self._optimizer(), count()
        best, kept, stale, curves = math.inf, None, 0, []
        for epoch in range(self.config.epochs):
            total = 0.0
            for index in batches(self.rows, seen, self.config.batch, self.config.seed + epoch):
                done = next(counted)
                loss = self._step(optimizer, index, done, steps)
                total += loss * len(index)
                note("loss", done, steps, loss)
                progress(done + 1, steps)
            loss, score = self._judge(held)
            curves.append((total / len(seen), loss, score))
            for name, value in zip(
                ("epoch/training_loss", "epoch/held_out_loss", "epoch/held_out_score"), curves[-1], strict=True
            ):
                note(name, epoch, self.config.epochs, value)
            if loss < best:
                best, kept, stale = loss, weights(self.model), 0
                if better is not None:
                    better(epoch, kept)
            elif (stale := stale + 1) > self.config.patience:
                progress(steps, steps)
                break
        if kept is None:
            rates = f"{self.config.rate} or {self.config.head_rate}"
            raise InputError("rate or head_rate", rates, "so small that the loss stays finite")
        return kept, Curves(*zip(*curves, strict=True))

    def _optimizer(self) -> torch.optim.Optimizer:
        base: Any = self.model.base_model  # all but the head
        known = {id(p) for p in base.parameters()} if not self.fresh else set()
        groups = [
            {"params": [p for p in self.model.parameters() if id(p) in known], "peak": self.config.rate},
            {"params": [p for p in self.model.parameters() if id(p) not in known], "peak": self.config.head_rate},
        ]
        # Without fusing, updating the vocabulary's rows takes as long as the batch itself.
        return torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=self.config.rate, weight_decay=self.config.decay, fused=True
        )

    def _step(self, optimizer: torch.optim.Optimizer, index: NDArray[np.int64], step: int, steps: int) -> float:
        share = schedule(step, steps, self.config.warmup)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
        self.model.train()
        output_BK, label_B = self._run(index)
        if output_BK.shape[1] == 1:
            loss = mse_loss(output_BK[:, 0], label_B)
        else:
            loss = cross_entropy(output_BK, label_B, label_smoothing=self.config.smoothing)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def _run(self, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return outputs [B, K] and labels of these rows."""
        columns, label_B = self.rows.batch(index, getattr(self.model.config, "pad_token_id", None) or 0)
        arguments = {name: tensor.to(self.device) for name, tensor in columns.items() if name in self.accepted}
        with lowered(self.config.precision, self.device):
            logits: Tensor = self.model(**arguments).logits
        return logits.float(), label_B.to(self.device)

    @torch.no_grad()
    def _judge(self, index: NDArray[np.int64]) -> tuple[float, float]:
        """Return mean loss and score on these rows."""
        self.model.eval()
        results = [self._run(rows) for rows in batches(self.rows, index, 4 * self.config.batch, 0)]
        output_RK, label_R = (torch.cat(column).cpu() for column in zip(*results, strict=True))
        if output_RK.shape[1] == 1:
            pair = torch.stack([output_RK[:, 0], label_R])
            return float(mse_loss(*pair)), float(torch.nan_to_num(torch.corrcoef(pair)[0, 1]))
        right = (output_RK.argmax(1) == label_R).float().mean()
        return float(cross_entropy(output_RK, label_R)), float(right)


def schedule(step: int, steps: int, warmup: float) -> float:
    """Return the factor on the learning rate: linear up over the warm-up, then linear down to zero, as for BERT."""
    rise = max(1, round(warmup * steps))
    return min((step + 1) / rise, max(0.0, (steps - step) / max(1, steps - rise)))


def _arguments(model: nn.Module) -> frozenset[str]:
    """Return the arguments that the model takes: DistilBERT has no token types, and RoBERTa has one for all."""
    accepted = set(signature(model.forward).parameters)
    if not typed(model):
        accepted.discard("token_type_ids")
    return frozenset(accepted)


def _shorten(model: nn.Module, kept: int | None) -> None:
    """Keep the first `kept` layers. Raises `InputError` for more than there are."""
    present = layers(model)
    if kept is None or kept == len(present):
        return
    if not 0 < kept <= len(present):
        raise InputError("layers", kept, f"from 1 to {len(present)}")
    del present[kept:]
    config: Any = model.config
    config.num_hidden_layers = kept
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:kept]


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded texts of different lengths, and their labels."""

    ids: list[list[int]]
    types: list[list[int]]
    label_R: Tensor

    def batch(self, index: NDArray[np.int64], pad: int) -> tuple[dict[str, Tensor], Tensor]:
        """Return the arguments of a model of transformers, padded with the token `pad`, and labels."""
        rows = [int(i) for i in index]
        longest = max(len(self.ids[i]) for i in rows)
        ids_BN = torch.full((len(rows), longest), pad, dtype=torch.long)
        types_BN, mask_BN = torch.zeros_like(ids_BN), torch.zeros_like(ids_BN)
        for at, row in enumerate(rows):
            length = len(self.ids[row])
            ids_BN[at, :length] = torch.tensor(self.ids[row])
            types_BN[at, :length] = torch.tensor(self.types[row])
            mask_BN[at, :length] = 1
        return {"input_ids": ids_BN, "attention_mask": mask_BN, "token_type_ids": types_BN}, self.label_R[rows]


def fit_rows(data: TextData, tokenizer: Tokenizer, max_length: int) -> tuple[Rows, tuple[float, float]]:
    """Return the fit split, and (mean, deviation) by which a regression's labels are standardised."""
    encoded = encode(tokenizer, data.texts(data.split.fit), max_length)
    labels = data.labels[data.split.fit]
    mean, deviation = (float(labels.mean()), float(labels.std()) or 1.0) if data.regression else (0.0, 1.0)
    label_R = torch.from_numpy((labels - mean) / deviation).float() if data.regression else torch.from_numpy(labels)
    return Rows([e.ids for e in encoded], [e.type_ids for e in encoded], label_R), (mean, deviation)


def batches(rows: Rows, index: NDArray[np.int64], batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches of rows of similar length, in random order.

    Rows are shuffled, then sorted by length within runs of 50 batches.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(index)
    groups = []
    for at in range(0, len(shuffled), 50 * batch):
        run = shuffled[at : at + 50 * batch]
        run = run[np.argsort([len(rows.ids[i]) for i in run], kind="stable")]
        groups += [run[start : start + batch] for start in range(0, len(run), batch)]
    return iter([groups[i] for i in rng.permutation(len(groups))])


def encode(tokenizer: Tokenizer, texts: list[tuple[str, str | None]], max_length: int) -> list[Any]:
    """Return encodings cut to `max_length` tokens; the longer text of a pair is cut first."""
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        return list(tokenizer.encode_batch([first if second is None else (first, second) for first, second in texts]))
    finally:
        tokenizer.no_truncation()
