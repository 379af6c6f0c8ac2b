"""Distils the small levels of a cascade from its large model: a bag of token n-grams, and heads on the large model's layers.

Both learn the large model's logits on texts whose labels need not be known, and a little from the labels that are. They
train on one core in seconds, as the bag has a row for each n-gram, and a head reads features that its trunk has computed
once. A token's row is its own plus a projection, which is learnt, of what the large model's own table says of the token: so
tokens that are alike begin alike, and one that no text had is guessed. Knows no trunk, no tokenizer, no data set.

Shape suffixes: R texts, B batch, K outputs (classes, or 1 in a regression), G n-grams, W width of the bag, V tokens, D width
of the trunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, mse_loss, softmax

from pliant.cascade.artifact import Bag, Exit
from pliant.cascade.bag import Tokens, grams
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.progress import Progress, silent
from pliant.training.classifier import schedule
from pliant.training.curves import note

DEEP = 12
"""Layers from which on a model gets two exits."""
WARMUP = 0.1  # share of all steps
OWN, PROJECTED = 0.1, 0.3  # deviations of a row's own part and of the projection before training
Index = NDArray[np.int64]
Stored = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.bool_]]
"""The numbers of a bag's n-grams [G], ascending, their rows [G, W], and whether a text to learn from has them [G]."""


@dataclass(frozen=True, slots=True)
class DistilConfig:
    """How the small levels are distilled. Raises `InputError` for values outside their limits."""

    bag: bool = True  # whether there is a bag
    tokens: bool = True  # whether it begins with the large model's table of tokens, unless that is from scratch
    exits: tuple[int, ...] | None = None  # after how many layers there are heads; None: chosen by the model's depth
    weight: float = 0.3  # of a known label, against 1 for the large model's logits
    temperature: float = 2.0  # by which both models' logits are divided where they are compared
    batch: int = 64  # texts
    most: int = 2**15  # n-grams that the bag knows, each a row of `width` numbers
    width: int = 96  # of the bag
    bag_epochs: int = 10
    bag_rate: float = 0.01
    hidden: int = 384  # width of a head
    exit_epochs: int = 10
    exit_rate: float = 1.5e-3
    seed: int = 0

    def __post_init__(self) -> None:
        exits = self.exits or ()
        if list(exits) != sorted({layers for layers in exits if layers > 0}):
            raise InputError("exits", self.exits, "numbers of layers from 1 on, ascending")
        if not 0 <= self.weight < math.inf:
            raise InputError("weight", self.weight, "a finite number from 0 on")
        for key in ("batch", "most", "width", "bag_epochs", "hidden", "exit_epochs"):
            if getattr(self, key) < 1:
                raise InputError(key, getattr(self, key), "at least 1")
        for key in ("temperature", "bag_rate", "exit_rate"):
            if not 0 < getattr(self, key) < math.inf:
                raise InputError(key, getattr(self, key), "a finite number above 0")


def exit_layers(layers: int, config: DistilConfig) -> tuple[int, ...]:
    """Return after how many of a model's `layers` there are exits. Raises `InputError` for one at or beyond the last.

    Unless the settings say it: after the first layer; after an eighth and a third of a deep model's; none of a single one.
    """
    if config.exits is None:
        chosen = (round(layers / 8), round(layers / 3)) if layers >= DEEP else (1,)
        return chosen if layers > 1 else ()
    if config.exits and config.exits[-1] >= layers:
        raise InputError("exits", config.exits[-1], f"below the layers of the large model, {layers}")
    return config.exits


def train_bag(
    config: DistilConfig,
    large: Classifier,
    large_digest: str,
    name: str,
    texts_fingerprint: str,
    readings: Sequence[Tokens],
    target_RK: NDArray[np.floating[Any]],
    label_R: NDArray[np.float64],
    token_VD: NDArray[np.float32],
    progress: Progress = silent,
) -> Bag:
    """Return the bag that answers as the large model does on these texts, of which it knows the n-grams.

    `readings`: the texts' tokens as the large model reads them; `target_RK`: its logits, or its values [R, 1]; `label_R`:
    the number of the class, or the value; NaN: not known; `token_VD`: its table of tokens, of which a bag of pairs uses
    nothing. The same seed gives the same bag on one thread. Raises `InputError` for targets that are not finite.
    """
    goal = _Goal.of(config, target_RK, label_R, regression=not large.classes)
    known_G, texts, silent_S = _texts([grams(*reading) for reading in readings], config.most)
    torch.manual_seed(config.seed)
    standard_VD = (token_VD - token_VD.mean(0)) / (token_VD.std() or 1.0)
    known = config.tokens and not any(types_N.any() for _, types_N in readings)
    rows = _Rows(known_G, standard_VD if known else standard_VD[:0], config.width)
    head = nn.Linear(config.width, goal.outputs)

    def answer(index: Index) -> Tensor:
        output_BK: Tensor = head(rows(*texts.batch(index)))
        return output_BK

    optimizers = (
        torch.optim.SparseAdam(rows.own.parameters(), lr=config.bag_rate),
        torch.optim.Adam([*rows.projection.parameters(), *head.parameters()], lr=config.bag_rate / 2),
    )
    _train(optimizers, goal, answer, config.bag_epochs, progress)
    number_G, table_GW, seen_G = rows.stored(known_G, silent_S, config.most)
    out, bias = goal.restored(head)
    return Bag(
        name,
        large.task,
        large.classes,
        large_digest,
        large.tokenizer,
        large.max_length,
        texts_fingerprint,
        number_G,
        table_GW,
        out,
        bias,
        seen_G,
    )


