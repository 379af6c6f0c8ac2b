"""Turns of both releases at all of the requests: what a share of them hides, a queue that grows, shows.

A challenger with a share of the requests has the devices of its own for few of them. So both take turns at all of them, in
pairs of turns whose order a hash draws. A pair compares how many answers were late of the requests that came in the later
half of each turn. As both of a pair are of the same time and equally often the first, a load that changes favours nobody
(a switchback experiment: Bojinov, Simchi-Levi and Zhao, Management Science, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated

from pydantic import Field

from pliant.rollout.measures import ARMS, Arm, Sums
from pliant.state import Sum, Whole

TURNS = 20  # that the seconds of a step of the canary have, or more
ANSWERS = 4.0  # times what nearly all of the champion's answers take, that a turn takes at least, up to half a step
LEAST_TURN = 0.05  # seconds
PAUSE = 0.5  # turns after a pair in which its last answers come
PAIRS = 40  # within which a challenger that is too slow shall show


@dataclass
class Turns:
    """One pair of turns. Times are seconds on the clock of the rollout."""

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0  # of a turn
    held: bool = True  # whether the releases take these turns; where not, only what is late is counted
    begun: Sum = 0.0
    pairs: Whole = 0
    first: Arm = "champion"
    blocks: dict[int, Sums] = field(default_factory=dict)  # by group of tenants

    def arm(self, now: float) -> Arm:
        """Return who answers all requests now."""
        return self.first if now - self.begun < self.seconds else ARMS[1 - ARMS.index(self.first)]

    def add(self, arm: Arm, came: float, late: bool, group: int) -> None:
        """Count a request that came in the later half of a turn of the arm that answered it."""
        turns = (came - self.begun) / self.seconds
        if 0 <= turns < 2 and turns % 1 >= 0.5 and arm == self.arm(came):
            sums, first = self.blocks.setdefault(group, [0.0, 0.0, 0.0, 0.0]), 2 * ARMS.index(arm)
            sums[first] += 1
            sums[first + 1] += late

    def is_over(self, now: float) -> bool:
        """Whether both turns are over, and the last answers had their time."""
        return now - self.begun >= (2 + PAUSE) * self.seconds

    def late(self) -> float:
        """Return the share of the canary's answers that were late."""
        return sum(sums[3] for sums in self.blocks.values()) / max(1.0, sum(sums[2] for sums in self.blocks.values()))

    def difference(self) -> tuple[float, int] | None:
        """Return how much more of the canary's answers were late, and for which group: another in each pair, as all wait
        in the same queue."""
        known = sorted(group for group, sums in self.blocks.items() if self.held and sums[0] and sums[2])
        if not known:
            return None
        group = known[self.pairs % len(known)]
        sums = self.blocks[group]
        return sums[3] / sums[2] - sums[1] / sums[0], group

    def next(self, seconds: float, held: bool, now: float, seed: str) -> Turns:
        """Return the next pair, whose order follows from its number and `seed`."""
        digest = blake2b(f"{self.pairs} {seed}".encode(), digest_size=1).digest()
        return Turns(seconds, held, now, self.pairs + 1, ARMS[digest[0] & 1])
