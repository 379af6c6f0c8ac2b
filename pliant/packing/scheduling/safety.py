"""The safety of admission: how many standard deviations of the predicted pages must fit, by what preemptions have cost.

It settles where preemptions take a certain share of the device's time. One that is brought back in a small part of the
time between two ends is cheap, and more of them are worth the texts that run meanwhile.
"""

from __future__ import annotations

from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.targets import Clock

GAIN = 0.1  # standard deviations that one preemption adds which costs `USUAL`
BOUNDS = (-2.0, 4.0)  # below 0 more is admitted than is expected to fit, for where preemptions cost little
USUAL = 1 / 3  # of the time between two ends: what it takes to bring back a sequence whose preemption counts as one
MOST = 2.0  # as so many a preemption counts at most
RECENT = 0.05  # weight of the latest end in the mean time between two


class Safety:
    """Adapts `value`. `clock`: of iterations; None: every preemption counts as one."""

    def __init__(self, rules: Rules, clock: Clock | None) -> None:
        self.value = rules.safety
        self._rules = rules
        # With `turnover_preemptions` their number has been chosen by what they cost.
        self._clock = None if rules.turnover_preemptions else clock
        self._ended = self._between = 0.0

    def end(self, running: int, now: float) -> None:
        """Note that a sequence has ended while others wait, whom the safety might hold back. `running`: the others."""
        allowed = self._rules.preemption_target + self._rules.turnover_preemptions / (running + 1)
        self._add(-GAIN * allowed)
        if self._ended:
            self._between += (RECENT if self._between else 1.0) * (now - self._ended - self._between)
        self._ended = now

    def preempt(self, tokens: int, to_host: bool, sequences: int, cached: int) -> None:
        """Note that a sequence of so many tokens is preempted, beside `sequences` with `cached` tokens."""
        if self._clock is None or not self._between:
            self._add(GAIN)
        else:
            seconds = self._clock.again(tokens, to_host, sequences, cached)
            self._add(GAIN * min(seconds / (USUAL * self._between), MOST))

    def _add(self, change: float) -> None:
        self.value = min(max(self.value + change, BOUNDS[0]), BOUNDS[1])
