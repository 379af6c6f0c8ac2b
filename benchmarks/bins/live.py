"""The same tweet-length requests over HTTP for Pliant and for what one would otherwise run on this CPU.

Every contender runs the model with one thread, and shares the machine's cores with the generator. All are up at once and
take turns, a few seconds each, so that whatever else the machine does falls on all alike; an idle one takes nothing. First
each setting is tried alone, and the best of each name is compared. A request without an answer counts TIMEOUT seconds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks import endpoint, places
from pliant.benchmarks.baselines import launch
from pliant.benchmarks.baselines.settings import BENTOML, DYNAMIC, SENTENCE, TEXT_RIVALS, TextRival
from pliant.benchmarks.bins import traces
from pliant.benchmarks.bins.minilm import MAX_LENGTH, Served, prepared
from pliant.benchmarks.bins.requests import (
    TASK,
    TIMEOUT,
    TextMaker,
    Texts,
    embeddings,
    latency,
    load_of,
    read_lengths,
    real_words,
    texts_for,
)
from pliant.benchmarks.contenders import Contender, Opener, Turn, best_settings, send
from pliant.benchmarks.harness import Context, Measured, Stage, need
from pliant.benchmarks.load_generator import capacity, in_turns, warm
from pliant.benchmarks.results import Target
from pliant.protocol import Request

OURS = "pliant"
LOW, LOADED = "low", "loaded"
LIMITS = {BENTOML: 0.75, SENTENCE: 0.75}  # of ours over theirs, loaded
LOW_LIMIT = 1.03
LENGTHS_SEED = 99  # no seed of the comparison: bins are chosen for other requests than those measured
LENGTHS_RATE, LENGTHS_SECONDS = 50.0, 600.0


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds. `loaded`: share of what DYNAMIC was measured to serve, which is its utilisation."""

    seconds: float = 10.0  # of one turn
    rounds: int = 3  # turns
    low: int = 640  # requests with one in flight, each to all contenders before the next
    loaded: float = 0.7
    sweep: float = 8.0  # at `loaded`, of every setting; 0: only the first setting of each name takes part
    probe: float = 5.0  # of saturation
    lead: float = 1.0  # of saturation before that, which does not count
    clients: int = 4  # that saturate
    warm: int = 60  # requests one after the other: BentoML learns from them
    each: int = 8  # different texts of one length
    seed: int = 0


