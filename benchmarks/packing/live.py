"""Chats beyond what the machine bears, live under two policies: the same requests to each, in turns of a stretch.

Services of the same champion are up at once, one a policy, and one of them is asked at a time: first the one, then the
other, then the other way round, so that whatever else the machine does meets both alike. A stretch begins and ends with
nothing to do. What the machine bears is measured before each pair of turns and by the same way, over HTTP: what the service
without predictions answers to always so many clients that each have one chat open. How many chats come, and how soon each is
due, follows from that alone. What is late by its deadline the service drops, under either policy, and the client counts it
as not answered. Answers in time count as a share of all chats that came, refused ones included.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families

from pliant.benchmarks.endpoint import processes, processor_seconds, serving_each
from pliant.benchmarks.load_generator import Form, Parsed, Reply, capacity, replay, turns, warm
from pliant.errors import RegistryError
from pliant.flows import champions, settings
from pliant.packing.artifact import Packing
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.report import Observation
from pliant.training.packing import corpus
from pliant.workload import poisson

MOST_QUESTIONS = 2000


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    seed: int


def live_packing() -> Packing:
    """Return the champion on the embedded corpus. Raises `RegistryError` without one."""
    served: list[Packing] = list(champions.champion_artifacts(settings.read(), Packing).values())
    if not served:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    return served[0]


def questions(seed: int = 0) -> list[Question]:
    """Return the questions of the held-out turns, in random order."""
    texts = sorted({turn.ask for turn in corpus.select(corpus.load(), "test")})
    order = np.random.default_rng(seed).permutation(len(texts))[:MOST_QUESTIONS]
    return [Question(texts[i], number) for number, i in enumerate(order)]


def form(model: str, temperature: float) -> Form:
    """Return the form of question `i` of the pool for request `i`, with the request's deadline.

    A reply's setting holds the output's tokens.
    """

    def body(request: Request, question: Question) -> bytes:
        messages = [{"role": "user", "content": question.text}]
        fields = {"model": model, "messages": messages, "temperature": temperature, "seed": question.seed}
        return json.dumps({**fields, "deadline": request.deadline - request.arrival}).encode()

    def read(answer: Any, _question: Question) -> Parsed:
        return Parsed(True, int(answer["usage"]["completion_tokens"]), None, float("nan"))

    def choose(request: Request, pool: Sequence[Question], _rng: np.random.Generator) -> Question:
        return pool[request.id % len(pool)]

    return Form(body, read, "/v1/chat/completions", choose)


OURS, RIVAL = "default", "paged"
HEADINGS = (
    "policy", "chats", "accepted", "of these in time", "of all in time", "in time/s", "tokens/s in time", "p50 ms", "p90 ms",
    "preemptions",
)  # fmt: skip
ENGINE = "pliant.serving.packing.engine.engine_process"
"""What the command of an engine's process names."""
WARM_DEADLINE = 60.0  # seconds, of chats that are not measured
TIMEOUT = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class ContestConfig:
    """`overload`: arrivals over what the rival answers to `clients`. `places`: a deadline is the time of so many answers.

    A stretch has some `chats`, many times the `places`, however long they take on this machine: as it begins with nothing to
    do, the first `places` of them are in time anyhow.
    """

    policies: tuple[str, ...] = (OURS, RIVAL)
    stretches: int = 2
    chats: int = 400  # of a stretch, about
    overload: float = 1.5
    places: int = 40
    clients: int = 32
    probe: float = 3.0  # seconds
    probed: int = 256  # questions of the probe
    temperature: float = 0.7
    warm: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fared:
    """How the chats of all stretches fared under one policy. Times in seconds.

    `refused`: chats that the service refused at once; the others it accepted. Who was answered by the deadline has been kept
    to; a later answer, or none, has not.
    """

    policy: str
    stretches: tuple[tuple[Reply, ...], ...]
    seconds: float  # from the first arrival to the last answer, over the stretches
    preemptions: int
    refused: int

    @property
    def replies(self) -> tuple[Reply, ...]:
        """Return the replies of all stretches."""
        return tuple(reply for stretch in self.stretches for reply in stretch)

    @property
    def accepted(self) -> float:
        """Return the share of all chats that were not refused."""
        return 1.0 - self.refused / max(len(self.replies), 1)

    @property
    def answered(self) -> list[Observation]:
        """Return the chats that were answered in time."""
        return _in_time(self.replies)

    @property
    def took(self) -> NDArray[np.float64]:
        """Return the seconds [n] ascending from arrival to answer, of those that were answered in time."""
        return np.sort([(chat.answered or 0.0) - chat.request.arrival for chat in self.answered])

    @property
    def in_time(self) -> float:
        """Return the share of all chats."""
        return len(self.answered) / max(len(self.replies), 1)

    def row(self) -> tuple[str, ...]:
        """Return the cells under HEADINGS; a reply's setting holds its tokens."""
        answered = self.answered
        quantiles = np.quantile(self.took, (0.5, 0.9)) if answered else (np.nan, np.nan)
        milliseconds = (f"{1e3 * seconds:,.0f}" for seconds in quantiles)
        accepted = len(self.replies) - self.refused
        kept = len(answered) / accepted if accepted else float("nan")
        shares = (f"{share:.1%}" for share in (self.accepted, kept, self.in_time))
        tokens = sum(chat.setting or 0 for chat in answered) / self.seconds
        speed = f"{len(answered) / self.seconds:.1f}", f"{tokens:,.0f}"
        return self.policy, str(len(self.replies)), *shares, *speed, *milliseconds, str(self.preemptions)


