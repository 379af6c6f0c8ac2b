"""The packing system's part of `pliant demo`: the same chats live under our policy and under what one would have without.

That is pages on demand, first come, first served: what engines of text generation do that predict nothing. Both are the
same endpoint with the same champion, told another policy, up at once and asked in turns. More chats come than the machine
bears, since a policy decides who waits: with less to do than that nobody waits, and no policy differs. Each chat has a
deadline, and what is compared is how many are answered by theirs, of all that came: what is late the service drops.
What the machine bears is measured before each pair of turns: what the service without predictions answers to always so
many clients that each have one chat open. How many chats come, and how soon each is due, follows from that alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks.demo.run import Comparison, keep
from pliant.benchmarks.demo.turns import Compared, compare
from pliant.benchmarks.endpoint import serving_each
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import Form, Parsed, capacity, warm
from pliant.benchmarks.planned import against_live
from pliant.errors import RegistryError
from pliant.flows import champions
from pliant.flows.settings import Settings, read
from pliant.packing.artifact import Packing
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.training.packing import corpus
from pliant.workload import poisson

OVERRIDES: Mapping[str, Any] = {
    "embedded": {"width": 64, "layers": 24, "first": 2, "joined": 0.05, "epochs": 0.22, "batch_tokens": 512},
    "lengths": {"requests": 900},
}
"""Laid over the flow's embedded configuration: sizes that a slow processor trains in half a minute.

24 layers make a chat's generation much heavier than its way over HTTP. All but two join in the last twentieth of the steps,
so that many cost little more in training than few. Many small steps: after as many tokens in steps of 2,048 the lengths did
not yet follow from the questions, and there was nothing to predict. The memory is the flow's own.
"""
OURS, RIVAL = "Pliant", "first come, first served"
POLICIES: Mapping[str, str] = {OURS: "default", RIVAL: "paged"}
MOST_QUESTIONS = 2000
WARM_DEADLINE = 60.0  # seconds, of chats that are not measured
REASON = (
    "Pliant wins by starting the chats that can still be in time, by how long their texts will be and how long the engine "
    "takes: where either is forecast wrongly, it starts the wrong ones."
)


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """`overload`: arrivals over what the rival answers to `clients`. `places`: a deadline is the time of so many answers.

    A turn has some `chats`, many times the `places`, however long they take on this machine: as it begins with nothing to
    do, the first `places` of them are in time anyhow.
    """

    turns: int = 2
    chats: int = 400  # of a turn, about
    overload: float = 1.5
    places: int = 40
    clients: int = 32
    probe: float = 3.0  # seconds
    probed: int = 256  # questions of the probe
    temperature: float = 0.7
    warm: int = 4


LOAD = LoadConfig()


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    seed: int


def questions() -> list[Question]:
    """Return the questions of the held-out turns, in random order."""
    texts = sorted({turn.ask for turn in corpus.select(corpus.load(), "test")})
    order = np.random.default_rng(0).permutation(len(texts))[:MOST_QUESTIONS]
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


def demo(project: Settings, console: Console) -> Comparison:
    """Print the comparison and point at the picture. Raises `RegistryError` without a champion."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    served = list(champions.champion_artifacts(project, Packing).values())
    if not served:
        raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")
    with stage("packing: chats in turns") as progress:
        compared = contest(served[0].name, questions(), LOAD, progress)
    memory, ours, rival = served[0].memory, compared.report(OURS).attainment, compared.report(RIVAL).attainment
    ahead = ours / max(rival, 1e-9)
    console.print(
        f"The texts are held in {memory.pages} pages of {memory.page_tokens} tokens. First come, first served answers "
        f"{compared.bears:.0f} chats/s on this machine. {LOAD.overload * compared.bears:.0f} chats/s come, "
        f"{LOAD.overload:g} times as many, each to be answered within {1e3 * LOAD.places / compared.bears:.0f} ms."
    )
    console.print(compared.table(("requests", "in time", "mean ms", "p50 ms", "p98 ms"), OURS))
    console.print(
        f"Both live, in turns, the same chats. Of all that came Pliant answers [bold]{ours:.0%}[/bold] in time, first come, "
        f"first served {rival:.0%}: [bold]{ahead:.2f}x[/bold] the answers, and more of them in {won(compared)} of "
        f"{LOAD.turns} turns. More come than can be answered: Pliant starts those that can probably still be in time, and "
        "the others end at their deadlines without an answer."
    )
    metrics = {f"in_time.{policy}": compared.report(name).attainment for name, policy in POLICIES.items()}
    seen = {name: compared.seen(name) for name in POLICIES}
    picture = keep(project, "packing", seen, metrics, {"config": asdict(LOAD), **compared.plain()})
    console.print(f"\nThe picture of this run: {picture}")
    return Comparison("chats answered in time, over first come, first served", ahead, REASON)


def planned(context: Context) -> Measured:
    """Plan for what came to a live service of the champion, and compare."""
    name = next(iter(champions.champion_artifacts(read(), Packing)))
    return against_live(context, "packing", form(name, LOAD.temperature), {name: questions()}, [2.0], "default")


def won(compared: Compared) -> int:
    """Return in how many turns Pliant answered more chats in time than the rival."""
    turns = range(len(compared.borne))
    return sum(compared.report(OURS, turn).attainment > compared.report(RIVAL, turn).attainment for turn in turns)


def contest(name: str, pool: Sequence[Question], config: LoadConfig, progress: Progress = silent) -> Compared:
    """Serve all turns by the champion `name` under both policies. Raises `PliantError` where a service fails."""
    chat, by_name = form(name, config.temperature), {name: pool}
    options = {of: {"policy": policy, "refresh_seconds": 0.0} for of, policy in POLICIES.items()}
    with serving_each("packing", options) as addresses:
        progress(1, 10)
        for url in addresses.values():
            warm(url, by_name, config.warm, chat, WARM_DEADLINE)

        def probe() -> float:
            answered = capacity(addresses[RIVAL], by_name, config.probe, config.clients, chat, most=config.probed)
            return asyncio.run(answered)

        def load(number: int, borne: float) -> list[Request]:
            """Return the chats of one turn: at Poisson times, each with a question that no other turn has."""
            rate = config.overload * borne
            times = poisson(rate, config.chats / rate, np.random.default_rng([0, number])).tolist()
            first, within = number * 2 * config.chats, config.places / borne
            return [Request(first + at, came, came + within, name) for at, came in enumerate(times)]

        forms = dict.fromkeys(addresses, chat)
        return compare(addresses, forms, by_name, config.turns, probe, load, share(progress, 20, 100))
