"""The loads `azure` and `sharegpt` of `pliant simulate packing`: old words for data beside a checkout.

They go with the next release, and this file with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.packing import traces
from pliant.benchmarks.packing.forecasts import by_prompt
from pliant.cli import loads
from pliant.errors import InputError

AZURE_SECONDS = "300"


@dataclass(frozen=True)
class Recorded:
    """n requests. `times` in seconds, ascending; `lengths`: tokens of prompts, of outputs; `left_out`: too long ones."""

    times: NDArray[np.float64]
    lengths: tuple[NDArray[np.int64], NDArray[np.int64]]
    forecasts: NDArray[np.float64]
    buckets: NDArray[np.int64]
    left_out: int


def recorded(load: str, name: str, numbers: Sequence[str], context: int, seed: int, most: int) -> Recorded:
    """Return the requests of `azure[:SECONDS]` as recorded, or of `sharegpt:RATE:SECONDS`, with a warning.

    `numbers`: the words of `load` behind its `name`. `most`: requests that `load` may have. Raises `InputError`.
    """
    loads.warn(name, "trace:FILE, with the columns seconds, prompt_tokens, output_tokens")
    if name == "azure":
        rate, seconds = 0.0, _seconds(load, numbers)
    else:
        rate, seconds = loads.rate_and_seconds(load, numbers, most)
    known = by_prompt(traces.lengths(name), context)
    lengths = known.lengths
    if rate:
        arrivals = traces.at_rate(lengths, rate, seconds, seed)
    else:
        start = float(lengths.seconds[0]) if len(lengths.seconds) else 0.0
        arrivals = traces.as_recorded(lengths, start, seconds)
    rows = arrivals.rows
    tokens = lengths.prompt[rows], lengths.output[rows]
    return Recorded(arrivals.arrivals, tokens, known.forecasts_NL[rows], known.buckets[rows], known.left_out)


def _seconds(load: str, numbers: Sequence[str]) -> float:
    try:
        (seconds,) = (float(number) for number in numbers or [AZURE_SECONDS])
    except ValueError:
        raise InputError("load", load, "azure or azure:SECONDS, a number") from None
    if not 0 < seconds < float("inf"):
        raise InputError("load", load, "azure:SECONDS, above 0")
    return seconds
