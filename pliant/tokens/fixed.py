"""One setting whatever the load: PetS (gamma 0), a fixed ToMe (gamma < 0) and a fixed VPT (gamma > 0).

Algorithm 1's batches run by earliest deadline. Requests that would be late are dropped before they cost time, which is
more than those systems do by themselves: the baseline is to be beaten at its best.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.protocol import Request
from pliant.tokens.batched import Choice
from pliant.tokens.batching import Batch
from pliant.tokens.policy import Fleet, Knowledge


class FixedChooser:
    trims = True

    def __init__(self, setting: int) -> None:
        self._setting = setting

    def arrived(self, request: Request, now: float) -> None: ...

    def lost(self, worker: int) -> None: ...

    def learn(self, knowledge: Knowledge) -> None:
        knowledge.latency.row(self._setting)

    def choose(self, batches: Sequence[Batch], fleet: Fleet, now: float) -> Choice:
        del fleet, now
        return Choice(batches[0], self._setting)
