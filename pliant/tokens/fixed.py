"""Baselines with one setting whatever the load: PetS (gamma 0), ToMe (one gamma < 0) and VPT (one gamma > 0).

Batches are those of OTAS' Algorithm 1 and run by earliest deadline. Requests that would be late are dropped before they
cost time. The published systems do not do that: it makes the baselines stronger.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.protocol import Request
from pliant.tokens.batched import Choice
from pliant.tokens.batching import Batch
from pliant.tokens.policy import Knowledge, PoolState


class FixedChooser:
    """Run the batch of the earliest deadline at one setting."""

    trims = True

    def __init__(self, setting: int) -> None:
        self._setting = setting

    def arrived(self, request: Request, now: float) -> None: ...

    def lost(self, worker: int) -> None: ...

    def learn(self, knowledge: Knowledge) -> None:
        knowledge.latency.row(self._setting)

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        del pool, now
        return Choice(batches[0], self._setting)
