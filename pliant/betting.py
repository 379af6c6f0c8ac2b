"""Bets on outcomes, which win nothing on average while a hypothesis holds: evidence that may be looked at at any time.

A wealth starts at 1. Each bet multiplies its part of it by 1 + stake * (x - margin), with a stake that is chosen before
the outcome x is seen, and so small that no more than all is lost. While the mean of x, whatever came before, is at most
`margin`, the factor's mean is at most 1. So the wealth ever reaches 1 / alpha with a probability of at most alpha, over all
time (Ville's inequality; Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B, 2023,
sections 3 and 4).

What comes late would find wealth lost that is bet from the beginning. Wealth that flows into the bets bit by bit is fair as
well: a mixture over the times at which betting begins (Shin, Ramdas and Rinaldo, E-detectors, 2023; Herbster and Warmuth,
Tracking the best expert, 1998).

`Evidence` is of one hypothesis about differences, `Bets` against a promised share of right answers, `Blocks` the same where
answers depend on those before. The watch bets on arrays of shares (pliant/watch/betting.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from pliant.errors import InputError
from pliant.fairness import NOBODY, WithoutEach
from pliant.state import Sum, Whole

Floats = NDArray[np.float64]
MOST = 1e100  # wealth of a bet: it stays finite


def grow(wealth: ArrayLike, factors: Floats, fresh: float = 0.0) -> Floats:
    """Return the wealth [..., bets] after bets with these factors; `fresh` flows into them before."""
    grown: Floats = np.minimum((np.asarray(wealth) + fresh / factors.shape[-1]) * factors, MOST)
    return grown


def reserve(steps: float, pace: float) -> float:
    """Return the share of a wealth that has not flowed into the bets after so many steps. It never reaches 0.

    Until `pace` steps it flows about evenly, later as the logarithm's slope, so that the bound holds for ever.
    """
    return 1 / (1 + math.log1p(steps / pace))


EXPECTED, EQUAL = 12, 0.9  # among so many slices, those that come first, that share of the weight is divided


def slice_weights() -> Iterator[float]:
    """Yield the weights of the slices, in the order in which they come. The k-th beyond the first
    `EXPECTED` has 1 / (k (k + 1)) of what those leave, so that however many come they sum to at most 1."""
    yield from (EQUAL / EXPECTED for _ in range(EXPECTED))
    yield from ((1 - EQUAL) / (k * (k + 1)) for k in count(1))


STAKES = np.array([0.05, 0.2, 0.4, 0.6, 0.8, 0.95])  # of the largest stake, which would lose all at once
SEEKING = 0.7  # share of the wealth that seeks the target within the horizon
LARGEST = 0.95  # of the largest stake, that the seeking bet takes at most
LEAST_NEED = 0.05  # in nats, so that the seeking bet goes on when it has what it sought
VARIANCE, WEIGHT = 0.05, 50.0  # what the variance counts as before the first outcome, and as how many outcomes
_BETS = 1 + len(STAKES)


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
        if not (1.0 < self.target < MOST and self.horizon >= 0):
            raise InputError("target and horizon", (self.target, self.horizon), "above 1, and not negative")


Wealth = Annotated[list[Sum], Field(min_length=_BETS, max_length=_BETS)]
"""Of the bet that seeks the target, and of each fixed stake."""


def _at_once() -> WithoutEach[Wealth]:
    return WithoutEach([SEEKING] + [(1 - SEEKING) / len(STAKES)] * len(STAKES))


@dataclass
class Evidence:
    """The wealth of the bets against one hypothesis. `value` starts at 1; the larger, the less the hypothesis holds.

    A grid of fixed stakes notices small differences in the long run. Another bet seeks the target within the horizon: its
    stake is what lifts it to the target by then if the difference is just large enough for it, sqrt(2 log(target / wealth)
    / (outcomes left * variance)), computed anew for each outcome, as in Voracek's STaR-bets (Sequential target-recalculating
    bets for tighter confidence intervals, 2025): at the horizon its power is near that of a test that looks once. What it
    has then goes to the grid.

    Outcomes of a group of tenants (pliant/fairness.py) make `value` larger only as far as it is without them, too: it is the
    least of the wealth from all outcomes and of the wealth without each group. Whatever one group makes up, `value` is at
    most the wealth from all others' outcomes, which is an e-process as long as theirs obey the hypothesis.

    Paired answers give x = champion's score - challenger's, in [-1, 1]; where both are right or wrong, x is 0.
    """

    hypothesis: Hypothesis
    wealth: WithoutEach[Wealth] = field(default_factory=_at_once)
    squares: Sum = 0.0  # sum of (x - margin)^2
    outcomes: Whole = 0
    unpaid: Sum = 0.0  # share of the wealth that is not bet yet

    def __post_init__(self) -> None:
        self._largest = 1.0 / (self.hypothesis.margin - self.hypothesis.low)
        self._settle()

    @classmethod
    def kept_back(cls, hypothesis: Hypothesis) -> Self:
        """Return evidence of which nothing is bet before it is paid. It needs a hypothesis without a horizon."""
        return cls(hypothesis, WithoutEach([0.0] * _BETS), unpaid=1.0)

    @property
    def value(self) -> float:
        return sum(self._least) + self.unpaid

    def pay(self, share: float) -> None:
        """Bet this share of the first wealth from now on, or what is left of it."""
        part = min(share, self.unpaid)
        if part > 0:
            self.unpaid -= part
            for wealth in self.wealth.every:
                wealth[1:] = [min(each + part / len(STAKES), MOST) for each in wealth[1:]]
            self._settle()

    def seek(self) -> float:
        """Return the stake of the next bet that seeks the target."""
        left, (seeking, *fixed) = self.hypothesis.horizon - self.outcomes, self._least
        if left <= 0 or not seeking:
            return 0.0
        need = math.log(max(self.hypothesis.target - sum(fixed), SEEKING) / seeking)
        variance = (VARIANCE * WEIGHT + self.squares) / (WEIGHT + self.outcomes)
        return min(math.sqrt(2 * max(need, LEAST_NEED) / (left * variance)), LARGEST * self._largest)

    def add(self, x: float, group: int = NOBODY) -> None:
        """Bet on the outcome x. Raises `InputError` if it is outside [low, 1]; nothing has changed."""
        if not self.hypothesis.low <= x <= 1.0:
            raise InputError("outcome", x, f"from {self.hypothesis.low:g} to 1")
        gain = x - self.hypothesis.margin
        factors = 1 + np.array([self.seek(), *(STAKES * self._largest)]) * gain
        for wealth in self.wealth.seeing(group):
            wealth[:] = grow(wealth, factors).tolist()
        self.squares += gain * gain
        self.outcomes += 1
        self._settle()

    def _settle(self) -> None:
        for wealth in self.wealth.every:
            if wealth[0] and self.outcomes >= self.hypothesis.horizon:  # in equal parts, which changes no odds
                wealth[:] = [0.0, *(min(each + wealth[0] / len(STAKES), MOST) for each in wealth[1:])]
        self._least = min(self.wealth.every, key=sum)


BETS = 12  # alternatives to a promise, each multiplying the promised odds of a wrong answer by a factor
LEAST, LARGE = 1.1, 6.0  # the smallest and the largest factor
FACTORS = np.geomspace(LEAST, LARGE, BETS)
BLOCK_FACTORS = np.geomspace(LEAST, 2 * LARGE, BETS)  # the mean of a block varies less
BET_AT_ONCE = 0.5  # share of the wealth that is bet from the first label on
PACE = 200.0  # labels; the reserve is nearly whole before so many
BLOCK, LONGEST = 8, 32  # labels of a block that do not depend on each other; of a block, at most


def initial_wealth() -> Floats:
    """Return the wealth in each bet [BETS] against a promise before the first label; the rest of the 1 is in reserve."""
    return np.full(BETS, BET_AT_ONCE / BETS)


def bet(
    wealth: ArrayLike, labels: int, wrong: ArrayLike, promised: float, count: int = 1, grid: Floats = FACTORS
) -> Floats:
    """Return the wealth in each bet [..., BETS] after `count` more answers, of which a share of `wrong` [...], from 0 to 1,
    was wrong; `labels` came before them.

    The factors are ratios of likelihoods where there is a single answer. `promised` may differ from label to label, but
    must be known before the label.
    """
    allowed = min(max(1 - promised, 1e-6), 1 - 1e-6)
    odds = allowed / (1 - allowed) * grid
    stakes = (odds / (1 + odds) - allowed) / (allowed * (1 - allowed))
    beyond = np.expand_dims(np.asarray(wrong, float), -1) - allowed
    return grow(wealth, 1 + stakes * beyond, _kept(labels) - _kept(labels + count))


def evidence(wealth: ArrayLike, labels: int) -> Floats:
    """Return the whole wealth [...] from the bets [..., BETS]; it starts at 1."""
    total: Floats = np.sum(wealth, axis=-1) + _kept(labels)
    return total


def _kept(labels: int) -> float:
    return (1 - BET_AT_ONCE) * reserve(labels, PACE)


@dataclass(slots=True)
class Bets:
    """The bets against "answers are right as often as promised", label by label."""

    labels: Whole = 0
    wealth: Annotated[list[Sum], Field(min_length=BETS, max_length=BETS)] = field(
        default_factory=lambda: initial_wealth().tolist()
    )

    def add(self, wrong: bool, promised: float) -> None:
        self.wealth = bet(self.wealth, self.labels, wrong, promised).tolist()
        self.labels += 1

    @property
    def evidence(self) -> float:
        return float(evidence(self.wealth, self.labels))


@dataclass(slots=True)
class Blocks(Bets):
    """The same, block by block, on the share of wrong answers of each: so long that it hardly depends on the block before.

    Labels may depend on those before, as where a text comes again. The length is chosen before the block begins, so for
    labels that do not depend on each other the bound is exact.
    """

    wrong: Whole = 0  # of the labels
    followed: Whole = 0  # wrong ones that another label followed
    again: Whole = 0  # of these, those that a wrong one followed
    last: bool = False  # whether the latest was wrong
    size: Whole = 2 * BLOCK  # of the block under way
    held: Whole = 0  # labels of it so far; below: their wrong ones, and the sum of what was promised
    held_wrong: Whole = 0
    held_promised: Sum = 0.0

    def add(self, wrong: bool, promised: float) -> None:
        self.followed, self.again = self.followed + self.last, self.again + (self.last and wrong)
        self.labels, self.wrong, self.last = self.labels + 1, self.wrong + wrong, wrong
        self.held, self.held_wrong = self.held + 1, self.held_wrong + wrong
        self.held_promised += promised
        if self.held < self.size:
            return
        share, mean = self.held_wrong / self.held, self.held_promised / self.held
        before = self.labels - self.held
        self.wealth = bet(self.wealth, before, share, mean, self.held, BLOCK_FACTORS).tolist()
        self.held, self.held_wrong, self.held_promised, self.size = 0, 0, 0.0, self._next_size()

    def _next_size(self) -> int:
        """Return the labels of the next block: `BLOCK` times those that count for one.

        That is the sum of the correlations of a label with all others, if each depends on the one before alone. Four
        labels, as of runs of two, count beside those that came.
        """
        rate = (self.wrong + 1) / (self.labels + 4)
        correlation = max(0.0, ((self.again + 2) / (self.followed + 4) - rate) / (1 - rate))
        return min(round(BLOCK * (1 + correlation) / (1 - correlation)), LONGEST)

    @property
    def evidence(self) -> float:
        return float(evidence(self.wealth, self.labels - self.held))
