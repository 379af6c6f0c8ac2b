"""Watches one stream: counts by block come in, one alarm comes out if it changes.

First the stream is learnt from its first observations, unless a reference is given. Then the bets of betting.py run. What
is learnt is refined from all observations each time that they have doubled, at times fixed beforehand, with a part of alpha
for the bounds of each; not where the evidence is above its start, so that a change is not learnt before it is noticed. After
an alarm the detector is latched: it goes on counting, and says nothing more until it is reset. All that it knows is plain
JSON values, exact after a round trip.

Where the alarm's leading bet began to win is an estimate of when the change came: the last time at which the product of
that bet's factors was at its least (Page, Continuous inspection schemes, Biometrika, 1954).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pliant.errors import InputError
from pliant.state import Finite, Whole, read
from pliant.watch.betting import Bets, Direction, bands, bet_block, evidence, make_bets
from pliant.watch.binning import Binning, Counts, coarse_bins, merge, quantiles
from pliant.watch.reference import Reference, reference_of

MAX_BLOCK = 10_000_000  # observations
UNCERTAIN = 0.1  # share of alpha for the reference's bounds

State = Literal["learning", "watching", "alarm"]


@dataclass(frozen=True, slots=True)
class Stream:
    """What is watched, and how. Raises `InputError` where a figure is outside its limits.

    `binning`: of the counts that come in. `reference`: None where it is to be learnt from the first `burn_in` observations.
    """

    name: str  # in words: "class of task digit"
    binning: Binning
    reference: Reference | None = None
    alpha: float = 0.01  # probability of a false alarm, ever
    tolerance: float = 1.12  # factor by which odds may differ without being a change
    burn_in: int = 5000  # observations
    refinements: int = 5  # doublings of burn_in at which what was learnt is refined; the last is at 160,000
    coarse: int = 12  # bins that numbers are watched in, at most, beside two small ones at the ends
    direction: Direction = "both"
    pace: float = 100_000.0  # observations, about a day's; see `reserve`
    burst: float = 1.0  # observations in a row that may depend on each other; see `make_bets`

    def __post_init__(self) -> None:
        limits = (
            ("alpha", self.alpha, 0 < self.alpha < 1, "between 0 and 1"),
            ("tolerance", self.tolerance, 1 <= self.tolerance <= 100, "1 to 100"),
            ("burn_in", self.burn_in, 1 <= self.burn_in <= MAX_BLOCK, f"1 to {MAX_BLOCK}"),
            ("refinements", self.refinements, 0 <= self.refinements <= 30, "0 to 30"),
            ("coarse", self.coarse, self.coarse >= 2, "at least 2"),
            ("direction", self.direction, self.direction in ("both", "up", "down"), "both, up or down"),
            ("pace", self.pace, self.pace > 0, "above 0"),
            ("burst", self.burst, 1 <= self.burst <= MAX_BLOCK, f"1 to {MAX_BLOCK}"),
        )
        for field, value, kept, limit in limits:
            if not kept:
                raise InputError(field, value, limit)
        if self.reference is not None:
            coarse_bins(self.binning, self.reference.binning)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A change that was noticed. Observations are counted from the stream's reset, those of the reference included."""

    stream: str
    sentence: str  # for a person: what it is now, and what it was
    bin: int  # of the reference, that changed most; -1 where all numbers moved
    up: bool  # whether there is more of it, or numbers are larger
    share: float  # since the estimated change
    was: float  # the reference's share
    evidence: float  # what the bets have won
    observations: int  # at the alarm
    since: int  # estimated observation of the change


@dataclass(frozen=True, slots=True)
class _State:
    """All that a detector knows, as it is kept. `learnt`: the reference, where the stream has none."""

    stream: Stream
    observations: Whole
    counts: list[Whole]
    learnt: Reference | None
    start: Whole
    due: Whole
    used: Whole
    tracks: dict[str, list[Finite]] | None
    alarm: Alarm | None


