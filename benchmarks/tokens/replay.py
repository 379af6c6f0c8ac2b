"""The main job's second half: one bursty load over real HTTP, twice, with adaptation and with gamma fixed at 0.

Same requests, same images, same machine, in turns of a quiet and a loud stretch, so that whatever else the machine does
meets both. The load is set by what the endpoint was measured to serve
at gamma 0 over HTTP, not by what the profile promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from rich.table import Table

from pliant.benchmarks import endpoint
from pliant.benchmarks.demo.turns import Compared, cells
from pliant.benchmarks.demo.turns import compare as in_turns
from pliant.benchmarks.harness import Context, Measured, Stage
from pliant.benchmarks.load_generator import IMAGES, Example, Reply, capacity, examples
from pliant.benchmarks.planned import against_live
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.protocol import Request
from pliant.report import Report, summarise
from pliant.tokens.simulated import ReferenceConfig, ReferenceLoad, kinds, reference_load
from pliant.training import data
from pliant.training.tokens.labelled import original

ADAPTIVE, FIXED = "adaptive", "gamma 0"
Options = Mapping[str, Mapping[str, Any]]
"""Settings of the services of ADAPTIVE and FIXED."""


def address(policy: str, **options: Any) -> AbstractContextManager[str]:
    """Give the address of a ready service under a policy of Pliant."""
    return endpoint.serving("tokens", policy=policy, **options)


def live_bundle() -> Bundle:
    """Return the champion's artifacts. Raises `RegistryError` where there is none."""
    bundle = load_champion(settings.read())
    if bundle is None:
        raise RegistryError("the registry holds no champion of the tokens system: run `pliant train tokens` first")
    return bundle


def test_examples(bundle: Bundle) -> dict[str, list[Example]]:
    """Return held-out images of every embedded task that the champion serves, as a client would send them."""
    pool = {}
    for task in bundle.tasks:
        if task.name in data.DIGIT_TASKS:
            loaded = data.digits(task.name)
            if loaded.fingerprint == original(task.data):
                pool[task.name] = examples(loaded, [int(i) for i in loaded.split.test])
    if not pool:
        raise RegistryError("the champion serves none of the embedded tasks, whose held-out images the replay needs")
    return pool


HALVES: Mapping[str, bool | None] = {"quiet": False, "loud": True, "all": None}
HEADINGS = ("half", "policy", "utility", "in time", "p50 ms", "p99 ms", "accuracy", "answered at")


@dataclass(frozen=True, slots=True)
class ReplayConfig:
    probe: float = 4.0  # seconds of saturation to find the capacity at gamma 0
    clients: int = 256  # that saturate it
    seed: int = 0
    reference: ReferenceConfig = field(default_factory=ReferenceConfig)


@dataclass(frozen=True, slots=True)
class Replayed:
    """One comparison: the load, and how it fared in turns of a quiet and a loud stretch."""

    load: ReferenceLoad
    compared: Compared

    def report(self, policy: str, loud: bool | None = None) -> Report:
        """Report on the loud half, the quiet half, or all."""
        seen = self.compared.seen(policy)
        return summarise(each for each in seen if loud is None or (each.request.id in self.load.loud) == loud)

    def ratio(self, loud: bool | None = None) -> float:
        """Return the utility of adaptation over that of gamma 0."""
        return self.report(ADAPTIVE, loud).utility / max(self.report(FIXED, loud).utility, 1e-9)

    def replies(self) -> list[Reply]:
        """Return all replies, of both policies."""
        return [reply for turns in self.compared.turns.values() for replies in turns for reply in replies]

    def unanswered(self) -> int:
        """Return how many requests got no HTTP answer at all."""
        return sum(reply.status == 0 for reply in self.replies())

    def plain(self) -> dict[str, Any]:
        """Return what the results' file holds: reports of both policies over all, the quiet and the loud half."""
        return {
            "capacity": self.compared.bears,
            "requests": len(self.load.requests),
            "ratios": {half: self.ratio(loud) for half, loud in HALVES.items()},
            # Seconds that the generator was behind its plan.
            "sent_late_p99": float(np.quantile([reply.sent_late for reply in self.replies()], 0.99)),
            "unanswered": self.unanswered(),
            "reports": {
                policy: {half: asdict(self.report(policy, loud)) for half, loud in HALVES.items()}
                for policy in self.compared.turns
            },
        }

    def table(self) -> Table:
        """Return one line a policy and half."""
        table = Table(*HEADINGS)
        for half, loud in HALVES.items():
            for policy in (FIXED, ADAPTIVE):
                report = self.report(policy, loud)
                answered, own = max(sum(report.settings.values()), 1), cells(report)
                gammas = " ".join(f"{gamma}:{100 * n / answered:.0f}%" for gamma, n in report.settings.items())
                row = (half, policy, *(own[name] for name in HEADINGS[2:-1]), gammas)
                table.add_row(*row, style="bold" if policy == ADAPTIVE else "")
        return table


def compare(options: Options, pool: Mapping[str, Sequence[Example]], config: ReplayConfig, stage: Stage) -> Replayed:
    """Measure the capacity of FIXED, then replay the load in turns."""
    with stage("endpoints") as progress, endpoint.serving_each("tokens", options, progress) as addresses:
        with stage("capacity at gamma 0") as progress:
            served = asyncio.run(capacity(addresses[FIXED], pool, config.probe, config.clients))
            progress(1, 1)
        load = reference_load(list(pool), served, config.seed, config.reference)
        seconds = 2 * config.reference.seconds  # of a quiet and a loud stretch

        def pair(number: int, _served: float) -> list[Request]:
            start = number * seconds
            return [
                replace(request, arrival=request.arrival - start, deadline=request.deadline - start)
                for request in load.requests
                if start <= request.arrival < start + seconds
            ]

        forms, count = dict.fromkeys(addresses, IMAGES), len(load.segments) // 2
        with stage("the load in turns") as progress:
            return Replayed(load, in_turns(addresses, forms, pool, count, lambda: served, pair, progress))


def planned(context: Context) -> Measured:
    """Plan for what came to a live service of the champion, and compare."""
    deadlines = [kind.deadline for kind in kinds(["any"], ReferenceConfig())]
    return against_live(context, "tokens", IMAGES, test_examples(live_bundle()), deadlines, "default")
