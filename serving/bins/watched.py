"""What the watch sees of an answer of bins: lengths, the time of its launch over the profile, classes and confidences."""

from __future__ import annotations

from pliant.bins.artifact import Bins
from pliant.serving.answers import Completed
from pliant.serving.bins.answer import shares
from pliant.serving.bins.bodies import Encoder
from pliant.serving.watch.seen import Seen
from pliant.serving.watch.streams import CONFIDENCES, FACTORS, LENGTHS, confidence_of, labels, numbers


class BinsWatch:
    """Counts answers in `seen`."""

    def __init__(self, seen: Seen, burn_in: int) -> None:
        self._seen, self._burn_in = seen, burn_in
        self._lengths = numbers(LENGTHS, burn_in)
        # Launches close in time share what slows them: a machine's other work, its clock.
        self._factors = numbers(FACTORS, burn_in, burst=8.0)
        self._confidences = numbers(CONFIDENCES, burn_in)

    def count(self, task: str, encoder: Encoder, bins: Bins, number: int, length: int, result: Completed) -> None:
        """Count one text of `length` tokens that was answered. `number`: of its shape among the stream's own, or less
        than 0 where that is not known.
        """
        if not self._seen.takes():
            return
        self._seen.number(f"tokens of {task}", length, self._lengths)
        if 0 <= number < len(bins.seconds) and bins.seconds[number] > 0:
            factor = result.run_seconds / bins.seconds[number]
            self._seen.number(f"time of {task} over its profile", factor, self._factors)
        if encoder.classes:
            shares_K = shares(result.output)
            best = int(shares_K.argmax())
            self._seen.label(f"class of {task}", best, labels(encoder.classes, self._burn_in))
            self._seen.number(confidence_of(task), float(shares_K[best]), self._confidences)
