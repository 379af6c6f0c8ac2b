"""How long the requests of a stream are, in tokens: from texts, from a service's journal or from a file of lengths.

The result is a histogram [max_length + 1] by length; longer texts count as `max_length`, to which they are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pliant.bins.artifact import Encoder
from pliant.errors import InputError
from pliant.journal import decode
from pliant.jsonl import Torn, complete_lines
from pliant.progress import Progress, silent
from pliant.protocol import Arrived
from pliant.training.tables import Faults, read

Histogram = NDArray[np.int64]
Texts = Sequence[tuple[str, str | None]]

COLUMNS = ("length", "lengths", "tokens")
ARRIVED = '"type": "arrived"'
"""Stands in every line of a journal that records an arrival; other lines need not be decoded."""
CHUNK = 256  # texts between two reports of progress


def of_texts(texts: Texts, encoder: Encoder, progress: Progress = silent) -> Histogram:
    """Return the lengths of these texts as the service would read them (of a pair: both texts together)."""
    tokenizer = Tokenizer.from_str(encoder.tokenizer)
    lengths: list[int] = []
    for start in range(0, len(texts), CHUNK):
        part = [first if second is None else (first, second) for first, second in texts[start : start + CHUNK]]
        lengths += [len(encoding.ids) for encoding in tokenizer.encode_batch(part)]
        progress(min(start + CHUNK, len(texts)), len(texts))
    return histogram(lengths, encoder.max_length)


def of_journal(path: Path, task: str, max_length: int) -> Histogram:
    """Return the lengths of one task's requests in a service's journal.

    A last line without its end, which a killed service leaves, is skipped. Any other line that is no journal entry is
    passed over, and the log says how many were. Raises `InputError` for a file that cannot be read.
    """
    torn = Torn(path)
    lengths = histogram(_arrived(path, task, torn), max_length)
    torn.report("journal entries")
    return lengths


def of_parquet(path: Path, column: str | None, max_length: int) -> Histogram:
    """Return the lengths in a column of a parquet file: the named one, else one of the usual names.

    Raises `InputError` for a file or column that cannot be read.
    """
    names = (column,) if column else COLUMNS
    table = read("parquet", path, names, Faults(), "lengths")
    if not table.columns:
        raise InputError("the column of lengths", ", ".join(table.names), f"one of {', '.join(names)}")
    return histogram(next(table.columns[name] for name in names if name in table.columns), max_length)


def histogram(lengths: Iterable[object], max_length: int) -> Histogram:
    """Return [max_length + 1] the number of requests by length. Raises `InputError` for a length below 1."""
    length_R = np.asarray(list(lengths))
    if not len(length_R):
        return np.zeros(max_length + 1, dtype=np.int64)
    if length_R.dtype.kind not in "iuf" or not np.all(length_R >= 1):
        raise InputError("lengths", "others", "numbers of tokens, at least 1 each")
    cut_R = np.minimum(np.ceil(length_R), max_length).astype(np.int64)
    return np.bincount(cut_R, minlength=max_length + 1).astype(np.int64)


def _arrived(path: Path, task: str, torn: Torn) -> Iterator[int]:
    for number, line in enumerate(complete_lines(path, "journal"), start=1):
        if ARRIVED in line:
            with torn.pass_over(number):
                event = decode(line).event
                if isinstance(event, Arrived) and event.request.task == task and event.request.length:
                    yield event.request.length
