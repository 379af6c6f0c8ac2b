"""One load of chat requests over HTTP, under one policy of the service after the other.

Every policy gets the same questions at the same times with the same seeds, so that each makes the same texts (where the
model's scores do not hang on a last bit). Questions are the held-out ones of the embedded corpus. Latency counts from the
planned arrival to the whole answer; nothing is streamed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.endpoint import serving
from benchmarks.load_generator import Form, Reply, Told, one_by_one, replay
from benchmarks.packing.soak import status_of
from flows import settings
from flows.packing import live
from pliant.errors import RegistryError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.reference import capacity
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.workload import poisson
from training.packing import corpus

POLICIES = ("default", "paged", "s3", "orca")
HEADINGS = (
    "policy",
    "asked",
    "answered",
    "answers/s",
    "tokens/s",
    "mean ms",
    "p50 ms",
    "p99 ms",
    "preemptions",
    "recomputed",
)
MOST_QUESTIONS = 2000
TIMEOUT = 30.0  # seconds that the load generator waits; who has no answer by then counts with these


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    seed: int


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """`share`: of what the profile says that the device bears."""

    seconds: float = 4.0
    share: float = 1.2
    temperature: float = 0.7
    warm: int = 4
    seed: int = 0


QUICK = LoadConfig()
FULL = LoadConfig(seconds=30.0)


@dataclass(frozen=True, slots=True)
class Fared:
    """One policy's replies, and what its engine counted: `recomputed` in tokens. Times in seconds."""

    policy: str
    replies: Sequence[Reply]
    preemptions: int
    recomputed: int

    @property
    def took(self) -> np.typing.NDArray[np.float64]:
        """[n] from arrival to answer; TIMEOUT for who had none."""
        ends = [one.observation.answered for one in self.replies]
        arrivals = [one.observation.request.arrival for one in self.replies]
        return np.array([TIMEOUT if end is None else end - at for end, at in zip(ends, arrivals, strict=True)])

    @property
    def answered(self) -> int:
        return sum(one.observation.answered is not None for one in self.replies)

    @property
    def tokens(self) -> int:
        """Of the outputs: what the load generator calls the setting (see `form`)."""
        return sum(one.observation.setting or 0 for one in self.replies if one.observation.answered is not None)

    @property
    def seconds(self) -> float:
        """To the last answer."""
        return max((one.observation.answered or 0.0 for one in self.replies), default=0.0)

    def row(self) -> tuple[str, ...]:
        made = f"{self.answered / self.seconds:.1f}", f"{self.tokens / self.seconds:,.0f}"
        figures = (self.took.mean(), *np.quantile(self.took, (0.5, 0.99)))
        counts = str(len(self.replies)), str(self.answered), *made
        return self.policy, *counts, *(f"{1e3 * x:,.0f}" for x in figures), str(self.preemptions), str(self.recomputed)

    def plain(self) -> dict[str, Any]:
        return dict(zip(HEADINGS, self.row(), strict=True))


@dataclass(frozen=True, slots=True)
class Loaded:
    """`rate`: requests/s offered; `borne`: what the profile says that the device bears."""

    name: str
    borne: float
    rate: float
    fared: Mapping[str, Fared]

    def rows(self) -> list[tuple[str, ...]]:
        return [one.row() for one in self.fared.values()]

    def plain(self) -> dict[str, Any]:
        return {"borne": self.borne, "rate": self.rate, "policies": [one.plain() for one in self.fared.values()]}


def live_packing() -> Packing:
    """The champion on the embedded corpus. Raises `RegistryError` without one."""
    found = live.champion(settings.read())
    if not found:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    return next(iter(found.values()))


def questions(seed: int = 0) -> list[Question]:
    """Of the held-out turns, in random order, each with a seed of its own."""
    asked = sorted({turn.ask for turn in corpus.select(corpus.load(), "test")})
    order = np.random.default_rng(seed).permutation(len(asked))[:MOST_QUESTIONS]
    return [Question(asked[i], number) for number, i in enumerate(order)]


def form(model: str, temperature: float, deadlines: bool = False) -> Form:
    """Question `i` of the pool for request `i`. What a reply's setting holds are the output's tokens.

    `deadlines`: the service is told each request's.
    """

    def body(request: Request, question: Question) -> bytes:
        messages = [{"role": "user", "content": question.text}]
        fields = {"model": model, "messages": messages, "temperature": temperature, "seed": question.seed}
        if deadlines:
            fields["deadline"] = request.deadline - request.arrival
        return json.dumps(fields).encode()

    def read(answer: Any, _question: Question) -> Told:
        return Told(True, int(answer["usage"]["completion_tokens"]), None, float("nan"))

    def choose(request: Request, pool: Sequence[Question], _rng: np.random.Generator) -> Question:
        return pool[request.id % len(pool)]

    return Form(body, read, "/v1/chat/completions", choose)


def arrivals(packing: Packing, config: LoadConfig) -> list[Request]:
    """At Poisson times."""
    times = poisson(config.share * capacity(packing), config.seconds, np.random.default_rng(config.seed))
    return [Request(number, float(at), float(at) + TIMEOUT, packing.name) for number, at in enumerate(times)]


def measure(policies: Sequence[str], config: LoadConfig, progress: Progress = silent) -> Loaded:
    """One service a policy, in turns."""
    packing, pool = live_packing(), questions(config.seed)
    asked, found = arrivals(packing, config), {}
    for place, policy in enumerate(policies):
        told = share(progress, 100 * place // len(policies), 100 * (place + 1) // len(policies))
        found[policy] = ask(packing, asked, pool, policy, config, told)
    borne = capacity(packing)
    return Loaded(packing.name, borne, config.share * borne, found)


def ask(
    packing: Packing,
    asked: Sequence[Request],
    pool: Sequence[Question],
    policy: str,
    config: LoadConfig,
    progress: Progress = silent,
    journal: Path | None = None,
) -> Fared:
    """The requests to a service of its own, which has answered a few others before and writes its journal to a file."""
    how, by_name = form(packing.name, config.temperature), {packing.name: pool}
    warm = [Request(number, 0.0, TIMEOUT, packing.name) for number in range(config.warm)]
    with serving("packing", policy=policy, refresh_seconds=0.0, journal=journal) as service:
        asyncio.run(one_by_one(service.url, warm, by_name, form=how))
        replies = asyncio.run(replay(service.url, asked, by_name, config.seed, progress, how))
        engine = next(one["engine"] for one in status_of(service.url)["models"] if one["name"] == packing.name)
    return Fared(policy, replies, engine["preemptions"], engine["recomputed"])


def details(found: Mapping[str, Loaded], config: LoadConfig) -> dict[str, Any]:
    """For JSON."""
    return {"config": asdict(config), "loads": {name: one.plain() for name, one in found.items()}}
