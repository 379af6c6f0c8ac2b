"""Prompts and how many tokens were put out for each: what a predictor of lengths learns from and is judged by.

Observed ones come from the generator that is served; a data set's are the lengths of its own answers, counted with a
byte-level BPE of 8,192 tokens that is trained on them, plus one for the end. Knows no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from training.packing.generator import new_tokenizer

VOCABULARY = 8192
COLUMNS = ("instruction", "input", "output")
ALPACA = "Below is an instruction that describes a task"
RESPONSE = "\n\n### Response:\n"


@dataclass(frozen=True, slots=True)
class LengthData:
    """`tokens` [R] that were put out, each at least 1; `fingerprint` identifies both columns."""

    name: str
    prompts: tuple[str, ...]
    tokens: NDArray[np.int32]
    fingerprint: str


def observed(name: str, pairs: Iterable[tuple[str, int]]) -> LengthData:
    """From prompts and the tokens that were put out for them. Raises `InputError`."""
    told = list(pairs)
    prompts, tokens = tuple(prompt for prompt, _ in told), np.array([length for _, length in told], dtype=np.int64)
    if not told or tokens.min() < 1:
        raise InputError(
            "lengths", f"{tokens.min()} tokens" if told else "none", "one or more, of at least 1 token each"
        )
    mark = sha256(tokens.astype("<i8").tobytes())
    for prompt in prompts:
        mark.update(prompt.encode(errors="surrogatepass") + b"\0")
    return LengthData(name, prompts, tokens.astype(np.int32), f"sha256:{mark.hexdigest()}")


def take(data: LengthData, rows: Sequence[int] | NDArray[np.int64]) -> LengthData:
    """Only these rows, in this order."""
    return observed(data.name, ((data.prompts[row], int(data.tokens[row])) for row in rows))


def join(first: LengthData, second: LengthData) -> LengthData:
    """The rows of both, under the first one's name."""
    pairs = [*zip(first.prompts, first.tokens, strict=True), *zip(second.prompts, second.tokens, strict=True)]
    return observed(first.name, ((prompt, int(tokens)) for prompt, tokens in pairs))


def divide(data: LengthData, share: float, seed: int = 0) -> tuple[LengthData, LengthData]:
    """The rows to fit and `share` of all to test by, drawn by the seed; equal prompts stay together. Raises `InputError`."""
    if not 0 < share < 1:
        raise InputError("share", share, "between 0 and 1")
    distinct = list(dict.fromkeys(data.prompts))
    order = np.random.default_rng(seed).permutation(len(distinct))
    held = {distinct[i] for i in order[: max(1, round(share * len(distinct)))]}
    rows = [[i for i, prompt in enumerate(data.prompts) if (prompt in held) == chosen] for chosen in (False, True)]
    return take(data, rows[0]), take(data, rows[1])


def load(path: Path, name: str | None = None) -> LengthData:
    """A parquet file with the columns instruction, input and output, as Alpaca and Dolly have. Raises `InputError`."""
    rows = [(ask, given, answer.strip()) for ask, given, answer in _read(path) if answer.strip()]
    answers = [answer for _, _, answer in rows]
    tokenizer = new_tokenizer(answers, VOCABULARY)
    lengths = [len(one.ids) + 1 for one in tokenizer.encode_batch(answers)]
    prompts = [alpaca_prompt(ask, given) for ask, given, _ in rows]
    return observed(name or path.stem, zip(prompts, lengths, strict=True))


def alpaca_prompt(instruction: str, given: str = "") -> str:
    """In the form that Alpaca was trained with (Taori et al. 2023)."""
    if not given.strip():
        told = f"{ALPACA}. Write a response that appropriately completes the request."
        return f"{told}\n\n### Instruction:\n{instruction}{RESPONSE}"
    told = f"{ALPACA}, paired with an input that provides further context."
    told = f"{told} Write a response that appropriately completes the request."
    return f"{told}\n\n### Instruction:\n{instruction}\n\n### Input:\n{given}{RESPONSE}"


def _read(path: Path) -> list[tuple[str, str, str]]:
    import datasets

    if not path.is_file():
        raise InputError("data", path, "an existing parquet file")
    try:
        rows = datasets.Dataset.from_parquet(str(path))
    except Exception as error:  # its readers pass on whatever they meet
        raise InputError("data", path, f"a readable parquet file ({type(error).__name__}: {error})") from error
    if lacking := [column for column in COLUMNS if column not in rows.column_names]:
        raise InputError("the columns", ", ".join(rows.column_names), f"such that {', '.join(lacking)} are among them")
    return [(row["instruction"] or "", row["input"] or "", row["output"] or "") for row in rows]
