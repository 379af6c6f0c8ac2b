"""The interface of whatever runs the plans of packing's scheduler, and what one iteration reports. Knows no model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.packing.engine.logprobs import TokenLogprobs
from pliant.packing.engine.swap_space import SwapSpace
from pliant.packing.scheduling.request import StepPlan


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one iteration did. Ids are those of prompts."""

    tokens: tuple[tuple[int, int, bool], ...] = ()  # id, its new token, and whether that was its last
    started: tuple[int, ...] = ()  # ids that were read for the first time
    preempted: tuple[tuple[int, int], ...] = ()  # id, and the number of its tokens to read again
    sequences: int = 0  # in the iteration; 0: there was nothing to run
    logprobs: tuple[tuple[int, TokenLogprobs], ...] = ()  # id, and of its new token
    stuck: tuple[int, ...] = ()  # ids of those whose last token came because their grammar says nothing more
    costly: tuple[int, ...] = ()  # ids of those that go on, though their grammar takes more time than it may
    prompt_logprobs: tuple[
        tuple[int, int, TokenLogprobs], ...
    ] = ()  # id, a place in its prompt, and of the token there


class Executor(Protocol):
    """Runs iterations by the plans of a scheduler. Not thread-safe."""

    @property
    def scheduling(self) -> float:
        """Seconds that a scheduler of its own has taken so far; 0 where it follows plans."""

    @property
    def shares(self) -> bool:
        """Return whether sequences can use the same pages, as the chunks of a plan say."""

    @property
    def running(self) -> int:
        """Return the sequences that have pages in the device's cache, or are about to get some."""

    @property
    def pages_used(self) -> int:
        """Return the pages in use of the device's cache."""

    @property
    def swap_space(self) -> SwapSpace:
        """Return the pages on the host."""

    def pages_of(self, id: int) -> int:
        """Return the pages of one sequence in the device's cache."""

    def enter(self, threads: int) -> None:
        """Prepare the thread that runs iterations; call it there, once, first."""

    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None:
        """Add a waiting sequence that generates at most `limit` tokens and stops after one of `ends`."""

    def cancel(self, id: int) -> None:
        """Remove a sequence and free its pages on the device and on the host."""

    def carry_out(self, plan: StepPlan) -> None:
        """Do everything in the plan but the iteration itself. Raises `SchedulerError` if there are too few pages."""

    def step(self) -> StepResult:
        """Run one iteration and return what it did. Raises what the model raises."""

    def close(self) -> None:
        """Release the model. Counts and tables can still be read."""

    def check(self) -> None:
        """Raises AssertionError if pages are lost or belong to no sequence."""
