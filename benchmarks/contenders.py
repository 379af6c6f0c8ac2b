"""Services that are compared live on one machine: their settings, and what one load at one of them gave."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.benchmarks.load_generator import IMAGES, Form, Reply, replay
from pliant.errors import InputError
from pliant.protocol import Request

Opener = Callable[[float], AbstractContextManager[str]]
"""Given the requests/s that set the load (0: not known yet), serves while the context lasts; gives the address."""

Key = tuple[str, str]
"""A contender's name and its setting, as text."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that answers requests. Of several under one name, the one with the best setting is compared."""

    name: str
    setting: Mapping[str, Any]
    open: Opener
    service: bool = False  # what one would run instead, not a policy of Pliant

    @property
    def title(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.setting.items())])


@dataclass(frozen=True, slots=True)
class Turn:
    """One load at one contender. `generator_busy`: share of one core that the generator took; near 1 it limits everybody."""

    replies: Sequence[Reply]
    generator_busy: float

    @property
    def sent_late_p99(self) -> float:
        """Return the seconds that the generator was behind its plan."""
        return float(np.quantile([reply.sent_late for reply in self.replies], 0.99))


def send(
    address: str, requests: Sequence[Request], pool: Mapping[str, Sequence[Any]], seed: int, form: Form = IMAGES
) -> Turn:
    """Send one load and gather its replies."""
    start, processor = time.perf_counter(), time.process_time()
    replies = asyncio.run(replay(address, requests, pool, seed, form=form))
    return Turn(replies, (time.process_time() - processor) / (time.perf_counter() - start))


def key(name: str, setting: Mapping[str, Any]) -> Key:
    return name, repr(sorted(setting.items()))


def named(contenders: Sequence[Contender], name: str) -> Contender:
    """Return the first contender of this name. Raises `InputError` where there is none."""
    for contender in contenders:
        if contender.name == name:
            return contender
    names = [contender.name for contender in contenders]
    raise InputError("contenders", names, f"with {name}, whose capacity sets the load")


def with_choice(contenders: Sequence[Contender]) -> list[Contender]:
    """Return those that share their name with others."""
    names = [contender.name for contender in contenders]
    return [contender for contender in contenders if names.count(contender.name) > 1]


def winners(contenders: Sequence[Contender], scores: Mapping[Key, float]) -> list[Contender]:
    """Return the contender of the highest score for each name, in the order given; the first where none has a score."""
    best: dict[str, Contender] = {}

    def score(contender: Contender) -> float:
        return scores.get(key(contender.name, contender.setting), -math.inf)

    for contender in contenders:
        if score(contender) > score(best.setdefault(contender.name, contender)):
            best[contender.name] = contender
    return list(best.values())
