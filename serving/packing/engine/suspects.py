"""What a process's death costs: which outputs may have killed it, and how many sequences the next one may run.

Suspects are the outputs that were in two processes when they died.

If it is one, it is given up. Several are tried in turn: one at a time goes on in the next process, beside outputs that
are no suspects, until it has got further than before by some tokens. The one with which the process dies again is given
up. An output that has got further is no suspect any more, so processes that somebody kills now and then fail no output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from pliant.serving.packing.engine.in_flight import InFlightOutput

MAX_CRASHES = 2  # of the process, without progress between them, after which an output is suspect
CLEAR = 8  # tokens beyond those at the crash after which an output is no suspect


class Suspects:
    """The suspects that wait to be tried, and the one that is tried now."""

    def __init__(self) -> None:
        self._waiting: deque[InFlightOutput] = deque()
        self._tried: InFlightOutput | None = None
        self._tokens: dict[int, int] = {}  # at the crash, of the outputs that were in one since they last got further

    def holds(self, output: InFlightOutput) -> bool:
        """Return whether the output waits to be tried, so that the engine does not know it."""
        return output in self._waiting

    def died(self, outputs: Iterable[InFlightOutput]) -> list[InFlightOutput]:
        """Note that the process died with these outputs pending, and return those to give up."""
        inside = [output for output in outputs if not self.holds(output) and not output.finish]
        for output in inside:
            output.crashes += 1
            self._tokens[output.id] = len(output.tokens)
        tried, self._tried = self._tried, None
        if tried is not None and tried in inside:
            return [tried]
        suspects = [output for output in inside if output.crashes >= MAX_CRASHES]
        if len(suspects) == 1:
            return suspects
        self._waiting.extend(suspects)
        return []

    def next(self) -> InFlightOutput | None:
        """Return the suspect to try now; None if one is being tried, or there is none."""
        if self._tried is not None or not self._waiting:
            return None
        self._tried = self._waiting.popleft()
        return self._tried

    def advanced(self, output: InFlightOutput) -> None:
        """Note that an output may have new tokens."""
        if output.crashes and len(output.tokens) >= self._tokens.get(output.id, 0) + CLEAR:
            output.crashes = 0
            self.forget(output)

    def forget(self, output: InFlightOutput) -> None:
        """Note that an output has ended, or is no suspect any more."""
        self._tokens.pop(output.id, None)
        if self._tried is output:
            self._tried = None
        if output in self._waiting:
            self._waiting.remove(output)


class SequenceLimit:
    """The limit of one engine, for the next start of its process. `on_change` is called after each lack of memory."""

    def __init__(self, planned: int, on_change: Callable[[SequenceLimit], None] = lambda _limit: None) -> None:
        self.planned, self.value, self._on_change = planned, planned, on_change
        self.exhausted = 0  # processes that ran out of memory

    def lower(self, running: int) -> bool:
        """Note that a process ran out of memory with so many sequences, and return whether the next one takes fewer.

        It takes half of them, and half of the limit where it ran none. One sequence alone cannot be lowered.
        """
        self.exhausted += 1
        before = min(self.value, running or self.value)
        if before > 1:
            self.value = before // 2
        self._on_change(self)
        return before > 1
