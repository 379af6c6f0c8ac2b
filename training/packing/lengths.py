"""Prompts with the tokens of their outputs, by which length predictors are trained and measured.

Observed lengths come from the generator that is served. Those of a data set are the lengths of its own answers, counted
with a byte-level BPE of 8,192 tokens that is trained on them, plus one for the end token. Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training import groups
from pliant.training.packing.generator import new_tokenizer
from pliant.training.tables import Faults, read

VOCABULARY = 8192
COLUMNS = ("instruction", "input", "output")
ALPACA = "Below is an instruction that describes a task"
RESPONSE = "\n\n### Response:\n"


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


def join(first: LengthData, second: LengthData) -> LengthData:
    """Return the rows of both, under the first one's name."""
    pairs = [*zip(first.prompts, first.tokens, strict=True), *zip(second.prompts, second.tokens, strict=True)]
    return observed(first.name, ((prompt, int(tokens)) for prompt, tokens in pairs))


def divide(data: LengthData, share: float, seed: int = 0) -> tuple[LengthData, LengthData]:
    """Return rows to fit and rows to test (`share` of the prompts), drawn by the seed. Equal prompts stay together.

    Raises `InputError` for a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise InputError("share", share, "between 0 and 1")
    held, fit = groups.divide(groups.of_texts(data.prompts), share, seed)
    return take(data, np.sort(fit)), take(data, np.sort(held))


def load(path: Path, name: str | None = None) -> LengthData:
    """Return a parquet file with the columns instruction, input and output, as Alpaca has. Raises `InputError`."""
    rows = [(instruction, given, answer.strip()) for instruction, given, answer in _read(path) if answer.strip()]
    answers = [answer for _, _, answer in rows]
    tokenizer = new_tokenizer(answers, VOCABULARY)
    lengths = [len(encoding.ids) + 1 for encoding in tokenizer.encode_batch(answers)]
    prompts = [alpaca_prompt(instruction, given) for instruction, given, _ in rows]
    return observed(name or path.stem, zip(prompts, lengths, strict=True))


def alpaca_prompt(instruction: str, given: str = "") -> str:
    """Return the prompt in the form of Alpaca's training (Taori et al. 2023)."""
    if not given.strip():
        preamble = f"{ALPACA}. Write a response that appropriately completes the request."
        return f"{preamble}\n\n### Instruction:\n{instruction}{RESPONSE}"
    preamble = f"{ALPACA}, paired with an input that provides further context."
    preamble = f"{preamble} Write a response that appropriately completes the request."
    return f"{preamble}\n\n### Instruction:\n{instruction}\n\n### Input:\n{given}{RESPONSE}"


def _read(path: Path) -> list[tuple[str, str, str]]:
    table = read("parquet", path, COLUMNS, Faults())
    if lacking := [column for column in COLUMNS if column not in table.names]:
        raise InputError("the columns", ", ".join(table.names), f"such that {', '.join(lacking)} are among them")
    rows = zip(*(table.columns[column] for column in COLUMNS), strict=True)
    return [(instruction or "", given or "", output or "") for instruction, given, output in rows]
