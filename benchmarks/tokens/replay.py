"""The main job's second half: one bursty load over real HTTP, twice, with adaptation and with gamma fixed at 0.

Same requests, same images, same machine, one after the other. The load is set by what the endpoint was measured to serve
at gamma 0 over HTTP, not by what the profile promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks.load_generator import Example, Reply, capacity, replay
from pliant.progress import Progress
from pliant.report import Report, summarise
from pliant.tokens.reference import ReferenceConfig, ReferenceLoad, reference_load

ADAPTIVE, FIXED = "adaptive", "gamma 0"

Endpoint = Callable[[str], AbstractContextManager[str]]
"""Given a policy (ADAPTIVE or FIXED), serves while the context lasts and gives the address."""

Stage = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    probe: float = 4.0  # seconds of saturation to find the capacity at gamma 0
    clients: int = 256  # that saturate it
    seed: int = 0
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Everything that one comparison gave. Replies by policy, in the order of `load.requests`."""

    capacity: float
    load: ReferenceLoad
    replies: Mapping[str, Sequence[Reply]]

    def report(self, policy: str, loud: bool | None = None) -> Report:
        """Of the loud half, the quiet half, or all."""
        some = [r for r in self.replies[policy] if loud is None or (r.observation.request.id in self.load.loud) == loud]
        return summarise(reply.observation for reply in some)

    def ratio(self, loud: bool | None = None) -> float:
        """Utility of adaptation over that of gamma 0."""
        return self.report(ADAPTIVE, loud).utility / max(self.report(FIXED, loud).utility, 1e-9)

    def unanswered(self) -> int:
        """Requests that got no HTTP answer at all, over both replays."""
        return sum(reply.status == 0 for some in self.replies.values() for reply in some)

    def sent_late(self) -> float:
        """99th percentile of how far the generator fell behind its plan, in seconds."""
        return float(np.quantile([r.sent_late for some in self.replies.values() for r in some], 0.99))

    def plain(self) -> dict[str, Any]:
        """For JSON: reports of both policies over all, the quiet and the loud half."""
        halves = {"all": None, "quiet": False, "loud": True}
        reports = {p: {h: asdict(self.report(p, loud)) for h, loud in halves.items()} for p in self.replies}
        ratios = {h: self.ratio(loud) for h, loud in halves.items()}
        late = {"sent_late_p99": self.sent_late(), "unanswered": self.unanswered()}
        return {
            "capacity": self.capacity,
            "requests": len(self.load.requests),
            "ratios": ratios,
            **late,
            "reports": reports,
        }


def compare(endpoint: Endpoint, pool: Mapping[str, Sequence[Example]], config: ReplayConfig, stage: Stage) -> Replayed:
    """Measure the capacity, then replay under both policies."""
    replies: dict[str, list[Reply]] = {}
    with endpoint(FIXED) as address:
        with stage("capacity at gamma 0") as progress:
            served = asyncio.run(capacity(address, pool, config.probe, config.clients))
            progress(1, 1)
        load = reference_load(list(pool), served, config.seed, config.reference)
        replies[FIXED] = _replay(address, load, pool, config, stage, "load at gamma 0")
    with endpoint(ADAPTIVE) as address:
        replies[ADAPTIVE] = _replay(address, load, pool, config, stage, "load with adaptation")
    return Replayed(served, load, replies)


def _replay(
    address: str,
    load: ReferenceLoad,
    pool: Mapping[str, Sequence[Example]],
    config: ReplayConfig,
    stage: Stage,
    name: str,
) -> list[Reply]:
    with stage(name) as progress:
        return asyncio.run(replay(address, load.requests, pool, config.seed, progress))


def rows(replayed: Replayed) -> list[tuple[str, ...]]:
    """A table for people: one line a policy and half."""
    made: list[tuple[str, ...]] = []
    for half, loud in (("quiet", False), ("loud", True), ("all", None)):
        for policy in (FIXED, ADAPTIVE):
            r = replayed.report(policy, loud)
            gammas = " ".join(
                f"{g:+d}:{100 * n / max(sum(r.settings.values()), 1):.0f}%" for g, n in r.settings.items()
            )
            figures = (f"{r.utility:.0f}", f"{100 * r.attainment:.1f}%", f"{1000 * r.p50:.0f}", f"{1000 * r.p99:.0f}")
            made.append((half, policy, *figures, f"{100 * r.accuracy:.1f}%", gammas))
    return made


HEADINGS = ("half", "policy", "utility", "in time", "p50 ms", "p99 ms", "accuracy", "answered by gamma")