@dataclass(frozen=True, slots=True)
class _Tracks:
    """Of each bet [bets]: its wealth, the log of its gain since it was least, and since when, with the hits since."""

    wealth: NDArray[np.float64]
    gain: NDArray[np.float64]
    since: NDArray[np.int64]
    hits: NDArray[np.int64]


class Detector:
    """Learns a stream's reference if it has none, and raises one alarm when the stream leaves it."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.alarm: Alarm | None = None
        self.observations = 0
        self._counts: Counts = np.zeros(stream.binning.bins, np.int64)  # since the reset
        self._start = 0  # observations before the bets began
        self._due = 0  # refinements whose time has come, used or not
        self.reference: Reference | None = None
        if stream.reference is not None:
            self._watch(stream.reference, 0, 0.0)

    def _watch(self, reference: Reference, used: int, wealth: float) -> None:
        """Bet on from here against this reference, with what was won. `used`: the refinement that it comes from."""
        self.reference, self._used = reference, used
        self._places = coarse_bins(self.stream.binning, reference.binning)
        self._bets = bets_of(self.stream, reference, used)
        zeros = np.zeros(len(self._bets.items), np.int64)
        self._tracks = _Tracks(wealth * self._bets.weights, zeros.astype(float), zeros + self.observations, zeros)

    @property
    def state(self) -> State:
        return "alarm" if self.alarm else "watching" if self.reference else "learning"

    @property
    def evidence(self) -> float:
        """Return what the bets have won: 1 at the start."""
        if self.reference is None:
            return 1.0
        return float(evidence(self._tracks.wealth, self.observations - self._start, self.stream.pace))

    def update(self, counts: ArrayLike) -> Alarm | None:
        """Take the counts of a block [bins]; return the alarm if it is raised now. Raises `InputError` for counts that
        are negative, of another number of bins, not whole, or more than 10 million."""
        block = checked_counts(counts, self.stream.binning.bins)
        size = int(block.sum())
        if size == 0:
            return None
        self._counts = self._counts + block
        before = self.observations
        self.observations += size
        if self.reference is None:
            if self.observations >= self.stream.burn_in:
                self._start = self.observations
                self._watch(learn(self.stream, self._counts), 0, 0.0)
            return None
        merged = merge(block, self._places, self.reference.binning.bins)
        wealth = bet_block(self._bets, self._tracks.wealth, merged, before - self._start, self.stream.pace)
        self._tracks = _follow(self._bets, self._tracks, wealth, merged, before)
        if self.alarm is None and self.evidence >= threshold(self.stream):
            self.alarm = self._explain()
            return self.alarm
        # What was learnt of the first observations is refined each time that these have doubled. Several doublings that one
        # block brings count as so many, of which each is refined with a block of its own.
        doubled = (self.observations // self._start).bit_length() - 1 if self._start else 0
        if self.stream.reference is None and self._due < min(self.stream.refinements, doubled):
            self._due += 1
            if self.evidence <= 1 and self.alarm is None:
                counts = merge(self._counts, self._places, self.reference.binning.bins)
                # The wealth is divided among the bets as if it came in now.
                won = float(self._tracks.wealth.sum())
                self._watch(reference_of(self.reference.binning, counts), self._due, won)
        return None

    def _explain(self) -> Alarm:
        assert self.reference is not None
        lead = int(np.argmax(self._tracks.wealth))
        bet, since = self._bets.items[lead], int(self._tracks.since[lead])
        share = int(self._tracks.hits[lead]) / max(1, self.observations - since)
        was = float(np.asarray(self.reference.shares) @ self._bets.hits[:, lead])
        binning = self.reference.binning
        if bet.kind == "bin":
            values = f"{'class' if binning.labels else 'values'} {binning.name(bet.place)}"
        else:
            values = f"values of {binning.edges[bet.place - 1]:.4g} or more"
        sentence = f"{self.stream.name}: the share of {values} is {share:.1%}, was {was:.1%}"
        place = bet.place if bet.kind == "bin" else -1
        return Alarm(self.stream.name, sentence, place, bet.up, share, was, self.evidence, self.observations, since)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        watching = self.reference is not None
        state = _State(
            self.stream,
            self.observations,
            self._counts.tolist(),
            self.reference if self.stream.reference is None else None,
            self._start,
            self._due,
            self._used if watching else 0,
            {key: value.tolist() for key, value in asdict(self._tracks).items()} if watching else None,
            self.alarm,
        )
        return asdict(state)


def detector_from(content: Any) -> Detector:
    """Return the detector whose `to_dict` gave this. Raises `InputError` for anything else."""
    state = read(_State, content, "what a detector's to_dict gave")
    detector = Detector(state.stream)
    if state.start > state.observations:
        raise InputError("start", state.start, f"at most {state.observations}")
    if not state.used <= state.due <= detector.stream.refinements:
        raise InputError("refinements", (state.used, state.due), f"0 to {detector.stream.refinements}, in order")
    detector._start, detector._due = state.start, state.due
    if state.learnt is not None and detector.reference is None:
        detector._watch(state.learnt, state.used, 0.0)
    detector._counts = checked_counts(state.counts, detector.stream.binning.bins, 2**62)
    if detector.reference is not None:
        bets = len(detector._bets.items)
        tracks = {key: np.asarray(values) for key, values in (state.tracks or {}).items()}
        if [(key, len(values)) for key, values in tracks.items()] != [(each.name, bets) for each in fields(_Tracks)]:
            raise InputError("tracks", "of another shape", f"numbers for {bets} bets")
        if (tracks["wealth"] < 0).any():
            raise InputError("wealth", "negative", "at least 0")
        since, hits = (tracks[key].astype(np.int64) for key in ("since", "hits"))
        detector._tracks = _Tracks(tracks["wealth"], tracks["gain"], since, hits)
    detector.observations, detector.alarm = state.observations, state.alarm
    return detector


def threshold(stream: Stream) -> float:
    """Return the evidence at which a stream's alarm comes: what the reference's bounds leave of alpha is the bets'."""
    return 1 / (stream.alpha * (1 - UNCERTAIN))


