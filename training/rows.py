"""Texts as rows of tokens, and the batches on which a classifier is trained.

Shape suffixes: R rows, B batch, N tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from pliant.training.text_data import TextData


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
