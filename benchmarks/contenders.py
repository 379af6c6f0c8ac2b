"""Services that are compared live on one machine: their settings, and what one load at one of them gave."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.benchmarks.harness import Stage
from pliant.benchmarks.load_generator import IMAGES, Form, Reply, replay
from pliant.protocol import Request

Opener = Callable[[float], AbstractContextManager[str]]
"""Given the requests/s that set the load (0: not known yet), serves while the context lasts; gives the address."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that answers requests. Of several under one name, the one with the best setting is compared."""

    name: str
    setting: Mapping[str, Any]
    open: Opener

    @property
    def title(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.setting.items())])


@dataclass(frozen=True, slots=True)
class Turn:
    """One load at one contender. `generator_busy`: share of one core that the generator took; near 1 it limits everybody."""

    replies: Sequence[Reply]
    generator_busy: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return the seconds that the generator was behind its plan, and how many requests had no answer at all."""
        late = float(np.quantile([reply.sent_late for reply in self.replies], 0.99))
        unanswered = sum(reply.status == 0 for reply in self.replies)
        return {"sent_late_p99": late, "unanswered": unanswered, "generator_busy": self.generator_busy}


def send(
    address: str, requests: Sequence[Request], pool: Mapping[str, Sequence[Any]], seed: int, form: Form = IMAGES
) -> Turn:
    """Send one load and gather its replies."""
    start, processor = time.perf_counter(), time.process_time()
    replies = asyncio.run(replay(address, requests, pool, seed, form=form))
    return Turn(replies, (time.process_time() - processor) / (time.perf_counter() - start))


def best_settings(
    contenders: Sequence[Contender], capacity: float, stage: Stage, score: Callable[[str], float] | None
) -> list[Contender]:
    """Return the contender of the highest score for each name, in the order given; without `score` the first.

    `score`: of a contender at this address. Who has no other of the same name is not tried.
    """
    names = [contender.name for contender in contenders]
    best: dict[str, tuple[float, Contender]] = {}
    for contender in contenders:
        scored = 0.0
        if score is not None and names.count(contender.name) > 1:
            with stage(contender.title) as progress, contender.open(capacity) as address:
                scored = score(address)
                progress(1, 1)
        if contender.name not in best or scored > best[contender.name][0]:
            best[contender.name] = scored, contender
    return [contender for _, contender in best.values()]
