"""Pliant's scheduler in vLLM against vLLM's own, first come, first served, at its best setting, where memory binds.

Both get the same prompts, pages and arrivals. First vLLM's own scheduler is tried at several settings, with all requests at
once: the one with most tokens/s goes on, and the one with the smallest mean completion, too, if it is clearly smaller; for
each figure the better counts. Pliant's has one setting, which is not tried out. Then they take turns, load by load and every
other repeat in the opposite order: their servers are both up, and a server that has no request does nothing, so that what is
compared lies a few minutes apart. The load is a multiple of the capacity: what vLLM answers a second at its best setting
while many wait, with all requests at once and without the emptying at the end, which would understate it.
Besides: a decision's cost with many requests (decisions.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from pliant.benchmarks import places
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing import real_model
from pliant.benchmarks.packing.vllm import decisions, load, server
from pliant.benchmarks.packing.vllm.decisions import DecisionConfig
from pliant.benchmarks.packing.vllm.load import DOLLY, Body, Chat, Reply, Unloaded
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Engine, Files, Setting
from pliant.benchmarks.places import ALPACA
from pliant.benchmarks.results import Target
from pliant.flows import settings
from pliant.packing.artifact import Predictor
from pliant.progress import Progress
from pliant.registry import codec

NAME = "smollm2-135m-instruct"
OURS, MEMORY = "Pliant default", "memory binds"
PAGES = 65  # hold about 14 sequences
CONTEXT, LIMIT, LONGEST = 512, 160, 160  # tokens: of a sequence, of an output, of a prompt
WARM = 2  # requests that are not measured
CLEARLY = 0.97  # of a mean completion: a smaller one is taken for more than noise
WITHIN = 4.0  # times the unloaded time within which an answer is good
GOOD = f"good {WITHIN:g}x"
OUR_SETTING, BEST_OF_GRID = Setting(64, 512), Setting(16, 512)
GRID = (
    *(Setting(sequences, tokens) for sequences in (16, 64) for tokens in (256, 512, 1024)),
    *(Setting(64, tokens, chunked=False) for tokens in (512, 1024)),
)
LESS = {"mean": "mean completion", "first": "mean time to first token", "p99": "p99 completion"}
MORE = {"tokens": "tokens/s", GOOD: f"answers/s within {WITHIN:g}x of the unloaded time"}
"""Figures of which less, and of which more, is better."""


@dataclass(frozen=True, slots=True)
class Load:
    """`factor`: arrivals over what vLLM, first come, first served, answers while many wait; infinity: all at once."""

    factor: float
    requests: int
    kind: load.Arrivals = "Poisson"

    @property
    def name(self) -> str:
        return "all at once" if math.isinf(self.factor) else f"{self.factor:g}x, {self.kind}"

    def limits(self) -> dict[str, float]:
        """Return figure -> what ours over vLLM's is to be at most, or at least where more is better."""
        return ({"mean": 0.7, "first": 0.7, "p99": 1.1} if self.factor < 1.5 else {}) | {GOOD: 1.3}


@dataclass(frozen=True, slots=True)
class VllmConfig:
    """`settings`: of vLLM's own scheduler, tried with `trial` requests at once. `alone`: texts measured without others."""

    loads: tuple[Load, ...]
    settings: tuple[Setting, ...]
    repeats: int = 1
    trial: int = 120
    alone: int = 8
    decisions: DecisionConfig = field(default_factory=DecisionConfig)


QUICK = VllmConfig(
    (Load(1.2, 240), Load(1.5, 240)), (BEST_OF_GRID,)
)  # at 1.5 times the capacity as many wait after 200 requests as after 400 at 1.2 times
FULL_LOADS = (Load(1.2, 400), Load(1.5, 400), Load(1.2, 240, "bursty"))
FULL = VllmConfig(FULL_LOADS, GRID, repeats=5, alone=20, decisions=DecisionConfig(steps=3000))


