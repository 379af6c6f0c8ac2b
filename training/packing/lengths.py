"""Prompts with the tokens of their outputs, by which length predictors are trained and measured. Knows no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training import groups


@dataclass(frozen=True, slots=True)
class LengthData:
    """Prompts, and the tokens [R] of their outputs, each at least 1. `fingerprint` identifies both."""

    name: str
    prompts: tuple[str, ...]
    tokens: NDArray[np.int32]
    fingerprint: str


def observed(name: str, pairs: Iterable[tuple[str, int]]) -> LengthData:
    """Return the data of (prompt, output tokens). Raises `InputError` without pairs, and for an empty output."""
    rows = list(pairs)
    prompts, tokens = tuple(prompt for prompt, _ in rows), np.array([length for _, length in rows], dtype=np.int64)
    if not rows or tokens.min() < 1:
        raise InputError(
            "lengths", f"{tokens.min()} tokens" if rows else "none", "one or more, of at least 1 token each"
        )
    digest = sha256(tokens.astype("<i8").tobytes())
    for prompt in prompts:
        digest.update(prompt.encode(errors="surrogatepass") + b"\0")
    return LengthData(name, prompts, tokens.astype(np.int32), f"sha256:{digest.hexdigest()}")


def take(data: LengthData, rows: Sequence[int] | NDArray[np.int64]) -> LengthData:
    """Return these rows only, in this order. Raises `InputError` without rows."""
    return observed(data.name, ((data.prompts[row], int(data.tokens[row])) for row in rows))


def divide(data: LengthData, share: float, seed: int = 0) -> tuple[LengthData, LengthData]:
    """Return rows to fit and rows to test (`share` of the prompts), drawn by the seed. Equal prompts stay together.

    Raises `InputError` for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise InputError("share", share, "between 0 and 1")
    held, fit = groups.divide(groups.of_texts(data.prompts), share, seed)
    return take(data, np.sort(fit)), take(data, np.sort(held))
