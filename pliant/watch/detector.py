"""Watches one stream: counts by block come in, one alarm comes out if it changes beyond what it does by itself.

First the stream is learnt from its first `burn_in` answers, which choose the bins. Then two tests run (betting.py):

- *gross*: in every block of `burn_in`/100 answers at least, against all that is known of the stream. It needs no days.
- *course*: in every window of 20 minutes, against what is usual at that hour of the week (course.py). It is silent on the
  first day, tolerates odds x 1.5 until each day of the week was seen whole, and x 1.12 from then on.

What is guaranteed: a false alarm has a probability of at most alpha over all time if (1) until then no block's share has a
mean, given all before it, beyond the gross band, and (2) the deviations of windows are a stationary process whose partial
sums are no more spread than those of a Gaussian one with the bound of the long-run variance. (1) is exact, however the
answers of a block depend on each other. (2) is a model: for repeats, noise, and topics that wander about a fixed mean within
hours, as `pliant bench watch --part dependence` simulates them; not for a topic that stays for days and was never seen
before, nor for a course of more than odds x 1.5 between the days of a first week.

A window that differs from the beginning, and is no alarm, makes the state "shifted": a mild shift of the inputs. After an
alarm the detector is latched: it goes on counting, and says nothing more. All that it knows is plain JSON values, exact
after a round trip.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pliant.betting import Floats, reserve
from pliant.errors import InputError
from pliant.state import Finite, Whole, read
from pliant.watch.betting import (
    STAKES,
    TILTS,
    Ints,
    Tracks,
    bet,
    course_factors,
    gross_bands,
    gross_factors,
    new_tracks,
)
from pliant.watch.binning import Binning, Counts, coarse_bins, merge, quantiles
from pliant.watch.course import OF_BURN_IN, TOLERANCE, Compared, Course, course_from, distance, shares, tally

MAX_BLOCK = 10_000_000  # observations
OF_BLOCK = 100  # blocks have so many answers at least: burn_in over this
GROSS_PACE, COURSE_PACE = 200.0, 300.0  # blocks and windows; see `reserve`
COARSE = 12  # bins that numbers are watched in, at most, beside two small ones at the ends
SHIFTED = 3.0  # standard deviations beyond the tolerance that make a shift

State = Literal["learning", "watching", "shifted", "alarm"]


@dataclass(frozen=True, slots=True)
class Stream:
    """What is watched, and how. Raises `InputError` where a figure is outside its limits.

    `binning`: of the counts that come in. `burn_in`: answers from which it is learnt at first.
    """

    name: str  # in words: "class of task digit"
    binning: Binning
    alpha: float = 0.01  # probability of a false alarm, ever
    burn_in: int = 5000

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError("alpha", self.alpha, "between 0 and 1")
        if not 1 <= self.burn_in <= MAX_BLOCK:
            raise InputError("burn_in", self.burn_in, f"1 to {MAX_BLOCK}")


@dataclass(frozen=True, slots=True)
class Alarm:
    """A change that was noticed. Observations are counted from the stream's reset, those that were learnt included."""

    stream: str
    sentence: str  # for a person: what it is now, and what it was
    bin: int  # of a label that changed most; -1 where numbers moved
    up: bool  # whether there is more of it, or numbers are larger
    share: float  # since the estimated change
    was: float  # what was usual
    evidence: float  # what the bets have won
    observations: int  # at the alarm
    since: int  # estimated observation of the change


@dataclass(frozen=True, slots=True)
class _State:
    """All that a detector knows, as it is kept. `counts`: while it is learnt; `first`: of the coarse bins then."""

    stream: Stream
    observations: Whole
    counts: list[Whole]
    edges: tuple[Finite, ...] = ()
    first: list[Whole] = field(default_factory=list)
    block: list[Whole] = field(default_factory=list)
    blocks: Whole = 0
    gross: dict[str, list[Finite]] | None = None
    windows: dict[str, list[Finite]] | None = None
    course: dict[str, Any] | None = None
    shift: str = ""
    alarm: Alarm | None = None


