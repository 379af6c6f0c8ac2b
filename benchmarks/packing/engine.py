"""Real generation on this machine: every policy in our engine against transformers' own continuous batching.

The model is a Llama with random weights; output lengths are Vicuna's, scaled and forced, with forecasts of a predictor that
was trained on prompts (benchmarks/packing/vicuna.py). The cache's pages are few enough that paging on demand preempts. Our
policies run as the flow would plan them: with iterations measured here, and parameters chosen on other requests.
Everybody gets the same requests: once all together, and once by Poisson arrivals at more than anybody serves. Transformers'
scheduler is tried at several safety margins, and the best of them is compared. On a machine without an accelerator it has no
memory on the host, since it pins that.

All run at once, in turns of an iteration (benchmarks/packing/turns.py), each on a clock of its own iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.packing import vicuna
from benchmarks.packing.forecasts import Foretold
from benchmarks.packing.planned import planned, steps_of
from benchmarks.packing.transformers_engine import TransformersEngine
from benchmarks.packing.turns import Clock, Deliver, Make, TurnOutcome, in_turns
from benchmarks.packing.turns import Engine as TurnEngine
from benchmarks.results import Target
from pliant.packing.artifact import Generator, Packing
from pliant.packing.engine.model import load_generator, weights
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.progress import Progress, silent

FIFO, OURS = "transformers", "default"
OFFLINE, ONLINE = "all at once", "Poisson"
FASTER: Mapping[str, float] = {OFFLINE: 1.5, ONLINE: 1.4}  # times transformers' tokens/s, by load
LONGEST = 512  # Vicuna's longest output
PLANNED = 1000  # requests that our parameters are chosen by
PLAIN = 3  # requests that plain `generate` is asked for, too
MEMORY = Memory(pages=32, page_tokens=4, host_pages=1000, step_tokens=128, sequences=64)
FORMS: Mapping[str, str] = {
    "sequences/s": ".1f",
    "tokens/s": ",.0f",
    "mean s": ".2f",
    "p99 s": ".2f",
    "ms a token": ".1f",
    "preemptions": ".0f",
    "recomputed": ".1%",
    "batch": ".1f",
    "iteration ms": ".2f",
    "deciding ms": ".2f",
}
"""The figures of a row, and how each is printed."""
HEADINGS = ("load", "contender", *FORMS)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`scale`: of Vicuna's tokens; `overload`: arrivals over what transformers' scheduler serves of the batch."""

    requests: int = 600
    policies: tuple[str, ...] = (OURS, "paged")
    margins: tuple[float, ...] = (0.0, 0.15, 0.3)
    scale: float = 0.125
    overload: float = 1.6
    memory: Memory = MEMORY
    hidden: int = 512
    layers: int = 4
    context: int = 512
    seed: int = 0


QUICK = EngineConfig()
FULL = EngineConfig(requests=1200, layers=8, policies=(OURS, "paged", "s3", "orca", "oracle"))


@dataclass(frozen=True, slots=True)
class Contender:
    """`rules=None`: transformers' scheduler with that safety margin."""

    name: str
    rules: Rules | None
    memory: Memory
    margin: float = 0.0

    @property
    def title(self) -> str:
        return self.name if self.rules else f"{self.name}, margin {self.margin:g}"


@dataclass(frozen=True, slots=True)
class Row:
    """How one contender fared."""

    load: str
    contender: Contender
    ran: TurnOutcome

    def figures(self) -> dict[str, float]:
        """Return the figures of FORMS. Iterations and what was decided count the one that warmed up."""
        ran, status, taken = self.ran, self.ran.status, np.array(self.ran.taken)
        lengths, iterations = [len(text) for text in ran.texts], max(status.iterations, 1)
        speed = len(taken) / ran.seconds, sum(lengths) / ran.seconds
        seconds = float(taken.mean()), float(np.quantile(taken, 0.99)), 1e3 * float((taken / lengths).mean())
        preempted = status.preemptions, status.recomputed / max(status.tokens, 1)
        iteration = status.sequences / iterations, 1e3 * status.busy / iterations, 1e3 * status.deciding / iterations
        return dict(zip(FORMS, (*speed, *seconds, *preempted, *iteration), strict=True))

    def cells(self) -> tuple[str, ...]:
        figures = (format(figure, FORMS[name]) for name, figure in self.figures().items())
        return (self.load, self.contender.title, *figures)


