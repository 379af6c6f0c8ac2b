"""Pliant's scheduler in vLLM against vLLM's own, first come, first served, at its best setting.

Both get the same prompts, pages and arrivals. First vLLM's own scheduler is tried at several settings, with all requests at
once: the one with most tokens/s goes on, and the one with the smallest mean completion, too, if it is clearly smaller; for
each figure the better counts. Pliant's has one setting, which is not tried out. Then they take turns, load by load and every
other repeat in the opposite order: their servers are both up, and a server that has no request does nothing, so that what is
compared lies a few minutes apart. The load is a multiple of the capacity: what vLLM answers a second at its best setting
while many wait, with all requests at once and without the emptying at the end, which would understate it. A contest has one
memory: so small that it binds, or so large that it does not. Besides: a decision's cost with many requests (decisions.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pliant.benchmarks import places
from pliant.benchmarks.packing.vllm import comparison, decisions, load, server
from pliant.benchmarks.packing.vllm.comparison import HALF, OURS, OVERLOADS, Load, Memory, Row, Unloaded, at_once
from pliant.benchmarks.packing.vllm.decisions import DecisionConfig, DecisionCost
from pliant.benchmarks.packing.vllm.load import DOLLY, Body, Chat, Reply
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Engine, Files, Setting
from pliant.benchmarks.places import ALPACA
from pliant.benchmarks.results import Target
from pliant.flows import settings
from pliant.packing.artifact import Predictor
from pliant.progress import Progress, silent
from pliant.registry import codec

NAME = "smollm2-135m-instruct"
WARM = 2  # requests that are not measured
CLEARLY = 0.97  # of a mean completion: a smaller one is taken for more than noise
OUR_SETTING = Setting(64, 512)
TIGHT = Setting(16, 512)  # vLLM's best of the grid where memory holds 14 sequences (docs/log/packing.md)


@dataclass(frozen=True, slots=True)
class VllmConfig:
    """`settings`: of vLLM's own scheduler, tried with `trial` requests at once. `alone`: texts measured without others."""

    memory: Memory
    trial: int = 120
    repeats: int = 1
    settings: tuple[Setting, ...] = (OUR_SETTING,)
    ours: Setting = OUR_SETTING
    alone: int = 8
    context: int = 512
    limit: int = 160  # tokens of an output
    longest: int = 160  # tokens of a prompt
    decisions: DecisionConfig = field(default_factory=DecisionConfig)

    @property
    def requests(self) -> int:
        """The prompts of the longest load, of which the others have the first."""
        return max(self.trial, *(load.requests for load in self.memory.loads))


def loads(whole: int, once: int, half: int, more: int = 0) -> tuple[Load, ...]:
    """Return loads of so many requests: all at once, half of the capacity, and overloads. `more`: of bursty and heavy ones.

    At 1.5 times the capacity as many wait after 200 requests as after 400 at 1.2 times.
    """
    light, heavy = OVERLOADS
    rest = (Load(light, more, "bursty"), Load(heavy, more)) if more else ()
    return at_once(once), Load(HALF, half), Load(light, whole), *rest


def binding(*loads: Load) -> Memory:
    """64 pages hold about 14 sequences."""
    return Memory("memory binds", 65, loads, binds=True)


def ample(*loads: Load) -> Memory:
    """640 pages hold 64 sequences of the longest prompts and outputs."""
    return Memory("memory is ample", 641, loads, binds=False)


GRID = (
    *(Setting(sequences, tokens) for sequences in (16, 64) for tokens in (256, 512, 1024)),
    *(Setting(64, tokens, chunked=False) for tokens in (512, 1024)),
)
QUICK = VllmConfig(binding(*loads(240, 120, 40)), settings=(TIGHT,))
AMPLE = VllmConfig(ample(*loads(240, 120, 40)))
FULL = VllmConfig(
    binding(*loads(400, 120, 60, 240)), repeats=5, settings=GRID, alone=20, decisions=DecisionConfig(steps=3000)
)
AMPLE_FULL = replace(FULL, memory=ample(*loads(400, 120, 60, 240)))


@dataclass(frozen=True, slots=True)
class VllmContest:
    """`rate`: what vLLM, first come, first served, answers a second while many wait. `tried`: before."""

    memory: Memory
    rows: tuple[Row, ...]
    tried: tuple[Row, ...]
    rate: float
    unloaded: Unloaded
    decision: DecisionCost
    predicted: bool

    def targets(self) -> list[Target]:
        return [
            *comparison.targets(self.rows, self.memory),
            Target("a decision at 256 running and 2,000 waiting, p99", 1e3 * self.decision.p99, "<=", 2.0, "ms"),
        ]

    def table(self) -> list[tuple[str, ...]]:
        return comparison.table(self.rows)

    def plain(self) -> dict[str, Any]:
        return {
            "capacity": self.rate,
            "predicted": self.predicted,
            "unloaded": asdict(self.unloaded),
            "rows": [comparison.plain(row) for row in self.rows],
            "ratios": comparison.ratios(self.rows),
            "tried": [comparison.plain(row) for row in self.tried],
            "decision": asdict(self.decision),
        }


