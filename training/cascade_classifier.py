"""Fine-tunes a sequence classifier or regressor of transformers, or trains a small one from scratch.

Batches hold texts of like length; training stops early, and the weights of the best epoch are kept. Knows no cascade:
which models make one is the flow's business. The loop is our own, since transformers' Trainer needs a further
distribution (accelerate) and reports to trackers of its own.

Shape suffixes: B batch, N tokens, K outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from pliant.cascade.artifact import Classifier
from pliant.cascade.model import layers, weights
from pliant.errors import InputError
from pliant.progress import Progress, silent
from training.cascade_start import Start
from training.precision import PRECISIONS, lowered
from training.texts import TextData


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """How one classifier is trained."""

    layers: int | None = None  # keep the first so many; None: all
    epochs: int = 4
    patience: int = 1  # epochs without a better held-out loss before training ends
    held_out: float = 0.1  # share of the fit split that early stopping goes by
    batch: int = 32
    rate: float = 1e-4
    head_rate: float = 1e-3  # of what has not been trained before
    decay: float = 0.01
    warmup: float = 0.1  # share of all steps
    smoothing: float = 0.0  # of labels
    max_length: int = 128  # tokens
    precision: str = "auto"  # see training/precision.py
    seed: int = 0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError("precision", self.precision, f"one of {', '.join(PRECISIONS)}")
        if not 0 < self.held_out < 1:
            raise InputError("held_out", self.held_out, "between 0 and 1")
        if self.epochs < 1 or self.batch < 1 or self.max_length < 8:
            raise InputError("epochs, batch or max_length", "too small", "at least 1, 1 and 8")


@dataclass(frozen=True, slots=True)
class Curves:
    """One value an epoch: losses per text, and the held-out score (accuracy, or Pearson's r in a regression)."""

    train_loss: tuple[float, ...]
    loss: tuple[float, ...]
    score: tuple[float, ...]


Checkpoint = Callable[[int, Classifier], None]
"""Called with the epoch and the classifier whenever it is the best so far."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """Encoded texts; rows of tokens are ragged."""

    ids: list[list[int]]
    types: list[list[int]]
    label_R: Tensor

    def batch(self, index: NDArray[np.int64], device: torch.device) -> tuple[dict[str, Tensor], Tensor]:
        rows = [int(i) for i in index]
        longest = max(len(self.ids[i]) for i in rows)
        ids_BN = torch.zeros(len(rows), longest, dtype=torch.long)
        types_BN, mask_BN = torch.zeros_like(ids_BN), torch.zeros_like(ids_BN)
        for at, row in enumerate(rows):
            length = len(self.ids[row])
            ids_BN[at, :length] = torch.tensor(self.ids[row])
            types_BN[at, :length] = torch.tensor(self.types[row])
            mask_BN[at, :length] = 1
        told = {"input_ids": ids_BN, "attention_mask": mask_BN, "token_type_ids": types_BN}
        return {name: tensor.to(device) for name, tensor in told.items()}, self.label_R[rows].to(device)


def train(
    config: ClassifierConfig,
    name: str,
    data: TextData,
    start: Start,
    device: str = "cpu",
    progress: Progress = silent,
    checkpoint: Checkpoint = lambda epoch, classifier: None,
) -> tuple[Classifier, Curves]:
    """The best classifier by held-out loss, and its curves."""
    torch.manual_seed(config.seed)
    where = torch.device(device)
    model = start.model(len(data.classes) or 1).to(where)
    _shorten(model, config.layers)
    rows, standard = _encode(config, data, start.tokenizer)
    order = np.random.default_rng(config.seed).permutation(len(rows.ids)).astype(np.int64)
    held, seen = np.split(order, [max(1, round(config.held_out * len(order)))])
    run = _Run(config, model, rows, where, start.fresh)
    best, kept, stale = math.inf, weights(model), 0
    curves: list[tuple[float, float, float]] = []

    def stored(values: dict[str, NDArray[np.float32]]) -> Classifier:
        told = model.config.to_json_string(use_diff=False)  # type: ignore[union-attr,operator]
        text = start.tokenizer.to_str()
        return Classifier(name, data.name, data.classes, told, text, config.max_length, data.fingerprint, values)

    steps = config.epochs * math.ceil(len(seen) / config.batch)
    optimizer = run.optimizer()
    done = 0
    for epoch in range(config.epochs):
        losses = []
        for index in _batches(rows, seen, config.batch, config.seed + epoch):
            losses.append(run.step(optimizer, index, done, steps) * len(index))
            done += 1
            progress(done, steps)
        loss, score = run.judge(held)
        curves.append((sum(losses) / len(seen), loss, score))
        if loss < best:
            best, kept, stale = loss, _rescaled(weights(model), standard), 0
            checkpoint(epoch, stored(kept))
        elif (stale := stale + 1) > config.patience:
            progress(steps, steps)
            break
    return stored(kept), Curves(*(tuple(float(v) for v in column) for column in zip(*curves, strict=True)))


@dataclass(frozen=True, slots=True)
class _Run:
    config: ClassifierConfig
    model: nn.Module
    rows: _Rows
    device: torch.device
    fresh: bool  # nothing has been trained before

    def optimizer(self) -> torch.optim.Optimizer:
        known = {id(p) for p in _encoder(self.model).parameters()} if not self.fresh else set()
        groups = [
            {"params": [p for p in self.model.parameters() if id(p) in known], "peak": self.config.rate},
            {"params": [p for p in self.model.parameters() if id(p) not in known], "peak": self.config.head_rate},
        ]
        # fused: the update of the vocabulary's rows would take as long as the batch itself
        return torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=self.config.rate, weight_decay=self.config.decay, fused=True
        )

    def step(self, optimizer: torch.optim.Optimizer, index: NDArray[np.int64], step: int, steps: int) -> float:
        share = _schedule(step, steps, self.config.warmup)
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
        self.model.train()
        told, label_B = self.rows.batch(index, self.device)
        loss = self._loss(told, label_B, self.config.smoothing)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    def _loss(self, told: dict[str, Tensor], label_B: Tensor, smoothing: float) -> Tensor:
        output_BK = self._run(told)
        if output_BK.shape[1] == 1:
            return mse_loss(output_BK[:, 0], label_B)
        return cross_entropy(output_BK, label_B, label_smoothing=smoothing)

    def _run(self, told: dict[str, Tensor]) -> Tensor:
        with lowered(self.config.precision, self.device):
            logits: Tensor = self.model(**told).logits
        return logits.float()

    @torch.no_grad()
    def judge(self, index: NDArray[np.int64]) -> tuple[float, float]:
        """Mean loss and score on these rows."""
        self.model.eval()
        outputs, labels = [], []
        for part in _batches(self.rows, index, 4 * self.config.batch, 0):
            told, label_B = self.rows.batch(part, self.device)
            outputs.append(self._run(told).cpu())
            labels.append(label_B.cpu())
        output_RK, label_R = torch.cat(outputs), torch.cat(labels)
        if output_RK.shape[1] == 1:
            pair = torch.stack([output_RK[:, 0], label_R])
            return float(mse_loss(*pair)), float(torch.nan_to_num(torch.corrcoef(pair)[0, 1]))
        right = (output_RK.argmax(1) == label_R).float().mean()
        return float(cross_entropy(output_RK, label_R)), float(right)


def encode(tokenizer: Tokenizer, texts: list[tuple[str, str | None]], max_length: int) -> list[Any]:
    """Encodings cut to `max_length` tokens; the longer half of a pair is cut first."""
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    try:
        return list(tokenizer.encode_batch([first if second is None else (first, second) for first, second in texts]))
    finally:
        tokenizer.no_truncation()


def _encode(config: ClassifierConfig, data: TextData, tokenizer: Tokenizer) -> tuple[_Rows, tuple[float, float]]:
    """The fit split. A regression's labels are learnt standardised: (mean, deviation)."""
    encoded = encode(tokenizer, data.texts(data.split.fit), config.max_length)
    labels = data.labels[data.split.fit]
    mean, deviation = (float(labels.mean()), float(labels.std()) or 1.0) if data.regression else (0.0, 1.0)
    label_R = torch.from_numpy((labels - mean) / deviation).float() if data.regression else torch.from_numpy(labels)
    return _Rows([e.ids for e in encoded], [e.type_ids for e in encoded], label_R), (mean, deviation)


def _rescaled(values: dict[str, NDArray[np.float32]], standard: tuple[float, float]) -> dict[str, NDArray[np.float32]]:
    """A regressor that gives the label's own unit: the last linear layer takes mean and deviation in."""
    mean, deviation = standard
    if (mean, deviation) == (0.0, 1.0):
        return values
    *_, bias = (name for name in values if name.endswith(".bias") and values[name].shape == (1,))
    weight = bias.removesuffix("bias") + "weight"
    return values | {weight: values[weight] * deviation, bias: (values[bias] * deviation + mean).astype(np.float32)}


def _batches(rows: _Rows, index: NDArray[np.int64], batch: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Rows of like length together, in random order of batches: sorted by length within runs of 50 batches."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(index)
    made = []
    for at in range(0, len(shuffled), 50 * batch):
        run = shuffled[at : at + 50 * batch]
        run = run[np.argsort([len(rows.ids[i]) for i in run], kind="stable")]
        made += [run[start : start + batch] for start in range(0, len(run), batch)]
    return iter([made[i] for i in rng.permutation(len(made))])


def _schedule(step: int, steps: int, warmup: float) -> float:
    """Linear up over the warm-up, then linear down to zero: BERT's."""
    rise = max(1, round(warmup * steps))
    return min((step + 1) / rise, max(0.0, (steps - step) / max(1, steps - rise)))


def _encoder(model: nn.Module) -> nn.Module:
    """What transformers' base model holds: all but the head."""
    found: nn.Module = model.base_model  # type: ignore[assignment]
    return found


def _shorten(model: nn.Module, count: int | None) -> None:
    """Keep the first `count` layers."""
    present = layers(model)
    if count is None or count == len(present):
        return
    if not 0 < count <= len(present):
        raise InputError("layers", count, f"from 1 to {len(present)}")
    del present[count:]
    model.config.num_hidden_layers = count  # type: ignore[union-attr,assignment]