class _Rows(nn.Module):
    """The rows of a bag: each n-gram's own, to which a token adds a projection of its row in `token_VD`."""

    def __init__(self, known_G: NDArray[np.int32], token_VD: NDArray[np.float32], width: int) -> None:
        super().__init__()
        self._token_VD = torch.from_numpy(token_VD)
        self.own = nn.EmbeddingBag(max(1, len(known_G)), width, mode="mean", sparse=True)
        given_GD, token_G = torch.zeros(len(self.own.weight), token_VD.shape[1]), known_G < len(token_VD)
        given_GD[: len(known_G)][token_G] = self._token_VD[known_G[token_G]]
        self._given = nn.EmbeddingBag.from_pretrained(given_GD, mode="mean")
        self.projection = nn.Linear(token_VD.shape[1], width, bias=False)
        nn.init.normal_(self.own.weight, std=OWN)
        nn.init.normal_(self.projection.weight, std=PROJECTED / math.sqrt(token_VD.shape[1]))

    def forward(self, flat: Tensor, start_B: Tensor) -> Tensor:
        """Return [B, W] the mean rows of texts, whose n-grams stand one text after the other."""
        mean_BW: Tensor = self.own(flat, start_B) + self.projection(self._given(flat, start_B))
        return mean_BW

    def stored(self, known_G: NDArray[np.int32], silent_S: NDArray[np.int32], most: int) -> Stored:
        """Return the n-grams, their rows, and which were seen: beside the known ones at most `most` further tokens."""
        other_O = np.setdiff1d(np.arange(len(self._token_VD), dtype=np.int32), np.concatenate([known_G, silent_S]))[
            :most
        ]
        with torch.no_grad():
            known_GW = self.own.weight[: len(known_G)] + self.projection(self._given.weight[: len(known_G)])
            table_GW = torch.cat([known_GW, self.projection(self._token_VD[other_O])])
        number_G = np.concatenate([known_G, other_O])
        order_G = np.argsort(number_G)
        return number_G[order_G], _array(table_GW)[order_G], order_G < len(known_G)


def train_exit(
    config: DistilConfig,
    large: Classifier,
    large_digest: str,
    name: str,
    layers: int,
    texts_fingerprint: str,
    feature_RD: NDArray[np.floating[Any]],
    target_RK: NDArray[np.floating[Any]],
    label_R: NDArray[np.float64],
    progress: Progress = silent,
) -> Exit:
    """Return the head on the large model's first `layers` that answers as the whole of it does on these texts.

    `feature_RD` [R, 2 D]: the mean and then the maximum over a text's tokens of what these layers give. The rest is as
    for `train_bag`. Raises `InputError` for targets or features that are not finite.
    """
    goal = _Goal.of(config, target_RK, label_R, regression=not large.classes)
    if not np.isfinite(feature_RD).all():
        raise InputError("features", "not a number", "finite for every text")
    torch.manual_seed(config.seed)
    mean_D, deviation_D = feature_RD.mean(0, dtype=np.float64), feature_RD.std(0, dtype=np.float64) + 1e-3
    standard_RD = torch.from_numpy(((feature_RD - mean_D) / deviation_D).astype(np.float32))
    into, out = nn.Linear(standard_RD.shape[1], config.hidden), nn.Linear(config.hidden, goal.outputs)
    head = nn.Sequential(nn.Dropout(0.1), into, nn.GELU(), nn.Dropout(0.3), out)

    def answer(rows: Index) -> Tensor:
        output_BK: Tensor = head(standard_RD[rows])
        return output_BK

    optimizers = (torch.optim.AdamW(head.parameters(), lr=config.exit_rate, weight_decay=0.02, fused=True),)
    _train(optimizers, goal, answer, config.exit_epochs, progress)
    scaled = _array(into.weight) / deviation_D
    return Exit(
        name,
        large.task,
        large.classes,
        large_digest,
        layers,
        texts_fingerprint,
        scaled.astype(np.float32),
        (_array(into.bias) - scaled @ mean_D).astype(np.float32),
        *goal.restored(out),
    )


