"""What is usual at each hour of the week, and how far a window of traffic lies from it.

Traffic depends on itself: a request comes again, topics wander for hours, nights are unlike days. So single answers are no
units. Of what is watched two shares are known of each window: that of the answers, and that of the blocks in which it
comes at all, which repeats leave alone. A window of 20 minutes and of `burn_in`/25 answers at least is compared with the
same hours of former days and, once every day of the week was seen whole, with what is usual on its own day.

The differences of former windows tell what to make of a new one: their mean square takes in repeats and noise between
windows, and their correlation from one to the next how long a difference lasts by itself. Together they are the long-run
variance, of which an upper bound is used. Where few windows are known that bound is wide, so the first day decides nothing,
and the second little.

Hours and days are learnt for a fortnight and then stay, as the model does; today's are added at midnight (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri, expit, gammaln, logit

from pliant.betting import Floats
from pliant.errors import InputError
from pliant.state import Finite, Sum, Whole, read
from pliant.watch.betting import Ints

DAY, HOUR, WINDOW = 86_400, 3600, 1200  # seconds
OF_BURN_IN = 25  # windows have so many answers at least: burn_in over this
LEARNT = 14  # days that are learnt
WHOLE = 22  # hours with answers that make a day a whole one
UNKNOWN_WEEK, TOLERANCE = np.log(1.5), np.log(1.12)  # of odds, before a week is known and from then on
FLOOR = 0.05  # of a standard deviation, as a logit: between any two hours
PRIOR = 20.0  # answers like those of all hours that each hour begins with
KEPT = 1512  # windows, three weeks of them, beyond which former ones count half for the variance
LEAST = 0.3  # of the variance of windows over that of independent answers
SURE = 0.99  # of the bound of the variance
CLIP = 3.0  # standard deviations with which a window counts for the variance, at most


class Compared(NamedTuple):
    """A window [2 n]: its tallies, the deviation from what was usual at its time, and the tolerance, in long-run standard
    deviations, and the standard deviation as a logit."""

    tallies: Floats
    deviations: Floats
    tolerance: Floats
    spread: Floats


@dataclass(frozen=True, slots=True)
class CourseState:
    """A course as it is kept. `known`; `window`, `today`, `hours` [24]; and `days` [7] are tallies (`tally`); `visits` [24]:
    days of each hour. `noise` and `noise_today` [2, 2 n] are sums over `counted` and `counted_today` windows: of
    the deviations' squares, and of their products with those before, of which `last` [2 n] are the latest."""

    known: list[Sum]
    window: list[list[Sum]]
    today: list[list[Sum]]
    hours: list[list[Sum]]
    days: list[list[Sum]]
    visits: list[Whole]
    noise: list[list[Finite]]
    noise_today: list[list[Finite]]
    last: list[Finite]
    counted: Whole
    counted_today: Whole
    compared: Whole
    begin: Finite
    day: Whole


def tally(hits: Ints, answers: int, draws: int) -> Floats:
    """Return the tallies [2 n + 2] of a block: `hits` [n], the probabilities [n] that any of them is among so many draws
    without replacement, the answers, and 1. So the size of blocks does not matter."""
    rest = answers - hits
    ways = (
        gammaln(rest + 1)
        + gammaln(answers - draws + 1)
        - gammaln(np.maximum(rest - draws, 0) + 1)
        - gammaln(answers + 1)
    )
    present = np.where(rest >= draws, -np.expm1(np.minimum(ways, 0.0)), 1.0)
    return np.concatenate([hits, present, [answers, 1]])


def shares(tallies: Floats, more: float = 0.5) -> Floats:
    """Return the shares [..., 2 n] of tallies [..., 2 n + 2], of answers and of blocks, with half a one more of each."""
    number = (tallies.shape[-1] - 2) // 2
    totals = np.repeat(tallies[..., -2:], number, axis=-1)
    result: Floats = (tallies[..., :-2] + more) / (totals + 2 * more)
    return result


