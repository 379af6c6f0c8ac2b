"""Pliant's scheduler in vLLM against vLLM's own: first come, first served, and by priority, each at its best setting.

All get the same prompts, pages and arrivals, one at a time. First vLLM's own schedulers are tried at several settings, with
all requests at once: the one with most tokens/s goes on, and the one with the smallest mean completion, too, if it is
clearly smaller; for each figure the better counts. Pliant's has one setting, which is not tried out. Then vLLM, first come,
first served, and Pliant's take turns, load by load and every other repeat in the opposite order: their servers are both up,
and a server that has no request does nothing, so that what is compared lies a few minutes apart. All others run in the
first repeat, each by itself.
The load is a multiple of the capacity: what vLLM, first come, first served, answers a second at its best setting while many
wait, with all requests at once and without the emptying at the end, which would understate it. A contest has one memory:
so small that it binds, or so large that it does not.

Besides: a decision's cost with many requests (decisions.py), and the same sessions in the simulator (simulation.py).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import places
from benchmarks.packing.vllm import comparison, decisions, figures, load, server, simulation
from benchmarks.packing.vllm.comparison import HALF, OURS, OVERLOADS, Load, Memory, Row, at_once
from benchmarks.packing.vllm.decisions import DecisionConfig, DecisionCost
from benchmarks.packing.vllm.figures import Unloaded
from benchmarks.packing.vllm.load import DOLLY, Body, Chat, Reply
from benchmarks.packing.vllm.server import FCFS, PAGE_TOKENS, PRIORITY, Contender, Engine, Files, Setting
from benchmarks.places import ALPACA
from benchmarks.results import Target
from flows import settings
from pliant.packing.artifact import Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling import request
from pliant.packing.scheduling.forecast import MEDIAN
from pliant.packing.vllm.settings import Settings
from pliant.progress import Progress, silent
from registry import codec

NAME = "smollm2-135m-instruct"
WARM = 2  # requests that are not measured
LAST = 130  # tokens of a last text: the journal is written in pieces of 64 decisions, and the last may be lost
DEADLINE = 4.0  # times the unloaded time, for the policy `edf`
CLEARLY = 0.97  # of a mean completion: a smaller one is taken for more than noise
UNPREDICTED = f"{OURS}, no predictor"
OUR_SETTING = Setting(64, 512)
TIGHT = Setting(16, 512)  # vLLM's best of the grid where memory holds 14 sequences (docs/log/packing.md)


@dataclass(frozen=True, slots=True)
class VllmConfig:
    """`settings`: of vLLM's own schedulers, `rivals`, tried with `trial` requests at once.

    `alone`: texts that are measured without others. `others`: policies of Pliant that run in the first repeat.
    """

    memory: Memory
    trial: int = 120
    repeats: int = 1
    settings: tuple[Setting, ...] = (OUR_SETTING,)
    rivals: tuple[str, ...] = (FCFS,)
    ours: Setting = OUR_SETTING
    others: tuple[str, ...] = ()
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
POLICIES = ("paged", "s3", "past-future", "edf", "oracle")
QUICK = VllmConfig(binding(*loads(240, 120, 40)), settings=(TIGHT,))
AMPLE = VllmConfig(ample(*loads(240, 120, 40)))
OTHERS = VllmConfig(
    binding(at_once(120), Load(OVERLOADS[0], 240)), settings=(TIGHT,), rivals=(FCFS, PRIORITY), others=POLICIES
)
FULL = VllmConfig(
    binding(*loads(400, 120, 60, 240)), repeats=5, settings=GRID, alone=20, decisions=DecisionConfig(steps=3000)
)
AMPLE_FULL = replace(FULL, memory=ample(*loads(400, 120, 60, 240)))
OTHERS_FULL = VllmConfig(
    binding(at_once(160), Load(OVERLOADS[0], 400)), settings=GRID, rivals=(FCFS, PRIORITY), others=POLICIES, alone=20
)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """One load of a session in the simulator over live. `error`: of the fitted cost, the median over steps.

    `otherwise`: decisions of the whole session that a fresh scheduler makes otherwise.
    """

    load: str
    mean: float
    tokens: float
    error: float
    otherwise: int

    @property
    def apart(self) -> float:
        return max(abs(self.mean - 1), abs(self.tokens - 1))


@dataclass(frozen=True, slots=True)
class VllmContest:
    """`rate`: what vLLM, first come, first served, answers a second while many wait. `tried`: before.

    `step`: seconds of a step in which as many sequences generate as in the decisions that were measured, by the fitted cost.
    `live`: share of decisions of a session's steps, decided again here, at the most.
    """

    memory: Memory
    rows: tuple[Row, ...]
    tried: tuple[Row, ...]
    rate: float
    unloaded: Unloaded
    decision: DecisionCost
    step: float
    live: float
    fidelity: tuple[Fidelity, ...]
    predicted: bool

    def targets(self) -> list[Target]:
        apart = [
            (what, _worst([abs(getattr(each, name) - 1) for each in self.fidelity]))
            for what, name in (("mean completion", "mean"), ("tokens/s", "tokens"))
        ]
        return [
            *comparison.targets(self.rows, self.memory),
            Target("a decision at 256 running and 2,000 waiting, p99", 1e3 * self.decision.p99, "<=", 2.0, "ms"),
            Target("the same, mean, over a step of so many sequences", self.decision.share(self.step), "<=", 0.02),
            Target("decisions over the steps of a live session", self.live, "<=", 0.02),
            *(Target(f"the simulator over live: {what}, the load furthest off", far, "<=", 0.1) for what, far in apart),
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
            "decision": {**asdict(self.decision), "step": self.step, "live": self.live},
            "fidelity": [asdict(each) for each in self.fidelity],
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


def _worst(values: Sequence[float]) -> float:
    return max(values, default=math.nan)


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
        self.progress, self.visits, self.sent = progress, 0, 0
        self.log = settings.read().home / "logs" / "bench-vllm.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.predictor = folder / "predictor" if predictor is not None else None
        self.expected = [len(chat.ids) for chat in chats]  # the priorities of requests: smaller goes first
        if predictor is not None and self.predictor is not None:
            codec.save(predictor, self.predictor)
            self.expected = _medians(predictor, chats)
        self.reference: list[tuple[int, ...]] = []  # texts of the first run
        self.unloaded = Unloaded(0.0, 0.0, 0.0)
        self.steps: list[float] = []
        self.shares: list[float] = []
        self.fidelity: list[Fidelity] = []

    def measure(self) -> VllmContest:
        config = self.config
        tried, rate = self._tune()
        rows = list(self._turns(tried, rate))
        cost = decisions.measure(config.decisions)
        step = median(self.steps) if self.steps else math.nan
        live, fidelity = max(self.shares, default=math.nan), tuple(self.fidelity)
        fixed = tuple(rows), tuple(tried), rate, self.unloaded
        return VllmContest(config.memory, *fixed, cost, step, live, fidelity, self.predictor is not None)

    def _tune(self) -> tuple[list[Row], float]:
        """Return the rows of vLLM's own schedulers at all settings, and the most that the first of them answers a second."""
        config = self.config
        trial = [at_once(config.trial)]
        rows = [
            row
            for name in config.rivals
            for setting in config.settings
            for row in self._visit([Contender(name, setting)], trial, 1.0, 0)
        ]
        return rows, max(row.figures.sustained for row in rows if row.contender.name == FCFS)

    def _turns(self, tried: Sequence[Row], rate: float) -> Iterator[Row]:
        config = self.config
        fcfs, *rivals = (best([row for row in tried if row.contender.name == name]) for name in config.rivals)
        mains = [*fcfs, Contender(OURS, config.ours, "default")]
        others = [contender for rival in rivals for contender in rival]
        others += [Contender(f"Pliant {policy}", config.ours, policy) for policy in config.others]
        if self.predictor is not None and others:
            others.append(Contender(UNPREDICTED, config.ours, "default"))
        for repeat in range(config.repeats):
            yield from self._visit(mains[:: -1 if repeat % 2 else 1], config.memory.loads, rate, repeat)
            for contender in () if repeat else others:
                yield from self._visit([contender], config.memory.loads, rate, repeat)

    def _visit(self, contenders: Sequence[Contender], loads: Sequence[Load], rate: float, repeat: int) -> list[Row]:
        """Return the rows of servers that take turns at each load. `rate`: the capacity."""
        self.visits += 1
        memory = self.config.memory
        engine = Engine(self.model, memory.pages, self.config.context)
        rows: list[Row] = []
        with ExitStack() as stack:
            served = list[tuple[Contender, Path, str]]()
            for contender in contenders:
                predictor = None if contender.name == UNPREDICTED else self.predictor
                journal = self.folder / f"journal-{self.visits}-{len(served)}"
                files = Files(self.log, journal, predictor=predictor)
                served.append((contender, journal, stack.enter_context(server.serving(engine, contender, files))))
            for contender, _, url in served:
                self._send(url, contender, Load(1.0, WARM), 1.0, -1)
            if not self.reference:
                self._alone(served[0][2])
            for each, (contender, _, url) in itertools.product(loads, served):
                replies = self._send(url, contender, each, rate, repeat)
                self.reference += [reply.tokens for reply in replies[len(self.reference) :]]
                differing = figures.differing(replies, self.reference)
                measured = figures.figures(replies, self.unloaded)
                rows.append(Row(memory.name, each.name, contender, repeat, measured, differing))
                self._keep(rows[-1])
                self.sent += each.requests
                self.progress(self.sent, max(self._planned(), self.sent))
            for _, _, url in served:
                load.send(url, self.chats[:1], [0.0], Body(LAST, "last", whole=True))
        for contender, journal, _ in served:
            if contender.name == OURS:
                self._simulate(contender, journal, loads, [row for row in rows if row.contender == contender])
        return rows

    def _keep(self, row: Row) -> None:
        """Append a row to a file: a contest lasts for hours, and one that is broken off has shown something, too."""
        with self.log.with_suffix(".rows").open("a") as file:
            file.write(json.dumps(comparison.plain(row)) + "\n")

    def _planned(self) -> int:
        """Return about how many requests are sent in all."""
        config = self.config
        turns = 2 * config.repeats + len(config.rivals) - 1 + len(config.others) + bool(config.others)
        tried = len(config.rivals) * len(config.settings) * config.trial
        return tried + turns * sum(each.requests for each in config.memory.loads)

    def _alone(self, url: str) -> None:
        """Measure what the first texts take without others."""
        replies = load.alone(url, self.chats[: self.config.alone], Body(self.config.limit, "alone"))
        self.unloaded = figures.fit(replies)

    def _send(self, url: str, contender: Contender, each: Load, rate: float, repeat: int) -> list[Reply]:
        count, arriving = each.requests, 1.0 if each.at_once else rate * each.factor
        extras: list[dict[str, float]] = []
        if contender.policy == "oracle" and self.reference:
            extras = [{"output_tokens": len(text)} for text in self.reference]
        if contender.policy == "edf" and self.reference:
            texts = [
                Reply(len(chat.ids), tokens, *3 * (0.0,))
                for chat, tokens in zip(self.chats, self.reference, strict=False)
            ]
            extras = [{"deadline": DEADLINE * float(seconds)} for seconds in self.unloaded.seconds(texts)]
        priorities = self.expected if contender.name == PRIORITY else ()
        body = Body(self.config.limit, f"{each.name} {repeat}", priorities, extras)
        return load.send(url, self.chats[:count], load.times(each.kind, arriving, count, max(repeat, 0)).tolist(), body)

    def _simulate(self, contender: Contender, journal: Path, loads: Sequence[Load], rows: Sequence[Row]) -> None:
        """Compare the session with the simulator's."""
        setting, pages = contender.setting, self.config.memory.pages - 1
        memory = request.Memory(pages, PAGE_TOKENS, step_tokens=setting.tokens, sequences=setting.sequences)
        rules = Settings(policy=contender.policy).rules(self.config.context + 1)
        session = simulation.session(simulation.read(journal), rules, memory)
        ends = WARM + np.cumsum([0, *(each.requests for each in loads)])
        spans = [range(begin, end) for begin, end in itertools.pairwise(ends.tolist())]
        for row, times in zip(rows, simulation.simulated(session, rules, memory, spans), strict=True):
            mean, tokens = times.mean / row.figures.mean, times.tokens / row.figures.tokens
            self.fidelity.append(Fidelity(row.load, mean, tokens, session.cost.error, session.otherwise))
        running = self.config.decisions.running
        held = sum(len(chat.ids) for chat in self.chats) / len(self.chats) + self.config.limit / 2
        self.steps.append(float(session.cost.seconds(running, running, round(running * held))))
        self.shares.append(session.deciding / session.lasted)


def _medians(predictor: Predictor, chats: Sequence[Chat]) -> list[int]:
    """Return the predicted medians in tokens."""
    forecasts = PredictorModel.of(predictor).predict([chat.text for chat in chats])
    return [round(forecast.tokens[MEDIAN]) for forecast in forecasts]
