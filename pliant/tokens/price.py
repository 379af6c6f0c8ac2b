"""The price of device time: the dual price of the fluid problem over (kind of request, gamma).

Every kind of request climbs the concave hull of (seconds, utility x accuracy) over the gammas. The steps of all kinds
are taken by falling utility per second until the devices are full; the price is that of the last step taken. A request
at its best gamma under this price gets what the fluid optimum would give it (fractional knapsack, Dantzig 1957).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hull:
    """Steps from not being served up to the best gamma: seconds and worth that each adds, worth per second falling."""

    seconds_S: Floats
    worth_S: Floats


def hull(seconds_G: Floats, worth_G: Floats) -> Hull:
    """Return the upper concave hull of (0, 0) and all gammas' (seconds, worth); empty where no gamma is worth anything."""
    at, had = 0.0, 0.0
    steps: list[tuple[float, float]] = []
    while (better := worth_G > had + 1e-12).any():
        # The steepest step; where a slower gamma is as steep, the larger step lies on the same line.
        slope_G = np.where(better, (worth_G - had) / np.maximum(seconds_G - at, 1e-12), -np.inf)
        best = int(slope_G.argmax())
        steps.append((max(float(seconds_G[best]) - at, 1e-12), float(worth_G[best]) - had))
        at, had = float(seconds_G[best]), float(worth_G[best])
    table = np.array(steps).reshape(-1, 2)
    return Hull(table[:, 0], table[:, 1])


def price(demand: Iterable[tuple[Hull, float]], capacity: float) -> float:
    """Return the utility of one more device-second: 0 where the devices can give every request its best gamma.

    `demand`: (hull, requests) of each kind over some time; `capacity`: device-seconds in that time.
    """
    segments = [
        (steps.worth_S / steps.seconds_S, steps.seconds_S * count)
        for steps, count in demand
        if count > 0 and len(steps.seconds_S)
    ]
    if not segments:
        return 0.0
    density_S = np.concatenate([density for density, _ in segments])
    seconds_S = np.concatenate([seconds for _, seconds in segments])
    order = np.argsort(-density_S, kind="stable")
    full = seconds_S[order].cumsum().searchsorted(capacity, side="right")
    return 0.0 if full == len(order) else float(density_S[order[full]])
