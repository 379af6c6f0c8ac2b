"""What a second of device time is worth: the dual price of the fluid problem over (kind of request, gamma).

Every kind of request climbs the concave hull of (seconds, utility x accuracy) over the gammas; under a load the steps of all
kinds are taken by falling utility per second until the devices are full, and the price is that of the last step taken. A
request at its best gamma under this price is what the fluid optimum would give it (fractional knapsack, Dantzig 1957).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hull:
    """Steps from nothing at all to the best gamma: seconds and worth added by each, worth per second falling."""

    seconds_S: Floats
    worth_S: Floats


def hull(seconds_G: Floats, worth_G: Floats) -> Hull:
    """The upper concave hull of (0, 0) and all gammas' (seconds, worth), as steps; empty where nothing is worth anything."""
    at, had = 0.0, 0.0
    steps: list[tuple[float, float]] = []
    while (better := worth_G > had + 1e-12).any():
        # Steepest step from here; where a slower gamma gains as steeply the larger step is the same line.
        slope_G = np.where(better, (worth_G - had) / np.maximum(seconds_G - at, 1e-12), -np.inf)
        best = int(slope_G.argmax())
        steps.append((max(float(seconds_G[best]) - at, 1e-12), float(worth_G[best]) - had))
        at, had = float(seconds_G[best]), float(worth_G[best])
    table = np.array(steps).reshape(-1, 2)
    return Hull(table[:, 0], table[:, 1])


def price(demand: Iterable[tuple[Hull, float]], capacity: float) -> float:
    """Utility per device-second at the margin: `demand` gives requests (a second, say) per hull, `capacity` device-seconds.

    0 where the devices can give every request its best gamma.
    """
    parts = [(h.worth_S / h.seconds_S, h.seconds_S * count) for h, count in demand if count > 0 and len(h.seconds_S)]
    if not parts:
        return 0.0
    density_S = np.concatenate([density for density, _ in parts])
    seconds_S = np.concatenate([seconds for _, seconds in parts])
    order = np.argsort(-density_S, kind="stable")
    full = seconds_S[order].cumsum().searchsorted(capacity, side="right")
    return 0.0 if full == len(order) else float(density_S[order[full]])