@dataclass(frozen=True, slots=True)
class Row:
    """One load at one contender in one repeat. `differing`: texts that are not those of the first run of vLLM's own.

    `figures`: mean, p99, first (seconds from the planned arrival), tokens, good within WITHIN (a second, from the first
    arrival to the last end), and sustained: answers a second without the beginning and the emptying at the end.
    """

    load: str
    contender: Contender
    repeat: int
    figures: dict[str, float]
    differing: int

    def plain(self) -> dict[str, object]:
        where = {"memory": MEMORY, "load": self.load, "contender": self.contender.title, "repeat": self.repeat}
        return {**where, **self.figures, "differing": self.differing}


def contest(context: Context) -> Measured:
    """Compare schedulers with scarce memory."""
    need(places.missing(ALPACA, DOLLY) or server.missing(NAME))
    config, predictor = context.choose(QUICK, FULL, QUICK), real_model.predictor()
    with context.stage("schedulers in vLLM, in turns") as progress, TemporaryDirectory(prefix="pliant-vllm-") as folder:
        bench = _Contest(config, predictor, Path(folder), progress)
        everybody = [Load(math.inf, config.trial, "at once")]
        tried = [row for each in config.settings for row in bench.visit([Contender(FCFS, each)], everybody, 1.0, 0)]
        rate = max(row.figures["sustained"] for row in tried)
        contenders, rows = [*best(tried), Contender(OURS, OUR_SETTING, "default")], list[Row]()
        for repeat in range(config.repeats):
            rows += bench.visit(contenders[:: -1 if repeat % 2 else 1], config.loads, rate, repeat)
    cost = decisions.measure(config.decisions)
    p99 = Target("a decision at 256 running and 2,000 waiting, p99", 1e3 * cost.p99, "<=", 2.0, "ms")
    return [*targets(rows, config.loads), p99], {
        "predicted": predictor is not None,
        "unloaded": asdict(bench.unloaded) if bench.unloaded else None,
        "rows": [row.plain() for row in rows],
        "ratios": [
            {"memory": MEMORY, "load": name, "figure": figure, "median": middle, "worst": worst}
            for name, figure in itertools.product(dict.fromkeys(row.load for row in rows), {**LESS, **MORE})
            for middle, worst in [ratio(rows, name, figure)]
        ],
        "tried": [row.plain() for row in tried],
        "decision": asdict(cost),
    }


def best(tried: Sequence[Row]) -> list[Contender]:
    """Return the contender with the most tokens/s, and the one with the smallest mean completion if that is clearly less."""
    fastest = max(tried, key=lambda row: row.figures["tokens"])
    soonest = min(tried, key=lambda row: row.figures["mean"])
    clearly = soonest.figures["mean"] < CLEARLY * fastest.figures["mean"]
    return [fastest.contender, soonest.contender] if clearly else [fastest.contender]


def figures(replies: Sequence[Reply], unloaded: Unloaded) -> dict[str, float]:
    """Return the figures of replies that all ended, as a `Row` has them."""
    seconds = np.array([reply.seconds for reply in replies])
    lasted = max(reply.ended for reply in replies) - min(reply.arrival for reply in replies)
    limits = unloaded.seconds(replies)
    return {
        "mean": float(seconds.mean()),
        "p99": float(np.quantile(seconds, 0.99)),
        "first": float(np.mean([reply.first for reply in replies])),
        "tokens": sum(len(reply.tokens) for reply in replies) / lasted,
        "sustained": sustained([reply.ended for reply in replies]) or len(replies) / lasted,
        GOOD: float((seconds <= WITHIN * limits).sum()) / lasted,
    }


def sustained(ends: Sequence[float]) -> float:
    """Return the answers a second between the first tenth of the ends and the last; 0 where those coincide."""
    low, high = np.quantile(ends, (0.1, 0.9))
    between = sum(low < end <= high for end in ends)
    return float(between / (high - low)) if high > low else 0.0


