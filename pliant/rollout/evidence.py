"""Evidence that a mean is above a margin, which may be looked at after every outcome: an e-process.

It is a wealth that starts at 1 and is bet on the outcomes x in [low, 1]. Each bet multiplies its wealth by
1 + stake * (x - margin), with a stake that is chosen before x is seen and small enough that nothing is lost whole. As
long as the mean of x, given the past, is at most `margin`, the factor's mean is at most 1, so by Ville's inequality the
wealth ever reaches 1 / alpha with a probability of at most alpha, over all time (Waudby-Smith and Ramdas, Estimating
means of bounded random variables by betting, JRSS B, 2023, sections 3 and 4).

Two kinds of bets share the wealth. A grid of fixed stakes notices small differences in the long run. The rest seeks the
target within a stated number of outcomes, the horizon: the stake is what lifts the wealth to the target by then if the
difference is just large enough for it, sqrt(2 log(target / wealth) / (outcomes left * variance)), and is computed anew
for each outcome, as in Voracek's STaR-bets (Sequential target-recalculating bets for tighter confidence intervals,
2025). Its power at the horizon is near that of a test that looks once. At the horizon its wealth goes to the grid.

Where a change may come at any time, wealth that is bet from the beginning may be lost by then. Wealth that is paid in bit by
bit is an e-process as well: a mixture over the times at which betting begins (Shin, Ramdas and Rinaldo, E-detectors, 2023).

Paired answers give x = champion's score - challenger's, in [-1, 1]; where both are right or wrong, x is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Self

from pydantic import Field

from pliant.errors import InputError
from pliant.fairness import NOBODY, WithoutEach
from pliant.state import Sum, Whole

STAKES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)  # of the largest stake, which would lose all at once
SEEKING = 0.7  # share of the wealth that seeks the target within the horizon
LARGEST = 0.95  # of the largest stake, that the seeking bet takes at most
LEAST_NEED = 0.05  # in nats, so that the seeking bet goes on when it has what it sought
VARIANCE, WEIGHT = 0.05, 50.0  # what the variance counts as before the first outcome, and as how many outcomes
MAX_LOG = 200.0  # of the wealth, which stays finite
NOTHING = -1e6  # logarithm that stands for no wealth

Log = Annotated[float, Field(le=MAX_LOG, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """ "The mean of x in [low, 1] is at most `margin`", with the wealth to be reached, if possible in `horizon`.

    Raises `InputError` for figures that no bet can be made with.
    """

    margin: float
    low: float = -1.0
    target: float = 20.0
    horizon: int = 500  # outcomes

    def __post_init__(self) -> None:
        if not self.low < self.margin < 1.0:
            raise InputError("margin", self.margin, f"above {self.low:g} and below 1")
        if not (1.0 < self.target < math.exp(MAX_LOG) and self.horizon >= 0):
            raise InputError("target and horizon", (self.target, self.horizon), "above 1, and not negative")


@dataclass
class _Wealth:
    """The wealth of all bets on a series of outcomes, as logarithms, and what follows from them, kept for speed."""

    grid: Annotated[list[Log], Field(min_length=len(STAKES), max_length=len(STAKES))]  # of each fixed stake
    seeking: Log = 0.0  # of the bet that seeks the target

    def __post_init__(self) -> None:
        self.settle()

    def settle(self, over: bool = False) -> None:
        """Sum the wealth. Where the horizon is `over`, the grid gets, in equal parts, what the seeking bet has: that
        changes no odds."""
        if over and self.seeking != NOTHING:
            part = SEEKING / (1 - SEEKING) * math.exp(self.seeking)
            self.grid = [_bounded(math.log(math.exp(each) + part)) if part else each for each in self.grid]
            self.seeking = NOTHING
        self.fixed = (1 - SEEKING) * sum(map(math.exp, self.grid)) / len(STAKES)
        self.value = self.fixed + SEEKING * math.exp(self.seeking)


@dataclass
class Evidence:
    """The wealth of the bets against one hypothesis. `value` starts at 1; the larger, the less the hypothesis holds.

    Outcomes of a group of tenants (pliant/fairness.py) make `value` larger only as far as it is without them, too: it is the
    least of the wealth from all outcomes and of the wealth without each group. Whatever one group makes up, `value` is at
    most the wealth from all others' outcomes, which is an e-process as long as theirs obey the hypothesis.
    """

    hypothesis: Hypothesis
    wealth: WithoutEach[_Wealth] = field(default_factory=lambda: WithoutEach(_Wealth([0.0] * len(STAKES))))
    squares: Sum = 0.0  # sum of (x - margin)^2
    outcomes: Whole = 0
    unpaid: Sum = 0.0  # share of the wealth that is not bet yet

    def __post_init__(self) -> None:
        self._largest = 1.0 / (self.hypothesis.margin - self.hypothesis.low)
        self._settle()

    @classmethod
    def kept_back(cls, hypothesis: Hypothesis) -> Self:
        """Return evidence of which nothing is bet before it is paid. It needs a hypothesis without a horizon."""
        return cls(hypothesis, WithoutEach(_Wealth([NOTHING] * len(STAKES), NOTHING)), unpaid=1.0)

    @property
    def value(self) -> float:
        return self._least.value + self.unpaid

    def pay(self, share: float) -> None:
        """Bet this share of the first wealth from now on, or what is left of it."""
        part = min(share, self.unpaid)
        if part > 0:
            self.unpaid -= part
            for wealth in self.wealth.every:
                wealth.grid = [_bounded(math.log(math.exp(each) + part / (1 - SEEKING))) for each in wealth.grid]
            self._settle()

    def seek(self) -> float:
        """Return the stake of the next bet that seeks the target."""
        left = self.hypothesis.horizon - self.outcomes
        if left <= 0:
            return 0.0
        missing = (self.hypothesis.target - self._least.fixed) / SEEKING
        need = max(math.log(max(missing, 1.0)) - self._least.seeking, LEAST_NEED)
        variance = (VARIANCE * WEIGHT + self.squares) / (WEIGHT + self.outcomes)
        return min(math.sqrt(2 * need / (left * variance)), LARGEST * self._largest)

    def add(self, x: float, group: int = NOBODY) -> None:
        """Bet on the outcome x. Raises `InputError` if it is outside [low, 1]; nothing has changed."""
        if not self.hypothesis.low <= x <= 1.0:
            raise InputError("outcome", x, f"from {self.hypothesis.low:g} to 1")
        gain = x - self.hypothesis.margin
        sought = math.log1p(self.seek() * gain)
        fixed = [math.log1p(share * self._largest * gain) for share in STAKES]
        for wealth in self.wealth.seeing(group):
            wealth.seeking = _bounded(wealth.seeking + sought)
            wealth.grid = [_bounded(each + gained) for each, gained in zip(wealth.grid, fixed, strict=True)]
        self.squares += gain * gain
        self.outcomes += 1
        self._settle()

    def _settle(self) -> None:
        for wealth in self.wealth.every:
            wealth.settle(self.outcomes >= self.hypothesis.horizon)
        self._least = min(self.wealth.every, key=lambda wealth: wealth.value)


def _bounded(logarithm: float) -> float:
    return max(min(logarithm, MAX_LOG), NOTHING)