class Detector:
    """Learns a stream, and raises one alarm when the stream leaves what it has learnt."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.alarm: Alarm | None = None
        self.observations = 0
        self._counts: Counts = np.zeros(stream.binning.bins, np.int64)  # while it is learnt
        self._course: Course | None = None
        self._shift = ""  # sentence about the latest window, if it is shifted

    def _watch(self, coarse: Binning, first: Ints, seconds: float) -> None:
        """Bet from here on, against what `first` [bins of `coarse`] says."""
        self._coarse, self._first = coarse, first
        self._places = coarse_bins(self.stream.binning, coarse)
        at_or_above = np.tri(coarse.bins, dtype=np.int64)[:, 1:]
        self._hits = at_or_above if coarse.ordered else np.eye(coarse.bins, dtype=np.int64)  # [bins, n]
        self._course = Course(first @ self._hits, int(first.sum()), seconds)
        self._block, self._blocks = np.zeros(coarse.bins, np.int64), 0
        number = 2 * self._hits.shape[1]
        self._gross, self._windows = new_tracks(number * len(STAKES)), new_tracks(2 * number * len(TILTS))
        self._set_bands()

    def _set_bands(self) -> None:
        assert self._course is not None
        self._usual = shares(self._course.known)[: self._hits.shape[1]]
        self._bands = gross_bands(self._usual)

    @property
    def _least(self) -> int:
        """Return the answers of a block, at least."""
        return -(-self.stream.burn_in // OF_BLOCK)

    @property
    def state(self) -> State:
        if self.alarm or self._course is None:
            return "alarm" if self.alarm else "learning"
        return "shifted" if self._shift else "watching"

    @property
    def sentence(self) -> str:
        """Return what is to be said of the stream; empty where nothing is."""
        return self.alarm.sentence if self.alarm else self._shift

    @property
    def evidence(self) -> float:
        """Return what the bets have won: 1 at the start."""
        if self._course is None:
            return 1.0
        gross = float(self._gross.wealth.sum()) + reserve(self._blocks, GROSS_PACE)
        windows = float(self._windows.wealth.sum()) + reserve(self._course.compared, COURSE_PACE)
        return (gross + windows) / 2

    def update(self, counts: ArrayLike, seconds: float) -> Alarm | None:
        """Take the counts of a block [bins] at a time in seconds since 1970; return the alarm if it is raised now. Raises
        `InputError` for counts that are negative, of another number of bins, not whole, or more than 10 million."""
        block = checked_counts(counts, self.stream.binning.bins)
        size = int(block.sum())
        if size == 0:
            return None
        self.observations += size
        if self._course is None:
            self._counts = self._counts + block
            if self.observations >= self.stream.burn_in:
                coarse = quantiles(self.stream.binning, self._counts, COARSE)
                first = merge(self._counts, coarse_bins(self.stream.binning, coarse), coarse.bins)
                self._watch(coarse, first, seconds)
            return None
        self._block = self._block + merge(block, self._places, self._coarse.bins)
        if self._block.sum() >= self._least:
            self._bet(self._course, seconds)
        if self.alarm is None and self.evidence >= threshold(self.stream):
            self.alarm = self._explain()
            return self.alarm
        return None

    def _bet(self, course: Course, seconds: float) -> None:
        """Bet on a block that is full, and on the window that ends with it."""
        block, size = self._block, int(self._block.sum())
        hits = block @ self._hits
        left = reserve(self._blocks, GROSS_PACE)
        factors = gross_factors(hits / size, self._bands)
        self._gross = _follow(
            self._gross, factors, left - reserve(self._blocks + 1, GROSS_PACE), hits, self.observations, size
        )
        self._blocks, self._block = self._blocks + 1, np.zeros_like(block)
        calm = (
            float(self._gross.wealth.sum()) + left <= 1 and self.alarm is None
        )  # no change is learnt before it is noticed
        passed = course.compared
        compared = course.add(tally(hits, size, self._least), seconds, self.stream.burn_in // OF_BURN_IN, calm)
        if not course.window.any():  # a window has ended
            self._set_bands()
        if compared is None:
            return
        fresh = reserve(passed, COURSE_PACE) - reserve(passed + 1, COURSE_PACE)
        hits = np.tile(compared.tallies[: len(hits)].astype(np.int64), 2)
        factors = course_factors(compared.deviations, compared.tolerance)
        self._windows = _follow(self._windows, factors, fresh, hits, self.observations, int(compared.tallies[-2]))
        self._shift = self._say_shift(compared)

    def _say_shift(self, compared: Compared) -> str:
        """Return a sentence if a window differs mildly from what the stream was at first; else nothing."""
        number = self._hits.shape[1]
        first = np.concatenate([self._first @ self._hits, np.zeros(number), [self._first.sum(), 0]])
        was, now = shares(first)[:number], shares(compared.tallies)[:number]
        moved = distance(compared.tallies, shares(first))[:number]
        beyond = (np.abs(moved) - TOLERANCE) / compared.spread[:number]
        lead = int(np.argmax(beyond))
        return self._say(lead, float(now[lead]), float(was[lead])) if beyond[lead] > SHIFTED else ""

    def _explain(self) -> Alarm:
        gross = self._gross.wealth.max() >= self._windows.wealth.max()
        tracks, bets = (self._gross, len(STAKES)) if gross else (self._windows, len(TILTS))
        lead = int(np.argmax(tracks.wealth))
        place, up, since = lead // (2 * bets) % self._hits.shape[1], lead // bets % 2 == 0, int(tracks.since[lead])
        share = int(tracks.hits[lead]) / max(1, self.observations - int(self._block.sum()) - since)
        was, at = float(self._usual[place]), -1 if self._coarse.ordered else place
        sentence = self._say(place, share, was)
        return Alarm(self.stream.name, sentence, at, up, share, was, self.evidence, self.observations, since)

    def _say(self, place: int, share: float, was: float) -> str:
        if self._coarse.ordered:
            values = f"values of {self._coarse.edges[place]:.4g} or more"
        else:
            values = f"class {self._coarse.name(place)}"
        return f"{self.stream.name}: the share of {values} is {share:.1%}, was {was:.1%}"

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        state: dict[str, Any] = asdict(
            _State(self.stream, self.observations, self._counts.tolist(), shift=self._shift, alarm=self.alarm)
        )
        if self._course is not None:
            for key, tracks in (("gross", self._gross), ("windows", self._windows)):
                state[key] = {name: each.tolist() for name, each in asdict(tracks).items()}
            state |= {"edges": self._coarse.edges, "first": self._first.tolist(), "block": self._block.tolist()}
            state |= {"blocks": self._blocks, "course": asdict(self._course.state())}
        return state


def detector_from(content: Any) -> Detector:
    """Return the detector whose `to_dict` gave this. Raises `InputError` for anything else."""
    state = read(_State, content, "what a detector's to_dict gave")
    detector, binning = Detector(state.stream), state.stream.binning
    detector._counts = checked_counts(state.counts, binning.bins, 2**62)
    if state.course is not None:
        coarse = Binning(state.edges) if state.edges else binning
        detector._watch(coarse, checked_counts(state.first, coarse.bins, 2**62), 0.0)
        detector._course = course_from(detector._hits.shape[1], state.course)
        detector._block, detector._blocks = checked_counts(state.block, coarse.bins), state.blocks
        detector._gross = _tracks_from(state.gross, detector._gross)
        detector._windows = _tracks_from(state.windows, detector._windows)
        detector._set_bands()
    detector.observations, detector.alarm, detector._shift = state.observations, state.alarm, state.shift
    return detector


def threshold(stream: Stream) -> float:
    """Return the evidence at which a stream's alarm comes."""
    return 1 / stream.alpha