@dataclass(frozen=True, slots=True)
class EngineContest:
    rows: tuple[Row, ...]
    rate: float  # requests/s of ONLINE
    generated: tuple[tuple[int, ...], ...]  # what plain `generate` made of the first requests

    def figure(self, load: str, title: str, heading: str) -> float:
        row = next(row for row in self.rows if (row.load, row.contender.title) == (load, title))
        return row.figures()[heading]

    def best(self, load: str, heading: str, most: bool) -> float:
        """Return the best of transformers' scheduler as it is, over its margins, for this figure."""
        titles = {row.contender.title for row in self.rows if row.contender.name == FIFO}
        values = [self.figure(load, title, heading) for title in titles]
        return max(values) if most else min(values)

    def differing(self) -> int:
        """Count the texts that are not everybody's, or not plain `generate`'s."""
        first = self.rows[0].ran.texts
        others = sum(text != same for row in self.rows for text, same in zip(row.ran.texts, first, strict=True))
        return others + sum(text != same for text, same in zip(first, self.generated, strict=False))

    def targets(self) -> list[Target]:
        loads, faster = (OFFLINE, ONLINE), []
        for load in loads:
            ratio = self.figure(load, OURS, "tokens/s") / self.best(load, "tokens/s", True)
            faster.append(Target(f"{load}: tokens/s over transformers' best setting", ratio, ">=", FASTER[load], "x"))
        sooner = self.figure(ONLINE, OURS, "mean s") / self.best(ONLINE, "mean s", False)
        preempted = min(self.figure(load, "paged", "preemptions") for load in loads)
        return [
            *faster,
            Target(f"{ONLINE}: mean completion over transformers' best setting", sooner, "<=", 0.5, "x"),
            Target("preemptions by paging on demand", preempted, ">=", 1),
            Target("greedy texts that differ from others' or from plain generate's", self.differing(), "<=", 0),
        ]

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells under HEADINGS."""
        return [row.cells() for row in self.rows]

    def plain(self) -> dict[str, Any]:
        rows = [
            {"load": row.load, "contender": row.contender.title, **row.figures(), "status": asdict(row.ran.status)}
            for row in self.rows
        ]
        return {"rate": self.rate, "device": device(), "rows": rows}


def measure(config: EngineConfig, home: Path, progress: Progress = silent) -> EngineContest:
    """Serve both loads. What was predicted of Vicuna's lengths is kept in `home`."""
    foretold = vicuna.vicuna(vicuna.cached(home))
    generator, batch = _generator(config), _submissions(foretold, config, 0.0)
    steps = steps_of(generator, config.memory, device())
    packing = planned(generator, config.memory, steps, _submissions(foretold, config, 0.0, PLANNED))
    contenders = list(_contenders(config, packing))
    offline = serve(OFFLINE, contenders, generator, batch)
    progress(1, 2)
    theirs = [row.ran.seconds for row in offline if row.contender.name == FIFO]
    rate = config.overload * config.requests / min(theirs)
    online = serve(ONLINE, contenders, generator, _submissions(foretold, config, rate))
    progress(2, 2)
    return EngineContest((*offline, *online), rate, _generated(generator, batch[:PLAIN]))


def serve(
    load: str, contenders: Sequence[Contender], generator: Generator, submissions: Sequence[Submission]
) -> list[Row]:
    """Let every contender serve the submissions, in turns of an iteration."""
    ran = in_turns([_maker(generator, contender) for contender in contenders], submissions)
    return [Row(load, *pair) for pair in zip(contenders, ran, strict=True)]


def _maker(generator: Generator, of: Contender) -> Make:
    def make(deliver: Deliver, clock: Clock) -> TurnEngine:
        if of.rules is None:
            return TransformersEngine(generator, of.memory, deliver, device(), of.margin)
        return Engine(generator, of.memory, of.rules, deliver, device(), sampling=False, clock=clock)

    return make


def _contenders(config: EngineConfig, packing: Packing) -> Iterator[Contender]:
    memory = config.memory
    for margin in config.margins:
        yield Contender(FIFO, None, memory, margin)
    for policy in config.policies:
        yield Contender(policy, rules_of(packing, config.context, policy), memory)


def _generator(config: EngineConfig) -> Generator:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(config.seed)
    heads = config.hidden // 32
    llama = LlamaConfig(
        vocab_size=2048,
        hidden_size=config.hidden,
        intermediate_size=11 * config.hidden // 4,
        num_hidden_layers=config.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=config.context,
    )
    model = weights(LlamaForCausalLM(llama))
    return Generator("random", llama.to_json_string(), "", "", config.context, (2,), "", model)


def _submissions(foretold: Foretold, config: EngineConfig, rate: float, others: int = 0) -> list[Submission]:
    """Return requests in order of arrival; all at 0 where the rate is. `others`: so many that are not among them."""
    rng, times = np.random.default_rng([config.seed, 3]), np.random.default_rng([config.seed, 4])
    rows, count = rng.permutation(len(foretold.lengths.output)), others or config.requests
    rows = rows[config.requests :][:others] if others else rows[: config.requests]
    arrivals = np.cumsum(times.exponential(1 / rate, count)) if rate else np.zeros(count)
    limit = int(np.ceil(LONGEST * config.scale))
    most = config.memory.pages * config.memory.page_tokens - limit

    def scaled(tokens: Any) -> int:
        return max(int(np.ceil(tokens * config.scale)), 1)

    submissions = []
    for number, row in enumerate(rows):
        ids = tuple(rng.integers(3, 2048, min(scaled(foretold.lengths.prompt[row]), most)).tolist())
        output, bucket = scaled(foretold.lengths.output[row]), min(scaled(foretold.buckets[row]), limit)
        forecast = tuple(np.maximum(foretold.forecasts_NL[row] * config.scale, 1.0).tolist())
        arrival, offline = float(arrivals[number]), not rate
        prompt = Prompt(number, arrival, len(ids), limit, forecast, bucket, offline=offline, exact=output)
        submissions.append(Submission(prompt, ids, force=output))
    return submissions


def _generated(generator: Generator, submissions: Sequence[Submission]) -> tuple[tuple[int, ...], ...]:
    """Return the texts of plain `generate`, one by one."""
    model, texts = load_generator(generator, device()), []
    model.generation_config.eos_token_id = None
    for submission in submissions:
        ids = torch.tensor([submission.ids], device=model.device)
        mask = torch.ones_like(ids)
        greedy = {"max_new_tokens": submission.force, "do_sample": False, "pad_token_id": 0}
        output = model.generate(ids, attention_mask=mask, **greedy)
        texts.append(tuple(output[0, len(submission.ids) :].tolist()))
    return tuple(texts)


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
