"""The main job's second half: one bursty load over real HTTP, twice, with adaptation and with gamma fixed at 0.

Same requests, same images, same machine, in turns of a quiet and a loud stretch, so that whatever else the machine does
meets both. The load is set by what the endpoint was measured to serve
at gamma 0 over HTTP, not by what the profile promises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from pliant.benchmarks import endpoint
from pliant.benchmarks.harness import Stage
from pliant.benchmarks.load_generator import Example, Reply, capacity, examples, later, replay, turns
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.flows.tokens.stages import Bundle
from pliant.progress import Progress, silent
from pliant.report import Observation, Report, summarise
from pliant.tokens.simulated import ReferenceConfig, ReferenceLoad, reference_load
from pliant.training import data
from pliant.training.tokens.labelled import original

ADAPTIVE, FIXED = "adaptive", "gamma 0"
POLICY_OF = {ADAPTIVE: "default", FIXED: "pets"}


def address(policy: str, **options: Any) -> AbstractContextManager[str]:
    """Give the address of a ready service under a policy of replay.py or of Pliant."""
    return endpoint.serving("tokens", policy=POLICY_OF.get(policy, policy), **options)


@contextmanager
def together(progress: Progress = silent) -> Iterator[Endpoint]:
    """Start the endpoints of ADAPTIVE and FIXED at the same time; a measurement uses one while the other is idle.

    Both schedule by the default policy: FIXED has one gamma to choose from, so that adaptation is all they differ in.
    """
    options = {policy: {"policy": "default", "gamma": gamma} for policy, gamma in ((FIXED, 0), (ADAPTIVE, None))}
    with endpoint.serving_each("tokens", options, progress) as addresses:
        yield lambda policy: nullcontext(addresses[policy])


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
HEADINGS = ("half", "policy", "utility", "in time", "p50 ms", "p99 ms", "accuracy", "answered by gamma")

Endpoint = Callable[[str], AbstractContextManager[str]]
"""Given a policy (ADAPTIVE or FIXED), serves while the context lasts and gives the address."""


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
        """Report on the loud half, the quiet half, or all."""
        some = [r for r in self.replies[policy] if loud is None or (r.observation.request.id in self.load.loud) == loud]
        return summarise(reply.observation for reply in some)

    def seen(self) -> dict[str, list[Observation]]:
        """Return how all requests fared, by policy."""
        return {policy: [reply.observation for reply in some] for policy, some in self.replies.items()}

    def ratio(self, loud: bool | None = None) -> float:
        """Return the utility of adaptation over that of gamma 0."""
        return self.report(ADAPTIVE, loud).utility / max(self.report(FIXED, loud).utility, 1e-9)

    def unanswered(self) -> int:
        """Return how many requests got no HTTP answer at all, over both replays."""
        return sum(reply.status == 0 for some in self.replies.values() for reply in some)

    def plain(self) -> dict[str, Any]:
        """Return what the results' file holds: reports of both policies over all, the quiet and the loud half."""
        late = [reply.sent_late for replies in self.replies.values() for reply in replies]
        return {
            "capacity": self.capacity,
            "requests": len(self.load.requests),
            "ratios": {half: self.ratio(loud) for half, loud in HALVES.items()},
            "sent_late_p99": float(np.quantile(late, 0.99)),  # seconds that the generator was behind its plan
            "unanswered": self.unanswered(),
            "reports": {
                policy: {half: asdict(self.report(policy, loud)) for half, loud in HALVES.items()}
                for policy in self.replies
            },
        }


def compare(endpoint: Endpoint, pool: Mapping[str, Sequence[Example]], config: ReplayConfig, stage: Stage) -> Replayed:
    """Measure the capacity, then replay the load in turns: each pair of stretches to the one, then to the other."""
    addresses = {FIXED: "", ADAPTIVE: ""}
    with endpoint(FIXED) as addresses[FIXED], endpoint(ADAPTIVE) as addresses[ADAPTIVE]:
        with stage("capacity at gamma 0") as progress:
            served = asyncio.run(capacity(addresses[FIXED], pool, config.probe, config.clients))
            progress(1, 1)
        load = reference_load(list(pool), served, config.seed, config.reference)
        replies: dict[str, list[Reply]] = {policy: [] for policy in addresses}
        seconds = 2 * config.reference.seconds  # of a quiet and a loud stretch
        with stage("the load in turns") as progress:
            for number, policy, part in turns(len(load.segments) // 2, list(addresses), progress):
                start = number * seconds
                pair = [
                    replace(request, arrival=request.arrival - start, deadline=request.deadline - start)
                    for request in load.requests
                    if start <= request.arrival < start + seconds
                ]
                answers = asyncio.run(replay(addresses[policy], pair, pool, config.seed + number, part))
                replies[policy] += [later(reply, start) for reply in answers]
    return Replayed(served, load, replies)


def rows(replayed: Replayed) -> list[tuple[str, ...]]:
    """Return the cells under HEADINGS: one line a policy and half."""
    lines: list[tuple[str, ...]] = []
    for half, loud in HALVES.items():
        for policy in (FIXED, ADAPTIVE):
            r = replayed.report(policy, loud)
            answered = max(sum(r.settings.values()), 1)
            gammas = " ".join(f"{gamma:+d}:{100 * count / answered:.0f}%" for gamma, count in r.settings.items())
            figures = (f"{r.utility:.0f}", f"{100 * r.attainment:.1f}%", f"{1000 * r.p50:.0f}", f"{1000 * r.p99:.0f}")
            lines.append((half, policy, *figures, f"{100 * r.accuracy:.1f}%", gammas))
    return lines
