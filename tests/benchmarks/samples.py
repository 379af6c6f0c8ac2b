"""A small load, replies as a client would have seen them, and a bundle of tiny artifacts."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.load_generator import Reply
from benchmarks.tokens_replay import ADAPTIVE, FIXED, Replayed
from flows.tokens_stages import Bundle
from pliant.protocol import Request
from pliant.report import Observation
from pliant.tokens.reference import ReferenceConfig, ReferenceLoad, reference_load
from tests.tokens_samples import tiny_backbone, tiny_profile, tiny_task

CAPACITY = 100.0
LOAD = reference_load(["digit", "loops"], CAPACITY, 0, ReferenceConfig(seconds=0.5))


def bundle() -> Bundle:
    tasks = tuple(tiny_task(name, ("a", "b"), "sha256:b") for name in ("digit", "loops"))
    return Bundle(tiny_backbone(), tasks, tiny_profile("sha256:b", "cpu"))


def answered(request: Request, gamma: int = 0, correct: bool = True, after: float = 0.1) -> Reply:
    return Reply(Observation(request, request.arrival + after, correct, gamma, 8), 200, 0.001, 0.002)


def lost(request: Request, status: int) -> Reply:
    return Reply(Observation(request, dropped=str(status)), status, 0.001, float("nan"))


def replayed(adaptive: Callable[[Request], Reply], fixed: Callable[[Request], Reply]) -> Replayed:
    """A comparison in which every request fared as the two functions say."""
    load: ReferenceLoad = LOAD
    replies = {policy: [fate(r) for r in load.requests] for policy, fate in ((ADAPTIVE, adaptive), (FIXED, fixed))}
    return Replayed(CAPACITY, load, replies)