QUICK = LiveConfig(seconds=6.0, rounds=2, low=160, sweep=0.0, probe=3.0)
FULL = LiveConfig(seconds=20.0, rounds=6, low=1280, sweep=15.0, probe=10.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One turn of one contender. `taken`: seconds of each request."""

    load: str  # LOW or LOADED
    name: str
    setting: str
    turn: Turn

    @property
    def taken(self) -> list[float]:
        return [latency(reply) for reply in self.turn.replies]

    def plain(self) -> dict[str, Any]:
        quantiles = {f"p{100 * q:g}": float(np.quantile(self.taken, q)) for q in (0.5, 0.98, 0.99)}
        replies = self.turn.replies
        answered = sum(reply.status == 200 for reply in replies)
        wrong = sum(reply.observation.correct is False for reply in replies)  # answers that are no embedding
        counts = {"requests": len(replies), "answered": answered, "wrong": wrong}
        where = {"load": self.load, "name": self.name, "setting": self.setting}
        return {**where, **counts, "mean": float(np.mean(self.taken)), **quantiles, **self.turn.figures()}


def ratio(rows: Sequence[Row], load: str, name: str) -> float:
    """Return our mean latency over that of `name`, of all turns; NaN where there is none."""

    def mean(of: str) -> float:
        taken = [seconds for row in rows if (row.load, row.name) == (load, of) for seconds in row.taken]
        return float(np.mean(taken)) if taken else math.nan

    return mean(OURS) / mean(name)


def targets(rows: Sequence[Row]) -> list[Target]:
    loaded = [
        Target(f"live, loaded: mean latency over that of {name}", ratio(rows, LOADED, name), "<=", limit, "x")
        for name, limit in LIMITS.items()
    ]
    name = "live, low load: mean latency over dynamic shapes one by one"
    return [*loaded, Target(name, ratio(rows, LOW, DYNAMIC), "<=", LOW_LIMIT, "x")]


def live(context: Context) -> Measured:
    """Prepare all-MiniLM-L6-v2 with bins for the trace's lengths, and compare all that are installed."""
    need(traces.missing() or places.missing(places.ALPACA))
    config = FULL if context.full else QUICK
    with context.stage("all-MiniLM-L6-v2: compile, measure and choose bins") as progress:
        chosen_for = traces.stable(LENGTHS_RATE, LENGTHS_SECONDS, LENGTHS_SEED).lengths
        served = prepared(read_lengths(chosen_for, 1, MAX_LENGTH))
        progress(1, 1)
    maker = TextMaker(served.encoder.tokenizer, real_words())
    texts = texts_for(traces.stretched()[0], maker, MAX_LENGTH, config.each, config.seed)
    missing = {tried.name: tried.rival.missing for tried in TEXT_RIVALS if tried.rival.missing is not None}
    need(missing.get(DYNAMIC, ""))
    borne, rows = compare(contenders(served), texts, maker.least, config, context.stage)
    for name, why in missing.items():
        Console().print(f"Not compared: {name}, {why}.")
    return targets(rows), {"capacity": borne, "missing": missing, "rows": [row.plain() for row in rows]}


def contenders(served: Served) -> list[Contender]:
    """Return Pliant's service and all others that are installed, with every setting that is tried."""

    def ours(_capacity: float) -> Any:
        return endpoint.serving("bins", project=served.project, refresh_seconds=0.0)

    def theirs(tried: TextRival) -> Opener:
        return lambda _capacity: launch.serving(tried.rival, tried.options, served.spec.text(), served.project.home)

    installed = [tried for tried in TEXT_RIVALS if tried.rival.missing is None]
    return [Contender(OURS, {}, ours), *(Contender(tried.name, tried.options, theirs(tried)) for tried in installed)]


def compare(
    contenders: Sequence[Contender], texts: Texts, least: int, config: LiveConfig, stage: Stage
) -> tuple[float, list[Row]]:
    """Measure what DYNAMIC serves, choose settings, then compare. `least`: tokens of the shortest text."""
    pool, ask, rows = {TASK: texts.mixed}, embeddings(), list[Row]()
    dynamic = next(contender for contender in contenders if contender.name == DYNAMIC)
    with stage("capacity of dynamic shapes one by one") as progress, dynamic.open(0.0) as address:
        warm(address, pool, config.warm, ask)
        served = asyncio.run(capacity(address, pool, config.probe, config.clients, ask, config.lead))
        progress(1, 1)

    def loaded(address: str, seconds: float, load_seed: int) -> Turn:
        load = load_of(traces.stable(config.loaded * served, seconds, load_seed), least, MAX_LENGTH)
        turn = send(address, load, {TASK: texts.by_length}, config.seed, ask)
        # Whatever an overloaded contender has left to do must not fall into the next one's turn.
        warm(address, pool, 1, ask)
        return turn

    def score(address: str) -> float:
        warm(address, pool, config.warm, ask)
        turn = loaded(address, config.sweep, config.seed + 1000)
        return -float(np.mean([latency(reply) for reply in turn.replies]))

    chosen = best_settings(contenders, served, stage, score if config.sweep else None)
    with ExitStack() as stack:
        up = [(contender, stack.enter_context(contender.open(served))) for contender in chosen]
        for _, address in up:
            warm(address, pool, config.warm, ask)
        with stage("low load: one request in flight") as progress:
            requests, addresses = [Request(i, 0.0, TIMEOUT, TASK) for i in range(config.low)], [url for _, url in up]
            replies = asyncio.run(in_turns(addresses, requests, pool, progress, ask))
            rows += [Row(LOW, of.name, of.title, Turn(own)) for (of, _), own in zip(up, replies, strict=True)]
        with stage("comparison") as progress:
            # Every round in another order, so that no contender always follows the same one.
            for number in range(config.rounds):
                for of, address in [*up[number % len(up) :], *up[: number % len(up)]]:
                    rows.append(Row(LOADED, of.name, of.title, loaded(address, config.seconds, config.seed + number)))
                progress(number + 1, config.rounds)
    return served, rows