def missing() -> str:
    """Return what is missing to measure this; empty if nothing is."""
    return places.missing(ALPACA, DOLLY) or server.missing(NAME)


def measure(config: VllmConfig, predictor: Predictor | None, progress: Progress = silent) -> VllmContest:
    """Serve all loads under all schedulers. `predictor`: of the output's length; None where there is none."""
    with TemporaryDirectory(prefix="pliant-vllm-") as folder:
        model = server.weights(NAME)
        chats = load.read_prompts(model, config.requests, config.longest)
        return _Contest(config, model, chats, predictor, Path(folder), progress).measure()


def best(tried: Sequence[Row]) -> list[Contender]:
    """Return the contender with the most tokens/s, and the one with the smallest mean completion if that is clearly less."""
    fastest = max(tried, key=lambda row: row.figures.tokens)
    soonest = min(tried, key=lambda row: row.figures.mean)
    clearly = soonest.figures.mean < CLEARLY * fastest.figures.mean
    return [fastest.contender, soonest.contender] if clearly else [fastest.contender]


class _Contest:
    """What all servers of a contest have in common, and what is known so far."""

    def __init__(
        self,
        config: VllmConfig,
        model: Path,
        chats: Sequence[Chat],
        predictor: Predictor | None,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.config, self.model, self.chats, self.folder = config, model, chats, folder
        self.progress, self.sent = progress, 0
        self.log = settings.read().home / "logs" / "bench-vllm.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.predictor = folder / "predictor" if predictor is not None else None
        if predictor is not None and self.predictor is not None:
            codec.save(predictor, self.predictor)
        self.reference: list[tuple[int, ...]] = []  # texts of the first run
        self.unloaded = Unloaded(0.0, 0.0, 0.0)

    def measure(self) -> VllmContest:
        config = self.config
        tried, rate = self._tune()
        rows = list(self._turns(tried, rate))
        cost = decisions.measure(config.decisions)
        return VllmContest(
            config.memory, tuple(rows), tuple(tried), rate, self.unloaded, cost, self.predictor is not None
        )

    def _tune(self) -> tuple[list[Row], float]:
        """Return the rows of vLLM's own scheduler at all settings, and the most that it answers a second."""
        trial = [at_once(self.config.trial)]
        settings = self.config.settings
        rows = [row for setting in settings for row in self._visit([Contender(FCFS, setting)], trial, 1.0, 0)]
        return rows, max(row.figures.sustained for row in rows)

    def _turns(self, tried: Sequence[Row], rate: float) -> Iterator[Row]:
        contenders = [*best(tried), Contender(OURS, self.config.ours, "default")]
        for repeat in range(self.config.repeats):
            yield from self._visit(contenders[:: -1 if repeat % 2 else 1], self.config.memory.loads, rate, repeat)

    def _visit(self, contenders: Sequence[Contender], loads: Sequence[Load], rate: float, repeat: int) -> list[Row]:
        """Return the rows of servers that take turns at each load. `rate`: the capacity."""
        memory, rows = self.config.memory, list[Row]()
        engine, files = (
            Engine(self.model, memory.pages, self.config.context),
            Files(self.log, self.folder, self.predictor),
        )
        with ExitStack() as stack:
            served = [(each, stack.enter_context(server.serving(engine, each, files))) for each in contenders]
            for _, url in served:
                self._send(url, Load(1.0, WARM), 1.0, -1)
            if not self.reference:
                alone = load.alone(served[0][1], self.chats[: self.config.alone], Body(self.config.limit, "alone"))
                self.unloaded = comparison.fit(alone)
            for each, (contender, url) in itertools.product(loads, served):
                replies = self._send(url, each, rate, repeat)
                self.reference += [reply.tokens for reply in replies[len(self.reference) :]]
                differing = comparison.differing(replies, self.reference)
                measured = comparison.figures(replies, self.unloaded)
                rows.append(Row(memory.name, each.name, contender, repeat, measured, differing))
                self._keep(rows[-1])
                self.sent += each.requests
                self.progress(self.sent, max(self._planned(), self.sent))
        return rows

    def _keep(self, row: Row) -> None:
        """Append a row to a file: a contest lasts for hours, and one that is broken off has shown something, too."""
        with self.log.with_suffix(".rows").open("a") as file:
            file.write(json.dumps(comparison.plain(row)) + "\n")

    def _planned(self) -> int:
        """Return about how many requests are sent in all."""
        config = self.config
        return len(config.settings) * config.trial + 2 * config.repeats * sum(
            each.requests for each in config.memory.loads
        )

    def _send(self, url: str, each: Load, rate: float, repeat: int) -> list[Reply]:
        count, arriving = each.requests, 1.0 if each.at_once else rate * each.factor
        arrivals = load.times(each.kind, arriving, count, max(repeat, 0)).tolist()
        return load.send(url, self.chats[:count], arrivals, Body(self.config.limit, f"{each.name} {repeat}"))