class Course:
    """Learns the course of shares [n], and compares windows with it."""

    def __init__(self, known: Ints, answers: int, seconds: float) -> None:
        """`known` [n]: the hits of what the stream was learnt from, until a time in seconds since 1970."""
        width = 2 * len(known) + 2
        self.known = np.concatenate([known, np.zeros(len(known)), [answers, 0.0]])
        self.window, self.today, self.hours = (np.zeros((24, width)) for _ in range(3))
        self.days, self.visits = np.zeros((7, width)), np.zeros(24, np.int64)
        self.noise, self.noise_today, self.last = (
            np.zeros((2, width - 2)),
            np.zeros((2, width - 2)),
            np.zeros(width - 2),
        )
        self.counted, self.counted_today, self.compared = 0, 0, 0
        self.begin, self.day = seconds, int(seconds // DAY)

    def add(self, block: Floats, seconds: float, least: int, learn: bool) -> Compared | None:
        """Add the tallies of a block; return how its window compares if it ends with it and its hours are known.

        `least`: answers of a window; `learn`: whether it may count for what is usual."""
        if int(seconds // DAY) != self.day:
            self._midnight(int(seconds // DAY))
        self.window[int(seconds // HOUR) % 24] += block
        if seconds < self.begin:  # the clock was set back
            self.begin = seconds
        if seconds - self.begin < WINDOW or self.window[:, -2].sum() < least:
            return None
        result = self._compare()
        if learn and int(self.visits.max()) < LEARNT:
            self.today += self.window
            self.known = self.known + self.window.sum(0)
        self.window, self.begin = np.zeros_like(self.window), seconds
        return result

    def _midnight(self, day: int) -> None:
        """Add what was learnt today to the hours, and to the day of the week if it was seen whole."""
        seen = self.today[:, -2] > 0
        self.hours += self.today
        self.visits += seen
        if seen.sum() >= WHOLE:
            self.days[self.day % 7] += self.today.sum(0)
        self.today, self.day = np.zeros_like(self.today), day
        self.noise, self.counted = self.noise + self.noise_today, self.counted + self.counted_today
        if self.counted > KEPT:
            self.noise, self.counted = self.noise / 2, self.counted // 2
        self.noise_today, self.counted_today = np.zeros_like(self.noise), 0

    def _compare(self) -> Compared | None:
        """Compare the window with what is usual at its time, and learn how much windows differ."""
        tallies, weights = self.window.sum(0), self.window[:, -2] / self.window[:, -2].sum()
        if not self.visits[weights > 0].all():
            return None
        prior = np.concatenate([PRIOR * shares(self.known), [PRIOR, PRIOR]])
        usual, week = weights @ shares(self.hours + prior), bool(self.days[:, -1].all())
        if week:
            usual = expit(logit(usual) + logit(shares(self.days[self.day % 7])) - logit(shares(self.days.sum(0))))
        former = float(np.sum(weights / np.maximum(self.visits, 1)))  # variance of what is usual over that of a window
        sizes = np.repeat(tallies[-2:], len(usual) // 2)
        spread = np.sqrt((1 / (sizes * usual * (1 - usual)) + FLOOR**2) * (1 + former))
        scores, scale = distance(tallies, usual) / spread, np.sqrt(self.long_run())
        self._learn(scores)
        tolerance = (TOLERANCE if week else UNKNOWN_WEEK) / (spread * scale)
        return Compared(tallies, scores / scale, tolerance, spread * scale)

    def _learn(self, scores: Floats) -> None:
        """Learn from a window's deviations [2 n], in standard deviations of independent answers."""
        if self.counted:
            limit = CLIP * np.sqrt(np.maximum(self.noise[0] / self.counted, 1.0))
            scores = np.clip(scores, -limit, limit)
        self.noise_today = self.noise_today + np.stack([scores**2, scores * self.last])
        self.last = scores
        self.counted_today += 1
        self.compared += 1

    def long_run(self) -> Floats:
        """Return the upper bound of the long-run variance [2 n] of windows until midnight, over that of independent answers.

        As of a process whose correlation falls by one factor from window to window; the estimate of the factor is corrected
        for its bias (Kendall, Note on bias in the estimation of autocorrelation, Biometrika, 1954).
        """
        number = max(self.counted, 1)
        square, lagged = self.noise / number
        factor = np.clip(lagged / np.maximum(square, 1e-9), 0.0, 0.95)
        factor = np.minimum(factor + (1 + 3 * factor) / number, 0.97)
        times = (1 + factor) / (1 - factor)
        free = np.maximum(number / times, 1.0)  # windows that are as good as independent
        bound: Floats = np.maximum(square, LEAST) * times * free / chdtri(free, SURE)
        return bound

    def state(self) -> CourseState:
        kept = {each.name: getattr(self, each.name) for each in fields(CourseState)}
        return CourseState(
            **{key: each.tolist() if isinstance(each, np.ndarray) else each for key, each in kept.items()}
        )


def course_from(number: int, content: Any) -> Course:
    """Return the course of so many shares whose state this was. Raises `InputError` for anything else."""
    state = read(CourseState, content, "what a course's state gave")
    course = Course(np.zeros(number, np.int64), 0, state.begin)
    for each in fields(state):
        value, present = getattr(state, each.name), getattr(course, each.name)
        if isinstance(present, np.ndarray):
            if list(map(len, value if present.ndim > 1 else [value])) != [present.shape[-1]] * (
                len(present) if present.ndim > 1 else 1
            ):
                raise InputError(each.name, "of another shape", f"of shape {present.shape}")
            value = np.asarray(value, present.dtype)
        setattr(course, each.name, value)
    return course


def distance(tallies: Floats, usual: Floats) -> Floats:
    """Return how far the shares of tallies are from the usual ones [2 n], as logits: the difference of logits, or that of
    shares over the logit's slope, whichever is less. So neither a rare value that is absent nor one that comes in a row
    counts more than it should."""
    odds = logit(shares(tallies)) - logit(usual)
    score = (shares(tallies, 0.0) - usual) / (usual * (1 - usual))
    nearest: Floats = np.where(np.abs(odds) < np.abs(score), odds, score)
    return nearest
