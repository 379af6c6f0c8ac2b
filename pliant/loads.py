"""Loads that anybody has, as `pliant simulate --load` names them: arrivals at a rate, or a recorded trace.

`poisson:RATE:SECONDS` and `bursty:RATE:SECONDS` are drawn, `trace:FILE` is read from a csv or parquet file with the column
`seconds` and those that a system asks for. Every system has a load `reference` of its own besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.workload import Times, markov_modulated, poisson

DRAWN = "reference, poisson:RATE:SECONDS, bursty:RATE:SECONDS"
TRACE, SECONDS = "trace:", "seconds"
QUIET, LOUD, STRETCH = 0.5, 1.5, 5.0  # of a bursty load: rates over the mean rate, seconds of a stretch on average


def drawn(load: str, kinds: str, most: int, rng: np.random.Generator) -> Times:
    """Return the arrival times of a load that is drawn, in seconds.

    Raises `InputError` for numbers that are none, or more than `most` requests; for a load of another kind with `kinds`,
    those that there are.
    """
    kind, *numbers = load.split(":")
    if kind not in ("poisson", "bursty"):
        raise InputError("load", load, kinds)
    rate, seconds = rate_and_seconds(load, numbers, most)
    if kind == "poisson":
        return poisson(rate, seconds, rng)
    return markov_modulated((QUIET * rate, LOUD * rate), STRETCH, seconds, rng)[1]


def rate_and_seconds(load: str, numbers: Sequence[str], most: int) -> tuple[float, float]:
    """Return requests a second, and seconds, from the words behind a load's kind. Raises `InputError`."""
    form = f"{load.partition(':')[0]}:RATE:SECONDS"
    try:
        rate, seconds = (float(number) for number in numbers)
    except ValueError:
        raise InputError("load", load, f"{form}, two numbers") from None
    if not (0 < rate < float("inf") and 0 < seconds < float("inf")):
        raise InputError("load", load, f"{form}, both above 0")
    if not rate * seconds <= most:
        raise InputError("load", load, f"{form} of at most {most:,} requests")
    return rate, seconds


def trace(load: str, columns: Sequence[str], most: int) -> dict[str, NDArray[np.float64]]:
    """Return the recorded requests of `trace:FILE`: `seconds` from the first on, ascending, and the other columns.

    Raises `InputError` for a file that cannot be read, lacks a column, or holds a time below 0 or something else than
    numbers.
    """
    path, wanted = Path(load.removeprefix(TRACE)), [SECONDS, *columns]
    table = read_table(path, f"{TRACE}FILE, a csv or parquet file with the columns {', '.join(wanted)}")
    missing = [column for column in wanted if column not in table.columns]
    if missing:
        raise InputError("load", path, f"a file with the columns {', '.join(wanted)} (it has no {missing[0]})")
    try:
        numbers = table[wanted].astype(float).sort_values(SECONDS)
    except (TypeError, ValueError) as error:
        raise InputError("load", path, f"a file with numbers in {', '.join(wanted)}") from error
    if not 0 < len(numbers) <= most or not np.isfinite(numbers).all(axis=None):
        raise InputError("load", path, f"a file of 1 to {most:,} requests, none with a missing number")
    if numbers[SECONDS].iloc[0] < 0:
        raise InputError(
            "load", path, f"a file with times of at least 0 in {SECONDS} (it has {numbers[SECONDS].iloc[0]:g})"
        )
    values = {column: numbers[column].to_numpy(float) for column in wanted}
    return values | {SECONDS: values[SECONDS] - values[SECONDS][0]}


def read_table(path: Path, kinds: str) -> Any:
    """Return a csv or parquet file as a data frame.

    Raises `InputError` where it cannot be read; where there is no such file, with `kinds`, the loads that there are.
    """
    import pandas

    if not path.is_file():
        raise InputError("load", path, kinds)
    try:
        return pandas.read_csv(path) if path.suffix == ".csv" else pandas.read_parquet(path)
    except Exception as error:  # its readers pass on whatever they meet
        kind = "csv" if path.suffix == ".csv" else "parquet (a csv file needs a name that ends in .csv)"
        reason = type(error).__name__ if path.stat().st_size else "it is empty"
        raise InputError("load", path, f"a file that can be read as {kind}: {reason}") from error
