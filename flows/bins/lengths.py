"""Reads a stream's lengths from the first of its sources that has enough requests. Knows no Prefect."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Encoder
from pliant.errors import InputError
from pliant.flows.bins.config import DATA, EdgesConfig, StreamConfig
from pliant.progress import Progress
from pliant.training.bins import lengths
from pliant.training.text_data import TextData


@dataclass(frozen=True, slots=True)
class Lengths:
    """A stage's result alone."""

    KIND: ClassVar[str] = "bins-lengths"
    SCHEMA: ClassVar[int] = 1

    source: str  # as the settings call it
    requests: NDArray[np.int64]  # [max_length + 1] by length


def digests(stream: StreamConfig) -> list[str]:
    """Return the digests of the files that hold lengths, as they are now: a journal grows."""
    return [_digest(path) for source in stream.lengths if source != DATA for path in _paths(source)]


def observe(
    stream: StreamConfig, name: str, encoder: Encoder, data: TextData | None, edges: EdgesConfig, progress: Progress
) -> Lengths:
    """Return the lengths of the first source of `edges.least` requests. Raises `InputError` where there is none."""
    shortages = []
    for source in stream.lengths:
        requests_N = _read(source, name, encoder, data, progress)
        if requests_N is not None and requests_N.sum() >= edges.least:
            return Lengths(source, requests_N)
        count = "no such file" if requests_N is None else f"{requests_N.sum()} requests"
        shortages.append(f"{source} has {count}")
    raise InputError(f"lengths of {name}", "; ".join(shortages), f"at least {edges.least} requests (edges.least)")


def _read(
    source: str, name: str, encoder: Encoder, data: TextData | None, progress: Progress
) -> NDArray[np.int64] | None:
    """Return requests by length; None where the file is not there."""
    if source == DATA:
        if data is None:
            return None
        return lengths.of_texts(data.texts(np.arange(len(data.first))), encoder, progress)
    paths = _paths(source)
    if not paths:
        return None
    if source.startswith("journal:"):
        none_N = np.zeros(encoder.max_length + 1, dtype=np.int64)
        return sum((lengths.of_journal(path, name, encoder.max_length) for path in paths), start=none_N)
    column = source.partition(":")[2].partition(":")[2]
    return lengths.of_parquet(paths[0], column or None, encoder.max_length)


def _paths(source: str) -> list[Path]:
    """Return the files that are there. A service numbers its later journals: journal.jsonl, journal-2.jsonl, and so on.

    Each is followed by the files of former runs, and of former parts of its run: journal.jsonl.1 and so on.
    """
    scheme, _, rest = source.partition(":")
    path = Path(rest if scheme == "journal" else rest.partition(":")[0])
    if scheme != "journal":
        return [path] if path.is_file() else []
    later = f"{path.stem}-[0-9]*{path.suffix}"
    patterns = (path.name, f"{path.name}.[0-9]*", later, f"{later}.[0-9]*")
    return sorted(file for pattern in patterns for file in path.parent.glob(pattern) if file.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