@dataclass(frozen=True, slots=True)
class _Goal:
    """What is learnt: the large model's outputs, and labels. Those of a regression are standardised."""

    config: DistilConfig
    target_RK: Tensor
    label_R: Tensor
    standard: tuple[float, float]  # mean and deviation
    regression: bool

    @staticmethod
    def of(config: DistilConfig, target_RK: NDArray[Any], label_R: NDArray[np.float64], regression: bool) -> _Goal:
        """Return the goal. Raises `InputError` for targets that are not finite."""
        if not len(target_RK):
            raise InputError("texts", "none", "at least one to learn from")
        if not np.isfinite(target_RK).all():
            raise InputError("logits of the large model", "not a number", "finite for every text")
        standard = (float(target_RK.mean()), float(target_RK.std()) or 1.0) if regression else (0.0, 1.0)
        target, label = ((values - standard[0]) / standard[1] for values in (target_RK, label_R))
        return _Goal(config, torch.tensor(target).float(), torch.tensor(label).float(), standard, regression)

    @property
    def outputs(self) -> int:
        return self.target_RK.shape[1]

    def loss(self, output_BK: Tensor, rows: Index) -> Tensor:
        """Return the mean loss of these rows: every label counts alike, however many are known."""
        target_BK, label_B = self.target_RK[rows], self.label_R[rows]
        known = ~label_B.isnan()
        if self.regression:
            own = mse_loss(output_BK, target_BK)
            labelled = mse_loss(output_BK[known, 0], label_B[known], reduction="sum")
        else:
            degrees = self.config.temperature
            soft = log_softmax(output_BK / degrees, 1), softmax(target_BK / degrees, 1)
            own = degrees**2 * kl_div(*soft, reduction="batchmean")
            labelled = cross_entropy(output_BK[known], label_B[known].long(), reduction="sum")
        return own + self.config.weight * labelled / len(rows)

    def restored(self, last: nn.Linear) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the weight and the bias of the last layer, which give outputs that are not standardised."""
        mean, deviation = self.standard
        return _array(last.weight) * np.float32(deviation), _array(last.bias) * np.float32(deviation) + np.float32(mean)


@dataclass(frozen=True, slots=True)
class _Texts:
    """The places of texts' n-grams in the table, one text after the other; text r ends where r + 1 begins."""

    flat: Index
    start: Index  # [R + 1]

    def batch(self, rows: Index) -> tuple[Tensor, Tensor]:
        """Return the n-grams of these texts, and [B] where each begins."""
        flat = np.concatenate([self.flat[self.start[row] : self.start[row + 1]] for row in rows])
        length_B = self.start[rows + 1] - self.start[rows]
        return torch.from_numpy(flat), torch.from_numpy(np.cumsum(length_B) - length_B)


def _texts(grams_R: Sequence[NDArray[np.int32]], most: int) -> tuple[NDArray[np.int32], _Texts, NDArray[np.int32]]:
    """Return [G] the n-grams that a bag knows, ascending, the texts by them, and [S] those that say nothing.

    These are the `most` that are in most texts, of equally common ones tokens first. Those that every text has equally
    often, such as the mark that it begins with, say nothing.
    """
    rows, length_R = len(grams_R), np.array([len(each) for each in grams_R])
    owner_L = np.repeat(np.arange(rows), length_R)
    distinct, gram_L = np.unique(np.concatenate(grams_R), return_inverse=True)
    pairs, count = np.unique(gram_L * rows + owner_L, return_counts=True)  # of an n-gram and a text that has it
    texts_G = np.bincount(pairs // rows)
    starts_G = np.cumsum(texts_G) - texts_G
    alike_G = (texts_G == rows) & (np.minimum.reduceat(count, starts_G) == np.maximum.reduceat(count, starts_G))
    common = np.argsort(np.where(alike_G, 0, -texts_G), kind="stable")[: min(most, np.count_nonzero(~alike_G))]
    known = np.sort(common)
    place_G = np.full(len(distinct), -1)
    place_G[known] = np.arange(len(known))
    place_L = place_G[gram_L]
    kept = place_L >= 0
    start = np.concatenate([[0], np.cumsum(np.bincount(owner_L[kept], minlength=rows))])
    return distinct[known], _Texts(place_L[kept], start), distinct[alike_G]


def _train(
    optimizers: Sequence[torch.optim.Optimizer],
    goal: _Goal,
    answer: Callable[[Index], Tensor],
    epochs: int,
    progress: Progress,
) -> None:
    """Train for so many epochs what gives the outputs [B, K] of a batch's rows, `answer`."""
    rng, rows, batch = np.random.default_rng(goal.config.seed), len(goal.label_R), goal.config.batch
    steps, done = epochs * math.ceil(rows / batch), 0
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    peaks = [group["lr"] for group in groups]
    for _ in range(epochs):
        order = rng.permutation(rows)
        for at in range(0, rows, batch):
            share = schedule(done, steps, WARMUP)
            for group, peak in zip(groups, peaks, strict=True):
                group["lr"] = peak * share
            index = order[at : at + batch]
            loss = goal.loss(answer(index), index)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            note("loss", done, steps, loss.detach())
            done += 1
            progress(done, steps)


def _array(values: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = values.detach().numpy()
    return array