def ratio(rows: Sequence[Row], name: str, figure: str) -> tuple[float, float]:
    """Return the median and the worst over the repeats of our figure over vLLM's at the setting that is best for it.

    NaN without runs; infinity where only vLLM's is 0.
    """
    best_of, worst = (max, min) if figure in MORE else (min, max)
    here, ratios = [row for row in rows if row.load == name], []
    for repeat in sorted({row.repeat for row in here}):
        values = [
            [row.figures[figure] for row in here if (row.repeat, row.contender.name) == (repeat, who)]
            for who in (OURS, FCFS)
        ]
        if all(values):
            ours, theirs = (best_of(each) for each in values)
            ratios.append(ours / theirs if theirs else math.inf if ours else math.nan)
    return (median(ratios), worst(ratios)) if ratios else (math.nan, math.nan)


def targets(rows: Sequence[Row], loads: Sequence[Load]) -> list[Target]:
    """Return the targets of a comparison with vLLM, first come, first served, at its best settings."""
    names = {**LESS, **MORE}
    result = [
        Target(
            f"{MEMORY}, {each.name}: {names[figure]} over vLLM's", ratio(rows, each.name, figure)[0],
            ">=" if figure in MORE else "<=", limit, "x",
        )
        for each in {each.name: each for each in loads}.values()
        for figure, limit in each.limits().items()
    ]  # fmt: skip
    ours, theirs = ([row.differing for row in rows if row.contender.name == name] for name in (OURS, FCFS))
    beyond = float(max(max(ours) - max(theirs), 0)) if ours and theirs else math.nan
    return [*result, Target("greedy texts that differ, beyond those of vLLM's own runs", beyond, "<=", 0)]


class _Contest:
    """What all servers of a contest have in common, and what is known so far. `unloaded`: measured at the first visit."""

    def __init__(self, config: VllmConfig, predictor: Predictor | None, folder: Path, progress: Progress) -> None:
        self.config, self.progress, self.sent = config, progress, 0
        model = server.weights(NAME)
        most = max(config.trial, *(each.requests for each in config.loads))
        self.chats: Sequence[Chat] = load.read_prompts(model, most, LONGEST)
        log = settings.read().home / "logs" / "bench-vllm.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        if predictor is not None:
            codec.save(predictor, folder / "predictor")
        self.engine = Engine(model, PAGES, CONTEXT)
        self.files = Files(log, folder, None if predictor is None else folder / "predictor")
        self.reference: list[tuple[int, ...]] = []  # texts of the first run
        self.unloaded: Unloaded | None = None
        self.planned = len(config.settings) * config.trial
        self.planned += 3 * config.repeats * sum(each.requests for each in config.loads)  # at most

    def visit(self, contenders: Sequence[Contender], loads: Sequence[Load], rate: float, repeat: int) -> list[Row]:
        """Return the rows of servers that take turns at each load. `rate`: the capacity."""
        rows = []
        with ExitStack() as stack:
            served = [(each, stack.enter_context(server.serving(self.engine, each, self.files))) for each in contenders]
            for _, url in served:
                self._send(url, Load(1.0, WARM), 1.0, -1)
            if self.unloaded is None:
                url, body, chats = served[0][1], Body(LIMIT, "alone"), self.chats[: self.config.alone]
                self.unloaded = load.fit([reply for chat in chats for reply in load.send(url, [chat], [0.0], body)])
            for each, (contender, url) in itertools.product(loads, served):
                replies = self._send(url, each, rate, repeat)
                self.reference += [reply.tokens for reply in replies[len(self.reference) :]]
                differing = sum(text != reply.tokens for reply, text in zip(replies, self.reference, strict=False))
                rows.append(Row(each.name, contender, repeat, figures(replies, self.unloaded), differing))
                self.sent += each.requests
                self.progress(self.sent, self.planned)
        return rows

    def _send(self, url: str, each: Load, rate: float, repeat: int) -> list[Reply]:
        arriving = 1.0 if math.isinf(each.factor) else rate * each.factor
        arrivals = load.times(each.kind, arriving, each.requests, max(repeat, 0)).tolist()
        return load.send(url, self.chats[: each.requests], arrivals, Body(LIMIT, f"{each.name} {repeat}"))
