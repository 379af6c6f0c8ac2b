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

Paired answers give x = champion's score - challenger's, in [-1, 1]; where both are right or wrong, x is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliant.errors import InputError
from pliant.fairness import NOBODY, WithoutEach
from pliant.rollout.state import count, group_numbers, numbers, real, table

STAKES = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)  # of the largest stake, which would lose all at once
SEEKING = 0.7  # share of the wealth that seeks the target within the horizon
LARGEST = 0.95  # of the largest stake, that the seeking bet takes at most
LEAST_NEED = 0.05  # in nats, so that the seeking bet goes on when it has what it sought
VARIANCE, WEIGHT = 0.05, 50.0  # what the variance counts as before the first outcome, and as how many outcomes
MAX_LOG = 200.0  # of the wealth, which stays finite
NOTHING = -1e6  # logarithm that stands for no wealth


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """ "The mean of x in [low, 1] is at most `margin`", with the wealth to be reached, if possible in `horizon`."""

    margin: float
    low: float = -1.0
    target: float = 20.0
    horizon: int = 500  # outcomes

    def check(self) -> None:
        """Raise `InputError` for figures that no bet can be made with."""
        if not self.low < self.margin < 1.0:
            raise InputError("margin", self.margin, f"above {self.low:g} and below 1")
        if not (1.0 < self.target < math.exp(MAX_LOG) and self.horizon >= 0):
            raise InputError("target and horizon", (self.target, self.horizon), "above 1, and not negative")


class _Wealth:
    """The wealth of all bets on a series of outcomes, as logarithms, and what follows from them, kept for speed."""

    __slots__ = ("fixed", "grid", "seeking", "value")

    def __init__(self, grid: list[float], seeking: float) -> None:
        self.grid, self.seeking = grid, seeking  # of each fixed stake, and of the bet that seeks the target
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

    def copy(self) -> _Wealth:
        return _Wealth(list(self.grid), self.seeking)

    def to_dict(self) -> dict[str, Any]:
        return {"grid": list(self.grid), "seeking": self.seeking}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> _Wealth:
        grid = numbers(state, "grid", len(STAKES), -math.inf, MAX_LOG)
        return cls(grid, real(state, "seeking", -math.inf, MAX_LOG))


class Evidence:
    """The wealth of the bets against one hypothesis. `value` starts at 1; the larger, the less the hypothesis holds.

    Outcomes of a group of tenants (pliant/fairness.py) make `value` larger only as far as it is without them, too: it is the
    least of the wealth from all outcomes and of the wealth without each group. Whatever one group makes up, `value` is at
    most the wealth from all others' outcomes, which is an e-process as long as theirs obey the hypothesis.
    """

    def __init__(self, hypothesis: Hypothesis) -> None:
        hypothesis.check()
        self.hypothesis = hypothesis
        self._largest = 1.0 / (hypothesis.margin - hypothesis.low)
        self._wealth = WithoutEach(_Wealth([0.0 for _ in STAKES], 0.0), _Wealth.copy)
        self._squares = 0.0  # sum of (x - margin)^2
        self.outcomes = 0
        self._settle()

    @property
    def value(self) -> float:
        return self._least.value

    def stakes(self) -> tuple[float, ...]:
        """Return the stakes for the next outcome: those of the grid, and the one that seeks the target."""
        return (*(self._largest * stake for stake in STAKES), self._seek())

    def _seek(self) -> float:
        left = self.hypothesis.horizon - self.outcomes
        if left <= 0:
            return 0.0
        missing = (self.hypothesis.target - self._least.fixed) / SEEKING
        need = max(math.log(max(missing, 1.0)) - self._least.seeking, LEAST_NEED)
        variance = (VARIANCE * WEIGHT + self._squares) / (WEIGHT + self.outcomes)
        return min(math.sqrt(2 * need / (left * variance)), LARGEST * self._largest)

    def add(self, x: float, repeats: int = 1, group: int = NOBODY) -> None:
        """Bet on the outcome x, `repeats` times. Raises `InputError` if it is outside [low, 1]; nothing has changed."""
        if not self.hypothesis.low <= x <= 1.0:
            raise InputError("outcome", x, f"from {self.hypothesis.low:g} to 1")
        gain = x - self.hypothesis.margin
        for _ in range(min(repeats, max(self.hypothesis.horizon - self.outcomes, 0))):
            self._step(gain, self._seek(), 1, group)
            repeats -= 1
        if repeats > 0:  # beyond the horizon nothing depends on the order
            self._step(gain, 0.0, repeats, group)

    def _step(self, gain: float, stake: float, repeats: int, group: int) -> None:
        sought = repeats * math.log1p(stake * gain)
        fixed = [repeats * math.log1p(share * self._largest * gain) for share in STAKES]
        for wealth in self._wealth.seeing(group):
            wealth.seeking = _bounded(wealth.seeking + sought)
            wealth.grid = [_bounded(each + gained) for each, gained in zip(wealth.grid, fixed, strict=True)]
        self._squares += repeats * gain * gain
        self.outcomes += repeats
        self._settle()

    def _settle(self) -> None:
        for wealth in self._wealth.every:
            wealth.settle(self.outcomes >= self.hypothesis.horizon)
        self._least = min(self._wealth.every, key=lambda wealth: wealth.value)

    def to_dict(self) -> dict[str, Any]:
        """Return the state as plain JSON values, exactly; the hypothesis is left out."""
        without = {str(group): wealth.to_dict() for group, wealth in self._wealth.without.items()}
        whole = self._wealth.whole.to_dict()
        return {**whole, "without": without, "squares": self._squares, "outcomes": self.outcomes}

    @classmethod
    def from_dict(cls, hypothesis: Hypothesis, state: Mapping[str, Any]) -> Evidence:
        """Return the evidence that `to_dict` was called on. Raises `InputError` for a state that it cannot have given."""
        evidence = cls(hypothesis)
        evidence._wealth.whole, without = _Wealth.from_dict(state), table(state, "without")
        for name, group in group_numbers(without).items():
            evidence._wealth.without[group] = _Wealth.from_dict(table(without, name))
        evidence._squares = real(state, "squares", 0.0, math.inf)
        evidence.outcomes = count(state, "outcomes")
        evidence._settle()
        return evidence


def _bounded(logarithm: float) -> float:
    return max(min(logarithm, MAX_LOG), NOTHING)


def information(discordance: float, worse: float) -> float:
    """Return the nats per pair in favour of "worse by `worse`" over "no worse", if `discordance` of the pairs differ.

    Only pairs of which one answer alone is right say anything: a share (1 + worse / discordance) / 2 of them is lost by
    the challenger, against one half under the hypothesis. No test can expect more than this (Wald, 1945).
    """
    if not 0 < worse <= discordance <= 1:
        raise InputError("discordance and difference", (discordance, worse), "0 < difference <= discordance <= 1")
    lost = (1 + worse / discordance) / 2
    return discordance * sum(p * math.log(2 * p) for p in (lost, 1 - lost) if p > 0)