def checked_counts(counts: ArrayLike, bins: int, most: int = MAX_BLOCK) -> Counts:
    """Return counts as whole numbers [bins]. Raises `InputError` unless they are some."""
    array = np.asarray(counts)
    if array.shape != (bins,) or array.dtype.kind not in "iu":
        raise InputError("counts", f"of shape {array.shape} and type {array.dtype}", f"{bins} whole numbers")
    if (array < 0).any() or int(array.sum()) > most:
        raise InputError("counts", int(array.sum()), f"none negative, and at most {most} in all")
    return array.astype(np.int64)


def _follow(tracks: Tracks, factors: Floats, fresh: float, hits: Ints, after: int, size: int) -> Tracks:
    """Return the tracks after a block of `size` answers, by factors [n, 2, bets] and hits [n]."""
    spread = np.repeat(hits, factors[0].size)
    return bet(tracks, factors.ravel(), fresh, after - size, spread)


def _tracks_from(content: Any, present: Tracks) -> Tracks:
    """Return tracks as many as the present ones. Raises `InputError` unless they are some."""
    tracks = {key: np.asarray(values) for key, values in (content or {}).items()}
    if [(key, len(values)) for key, values in tracks.items()] != [
        (each.name, len(present.wealth)) for each in fields(Tracks)
    ]:
        raise InputError("tracks", "of another shape", f"numbers for {len(present.wealth)} bets")
    if (tracks["wealth"] < 0).any():
        raise InputError("wealth", "negative", "at least 0")
    since, hits = (tracks[key].astype(np.int64) for key in ("since", "hits"))
    return Tracks(tracks["wealth"], tracks["gain"], since, hits)