@dataclass(frozen=True, slots=True)
class Contest:
    """`borne`: chats a second that the rival answers; `rate`: chats a second that came; `deadline`: seconds of each.

    All three are means over the turns. `generation`: share of the engine's process in the processor time of service and
    clients while the rival was full. The rest is HTTP, forecasts and clients.
    """

    borne: float
    rate: float
    deadline: float
    generation: float
    fared: Mapping[str, Fared]

    @property
    def ahead(self) -> float:
        """Return our answers in time over the rival's."""
        ours, rival = (self.fared[policy].in_time for policy in (OURS, RIVAL))
        return ours / max(rival, 1e-9)

    @property
    def won(self) -> int:
        """Return in how many stretches we answered more chats in time than the rival."""
        pairs = zip(self.fared[OURS].stretches, self.fared[RIVAL].stretches, strict=True)
        return sum(len(_in_time(ours)) > len(_in_time(rival)) for ours, rival in pairs)

    def plain(self) -> dict[str, Any]:
        rows = [dict(zip(HEADINGS, fared.row(), strict=True)) for fared in self.fared.values()]
        figures = {"borne": self.borne, "rate": self.rate, "deadline": self.deadline, "generation": self.generation}
        return {**figures, "policies": rows}


def contest(name: str, pool: Sequence[Question], config: ContestConfig, progress: Progress = silent) -> Contest:
    """Serve all stretches by the champion `name` under every policy. Raises `PliantError` where a service fails."""
    chat, by_name = form(name, config.temperature), {name: pool}
    options = {policy: {"policy": policy, "refresh_seconds": 0.0} for policy in config.policies}
    with serving_each("packing", options) as addresses:
        progress(1, 10)
        for url in addresses.values():
            warm(url, by_name, config.warm, chat, WARM_DEADLINE)
        ended: dict[str, Counter[str]] = {policy: Counter() for policy in addresses}
        stretches: dict[str, list[tuple[Reply, ...]]] = {policy: [] for policy in addresses}
        seconds = dict.fromkeys(addresses, 0.0)
        borne: list[tuple[float, float]] = []
        for number, policy, part in turns(config.stretches, list(addresses), share(progress, 20, 98)):
            if number == len(borne):
                borne.append(_bears(addresses[RIVAL], by_name, config, chat))
            requests = stretch(name, borne[number][0], number, config)
            ended[policy].subtract(counts(addresses[policy], name))
            answers = asyncio.run(replay(addresses[policy], requests, by_name, config.seed, part, chat))
            seconds[policy] += max(*(reply.observation.answered or 0.0 for reply in answers), requests[-1].arrival)
            ended[policy].update(counts(addresses[policy], name))
            stretches[policy].append(tuple(answers))
    fared = {
        policy: Fared(
            policy, tuple(some), seconds[policy], ended[policy]["preempted"], ended[policy]["dropped_refused"]
        )
        for policy, some in stretches.items()
    }
    progress(10, 10)
    mean, generation = np.mean(borne, axis=0)
    deadline = np.mean([config.places / rate for rate, _ in borne])
    return Contest(float(mean), float(config.overload * mean), float(deadline), float(generation), fared)


def _bears(url: str, pool: Mapping[str, Sequence[Question]], config: ContestConfig, chat: Form) -> tuple[float, float]:
    """Return the chats a second that a service answers, and the engine's share of the processor time meanwhile."""
    service = processes(url)
    engine = [process for process in service if any(ENGINE in word for word in process.cmdline())]
    everybody = [*service, psutil.Process()]
    before = processor_seconds(engine), processor_seconds(everybody)
    borne = asyncio.run(capacity(url, pool, config.probe, config.clients, chat, most=config.probed))
    generated, used = processor_seconds(engine) - before[0], processor_seconds(everybody) - before[1]
    return borne, generated / max(used, 1e-9)


def stretch(name: str, borne: float, number: int, config: ContestConfig) -> list[Request]:
    """Return the chats of one stretch, the same for every policy: at Poisson times, each with a question of its own."""
    rng = np.random.default_rng([config.seed, number])
    rate = config.overload * borne
    times = poisson(rate, config.chats / rate, rng)
    first = number * 2 * config.chats  # so that no question comes in two stretches
    within = config.places / borne
    return [Request(first + at, float(came), float(came) + within, name) for at, came in enumerate(times)]


def _in_time(replies: Sequence[Reply]) -> list[Observation]:
    chats = [reply.observation for reply in replies]
    return [chat for chat in chats if chat.answered is not None and chat.answered <= chat.request.deadline]


def counts(url: str, name: str) -> Counter[str]:
    """Return how the service's outputs have ended since its start, by outcome, and how often one was preempted."""
    with urllib.request.urlopen(f"{url}/v1/status", timeout=TIMEOUT) as response:
        models = json.load(response)["models"]
    engine = next(model["engine"] for model in models if model["name"] == name)
    with urllib.request.urlopen(f"{url}/metrics", timeout=TIMEOUT) as response:
        exposition = response.read().decode()
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    mine = [s for s in samples if s.name == "pliant_outcomes_total" and s.labels["task"] == name]
    ended = Counter({sample.labels["outcome"]: int(sample.value) for sample in mine})
    return ended + Counter(preempted=int(engine["preemptions"]))
