"""The loads `twitter-...` of `pliant simulate bins`: old words for data beside a checkout.

They go with the next release, and this file with them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.bins.traces import bursty, stable
from pliant.cli import loads
from pliant.errors import InputError


def twitter(load: str, seed: int, kinds: str, most: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return arrival times in seconds and lengths in tokens, with a warning.

    `load`: twitter-stable:RATE:SECONDS or twitter-bursty:RATE:SECONDS[:drift]. Raises `InputError` for any other, which
    names the known `kinds`, and for more than `most` requests.
    """
    loads.warn("twitter-...", "trace:FILE, with the columns seconds and length")
    kind, *numbers = load.split(":")
    drift = kind == "twitter-bursty" and numbers[2:] == ["drift"]
    if kind not in ("twitter-stable", "twitter-bursty"):
        raise InputError("load", load, kinds)
    rate, seconds = loads.rate_and_seconds(load, numbers[:2] if drift else numbers, most)
    trace = (stable if kind == "twitter-stable" else bursty)(rate, seconds, seed, drift)
    return trace.times, trace.lengths.astype(np.int64)
