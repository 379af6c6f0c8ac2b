"""One text on its way through the levels: what each reads, the answer so far, and whether the next one is worth asking.

The decisions are functions of pliant/cascade (route.py, prune.py, text.py); here is what has to be kept between them, and
the driver's `read` that calls them after each launch. Knows nothing of clocks, queues or HTTP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.artifact import Candidate, Cascade
from pliant.cascade.prune import kept_words
from pliant.cascade.route import Rows, answers, combine, judge
from pliant.models.text import Reader, Reading, Span, shorten
from pliant.protocol import Result
from serving.answers import Pending
from serving.cascade.catalog import ServedTask
from serving.cascade.messages import Payload

Draw = Callable[[], float]
"""Uniform in [0, 1); what the published gates toss."""


@dataclass(frozen=True, slots=True)
class Way:
    """A task as it is served, with a reader for every level. Levels that read alike share one."""

    served: ServedTask
    readers: tuple[Reader, ...]

    @property
    def cascade(self) -> Cascade:
        return self.served.cascade


def way(served: ServedTask) -> Way:
    """Raises `ArtifactError` for a tokenizer that cannot be used."""
    keys = [(level.tokenizer, level.max_length) for level in served.levels]
    made = {key: Reader(*key) for key in dict.fromkeys(keys)}
    return Way(served, tuple(made[key] for key in keys))


@dataclass(slots=True)
class Asked:
    """One text, and the second one of a pair. `begin` makes it; `read` changes it after each of its launches."""

    way: Way
    candidate: Candidate
    original: tuple[str, str | None]
    text: tuple[str, str | None]  # what the level reads that runs next: without the words dropped
    reading: Reading
    draw: Draw
    ran: int = 0  # levels
    answer: Rows = field(default_factory=lambda: np.empty((0, 0)))  # [1, K] of the levels that ran, see route.py
    truncated: bool = False  # some level that ran was given more than it reads
    dropped: tuple[Span, ...] = ()  # words of `original` that the level that ran last was not shown
    leaving: tuple[Span, ...] = ()  # those that the next one is not to be shown
    spots: tuple[_Spot, ...] = ()  # where the words of `text` stand in `original`; empty: where they do in `text`

    @property
    def payload(self) -> Payload:
        return self.reading.ids, self.reading.types

    @property
    def length(self) -> int:
        return len(self.reading.ids)

    def take(self, logits: NDArray[np.float32]) -> float:
        """A level's output: the gain expected of the next one, NaN where there is none or it need not be asked."""
        cascade, candidate = self.way.cascade, self.candidate
        level = cascade.levels[candidate.levels[self.ran]]
        answer = answers(level, cascade.tolerance, logits[None], np.array([self.length]))
        self.answer = combine(candidate.gates[self.ran - 1], self.answer, answer) if self.ran else answer
        self.truncated = self.truncated or self.reading.truncated
        self.dropped, self.leaving = self.dropped + self.leaving, ()
        self.ran += 1
        if self.ran == len(candidate.levels):
            return math.nan
        gate = candidate.gates[self.ran - 1]
        return float(judge(gate, self.answer, np.array([self.draw()]), not cascade.classes)[0])

    def go_on(self, importance: NDArray[np.float32] | None) -> None:
        """Prune by the importance of every token that was read, and read what is left as the next level does."""
        levels, pruning = self.candidate.levels, self.candidate.gates[self.ran - 1].pruning
        former, reader = self.way.readers[levels[self.ran - 1]], self.way.readers[levels[self.ran]]
        pruned = False
        if pruning.rule != "none" and importance is not None:
            pruned = self._prune(kept_words(importance, self.reading.words, pruning))
        if pruned or reader is not former:
            self.reading = reader.read(*self.text)

    def _prune(self, kept: NDArray[np.bool_]) -> bool:
        if kept.all():
            return False
        spans, stays = self.reading.spans, kept.tolist()
        self.leaving = tuple(self._origin(span) for span, stay in zip(spans, stays, strict=True) if not stay)
        text = shorten(*self.text, spans, kept)
        if self.ran < len(self.candidate.gates):  # words may be dropped once more
            left = [span for span, stay in zip(spans, stays, strict=True) if stay]
            self.spots = tuple(_Spot(new, *self._origin(old)[1:]) for new, old in _found(self.text, text, left))
        self.text = text
        return True

    def _origin(self, span: Span) -> Span:
        """Where a word of `text` stands in `original`: from the first of the spots that it covers to the last."""
        if not self.spots:
            return span
        which, start, end = span
        covered = [spot for spot in self.spots if spot.here[0] == which and spot.here[1] < end and spot.here[2] > start]
        return which, min(spot.start for spot in covered), max(spot.end for spot in covered)


@dataclass(frozen=True, slots=True)
class _Spot:
    here: Span
    start: int  # in `original`
    end: int


def begin(way: Way, number: int, first: str, second: str | None, draw: Draw) -> Asked:
    """Before any level ran. `number`: of the candidate."""
    candidate = way.cascade.candidates[number]
    reading = way.readers[candidate.levels[0]].read(first, second)
    return Asked(way, candidate, (first, second), (first, second), reading, draw)


def read(pending: Pending, result: Result) -> Result:
    """The driver's `read`, for requests whose `state` is an `Asked`."""
    asked: Asked = pending.state
    logits, importance = pending.last.output
    gain = asked.take(logits)
    if math.isnan(gain):
        return result
    asked.go_on(importance)
    pending.payload = asked.payload
    return Result(result.request, gain=gain, length=asked.length)


def _found(
    before: tuple[str, str | None], after: tuple[str, str | None], words: Sequence[Span]
) -> list[tuple[Span, Span]]:
    """Each word of `before` that is left, in the order of the text, with where it stands in `after`: (there, here)."""
    pairs, cursor = [], [0, 0]
    for which, start, end in words:
        old, new = before[which], after[which]
        assert old is not None and new is not None, "a word is in a text"
        at = new.index(old[start:end], cursor[which])
        cursor[which] = at + end - start
        pairs.append(((which, at, cursor[which]), (which, start, end)))
    return pairs