def learn(stream: Stream, counts: Counts) -> Reference:
    """Return the reference that follows from the counts [bins] of a stream's first observations."""
    coarse = quantiles(stream.binning, counts, stream.coarse)
    return reference_of(coarse, merge(counts, coarse_bins(stream.binning, coarse), coarse.bins))


def bets_of(stream: Stream, reference: Reference, used: int = 0) -> Bets:
    """Return the bets against a stream's staying near a reference, which comes from so many refinements, at the stream's
    tolerance. The parts of alpha for the bounds of all refinements sum to at most `UNCERTAIN`."""
    alpha = UNCERTAIN * stream.alpha / 2 ** (used + 1)
    band = bands(reference, stream.burst, stream.tolerance, alpha, stream.binning.bins)
    return make_bets(reference, band, stream.direction, stream.burst)


def checked_counts(counts: ArrayLike, bins: int, most: int = MAX_BLOCK) -> Counts:
    """Return counts as whole numbers [bins]. Raises `InputError` unless they are some."""
    array = np.asarray(counts)
    if array.shape != (bins,) or array.dtype.kind not in "iu":
        raise InputError("counts", f"of shape {array.shape} and type {array.dtype}", f"{bins} whole numbers")
    if (array < 0).any() or int(array.sum()) > most:
        raise InputError("counts", int(array.sum()), f"none negative, and at most {most} in all")
    return array.astype(np.int64)


def _follow(bets: Bets, tracks: _Tracks, wealth: NDArray[np.float64], counts: Counts, before: int) -> _Tracks:
    """Return the tracks after a block: a bet whose gain had fallen to nothing is followed from this block on."""
    fresh = tracks.gain <= 0
    gain = np.where(fresh, 0.0, tracks.gain) + counts @ bets.log_factors
    hits = np.where(fresh, 0, tracks.hits) + counts @ bets.hits
    return _Tracks(wealth, gain, np.where(fresh, before, tracks.since), hits)
