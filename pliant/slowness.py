"""How many times the profile's seconds launches take, learnt from launches: right soon after a change, unmoved by a pause.

The latest launches' middle says where the ratio lies, so a pause, a warm-up or a clock that jumps, which are few among
them, move nothing. Near the middle the ratio is smoothed, as noise wants it. Reads no clock.
"""

from __future__ import annotations

from collections import deque

SEEN = 9  # launches whose middle counts
NEAR = 2.0  # times the middle, or its part, beyond which a launch counts as this; and beyond which the middle itself counts
LEARN = 0.1  # weight of the latest launch
RARE = 0.02  # the same in the mean of what pauses cost
RATIOS = (1e-3, 1e3)  # bounds of what one launch can say


class Slowness:
    """Begins with the profile being right, on the word of `trusted` launches that never ran."""

    def __init__(self, trusted: int = 2) -> None:
        self._latest, self._trusted = deque([1.0] * trusted, SEEN), trusted
        self.mean = 1.0
        self.least = 1.0  # of the latest launches: what a launch may hope for
        self.excess = 0.0  # mean seconds of a launch beyond what counts: what pauses cost

    def learn(self, measured: float, expected: float) -> None:
        """Note the seconds that a launch took and those of the profile, both above 0."""
        low, high = RATIOS
        ratio = min(max(measured / expected, low), high)
        self._latest.append(ratio)
        middle = sorted(self._latest)[(len(self._latest) - 1) // 2]
        self.mean += LEARN * (min(max(ratio, middle / NEAR), middle * NEAR) - self.mean)
        if not middle / NEAR <= self.mean <= middle * NEAR:
            self.mean = middle
        self.least = min(self._latest)
        if len(self._latest) > 2 * self._trusted:  # before, a slow device looks as if it paused
            self.excess += RARE * (max(measured - middle * NEAR * expected, 0.0) - self.excess)
