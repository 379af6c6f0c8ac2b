"""Worlds that differ from what a scheduler believes: what a launch or an iteration really takes, and what clients do.

A scheduler plans with a profile. A `World` says how the device differs from it: it is slower or faster, noisy, paused,
changes in the course of time, or errs by operating point, by batch size, or by length. A `Course` is one such world under
way, with draws of its own. `FrontDoor` is the single core that reads every request and writes every answer.

Decisions by a model of the world are tested in all of `worlds`, beside doing nothing clever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pliant.protocol import Finished, Launch, Request


@dataclass(frozen=True, slots=True)
class World:
    """How long launches take, relative to the profile. Times are seconds from the start of the load."""

    name: str
    factor: float = 1.0
    noise: float = 0.0  # standard deviation of the logarithm of each launch's seconds
    pause: float = 0.0  # probability that a launch is paused
    pause_seconds: float = 0.0
    pausing: tuple[float, float] = (0.0, math.inf)  # from when until when launches are paused
    steps: tuple[tuple[float, float], ...] = ()  # (from when, further factor), ascending; 1 before the first
    drift: float = 0.0  # growth of the logarithm of the seconds, a second
    by_setting: float = 0.0  # standard deviation of the logarithm of an error that each operating point has
    by_size: float = 0.0  # the same for each size of a batch, in powers of two
    by_length: float = 0.0  # the same for each length of the longest request, in powers of two


class Course:
    """A world under way. Errors are drawn once for each operating point, size and length, noise with each launch."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._rng, self._errors_rng = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        self._errors: dict[Hashable, float] = {}

    def seconds(self, expected: float, at: float, setting: Hashable = 0, size: float = 1, length: float = 0) -> float:
        """Return the seconds of what begins at `at` and takes `expected` seconds by the profile."""
        world = self.world
        logarithm = math.log(world.factor) + world.drift * max(at, 0.0)
        logarithm += math.log(next((factor for since, factor in reversed(world.steps) if at >= since), 1.0))
        logarithm += self._error("setting", setting, world.by_setting)
        logarithm += self._error("size", _octave(size), world.by_size)
        logarithm += self._error("length", _octave(length), world.by_length)
        logarithm += world.noise * float(self._rng.standard_normal())
        begin, end = world.pausing
        paused = self._rng.random() < world.pause and begin <= at < end
        return expected * math.exp(logarithm) + (world.pause_seconds if paused else 0.0)

    def end(self, launch: Launch, seconds: float, end: Finished, at: float, length: int) -> Finished:
        """Return a launch's end with the seconds that it takes in this world; a restart takes what it took."""
        if launch.kind != "run":
            return end
        return replace(end, seconds=self.seconds(seconds, at, launch.setting, len(launch.requests), length))

    def _error(self, kind: str, of: Hashable, deviation: float) -> float:
        if not deviation:
            return 0.0
        if (kind, of) not in self._errors:
            self._errors[kind, of] = deviation * float(self._errors_rng.standard_normal())
        return self._errors[kind, of]


class Measured(Course):
    """A world as it was: what is expected to take some seconds takes as many times these as one of the like has taken.

    `expected_N`: seconds by the profile; `took_N`: what they took instead.
    """

    LIKE = 100  # that are expected to take about as long, of which one is drawn

    def __init__(self, expected_N: NDArray[np.float64], took_N: NDArray[np.float64], seed: int) -> None:
        super().__init__(World("as measured"), seed)
        order_N = np.argsort(expected_N, kind="stable")
        self._expected_N, self._times_N = expected_N[order_N], (took_N / expected_N)[order_N]

    def seconds(self, expected: float, *_of: object, **_whatever: object) -> float:
        """Return the seconds of what takes `expected` seconds by the profile."""
        middle = sum(int(np.searchsorted(self._expected_N, expected, side)) for side in ("left", "right")) // 2
        first = max(min(middle - self.LIKE // 2, len(self._times_N) - self.LIKE), 0)
        return expected * float(self._rng.choice(self._times_N[first : first + self.LIKE]))


def _octave(size: float) -> int:
    return math.frexp(max(size, 0.0))[1]


Admit = Callable[[Request, float], Request]
"""Returns a request as the scheduler is to see it (an earlier deadline), from when it reaches the scheduler."""


class FrontDoor:
    """One core that takes `seconds` for each request that comes in and for each answer that goes out, in turn."""

    def __init__(self, seconds: float = 0.0, admit: Admit | None = None) -> None:
        self.seconds, self._admit = seconds, admit
        self.delivered: dict[int, float] = {}  # when each request had its answer or its refusal
        self._free = -math.inf

    def admit(self, request: Request, now: float) -> Request:
        """Return the request as the scheduler is to see it."""
        return request if self._admit is None else self._admit(request, now)

    def passes(self, now: float) -> float:
        """Return when what reaches the door now has passed it."""
        self._free = max(now, self._free) + self.seconds
        return self._free


def worlds(deadline: float, seconds: float) -> tuple[World, ...]:
    """Return the worlds in which decisions must do no harm, the true one first.

    `deadline`: the typical seconds from arrival to deadline; `seconds`: how long the load lasts.
    """
    slower = [World(f"{factor:g} times the profile's seconds", factor) for factor in (0.125, 0.25, 0.5, 2.0, 4.0, 8.0)]
    return (
        World("as the profile says"),
        *slower,
        World("noise of 0.3", noise=0.3),
        World("noise of 0.6", noise=0.6),
        World("2% of launches paused for a quarter of a deadline", pause=0.02, pause_seconds=deadline / 4),
        World("a quarter of the profile's seconds, 5% paused for a deadline", 0.25, pause=0.05, pause_seconds=deadline),
        World("twice as slow after a third, for a third", steps=((seconds / 3, 2.0), (seconds * 2 / 3, 1.0))),
        World("half the seconds after a half", steps=((seconds / 2, 0.5),)),
        World("slower and slower, 3 times at the end", drift=math.log(3.0) / seconds),
        World("errors by operating point", by_setting=0.3),
        World("errors by batch size", by_size=0.3),
        World("errors by length", by_length=0.3),
        World("everything at once", 1.5, 0.3, 0.01, deadline / 4, by_setting=0.2, by_size=0.2, by_length=0.2),
    )
