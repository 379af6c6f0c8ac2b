"""Real generation on this machine: every policy in our engine against transformers' own scheduler in the same engine.

The model is a Llama with random weights; output lengths are Vicuna's, scaled and forced, with forecasts of a predictor that
was trained on prompts (benchmarks/packing/vicuna.py). The cache's pages are few enough that paging on demand preempts. Our
policies run as the flow would plan them: with iterations measured here, and parameters chosen on other requests.
Everybody gets the same requests: once all together, and once by Poisson arrivals at more than anybody serves. Transformers'
scheduler is tried at several safety margins, and the best of them is compared. On a machine without an accelerator it has no
memory on the host, since it pins that; with such memory, which we make for it, it is shown beside.

All run at once, in turns of an iteration (benchmarks/packing/turns.py), each on a clock of its own iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.packing import vicuna
from benchmarks.packing.forecasts import Foretold
from benchmarks.packing.planned import planned, steps_of
from benchmarks.packing.turns import Clock, Deliver, Make, TurnOutcome, in_turns
from benchmarks.packing.vicuna import Train
from benchmarks.results import Target
from pliant.packing.artifact import Generator, Packing
from pliant.packing.engine.model import load_generator, weights
from pliant.packing.engine.runtime import Engine
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.progress import Progress, silent

FIFO, FIFO_HOST, OURS = "transformers", "transformers, host", "default"
OFFLINE, ONLINE = "all at once", "Poisson"
LONGEST = 512  # Vicuna's longest output
PLANNED = 1000  # requests that our parameters are chosen by
PLAIN = 3  # requests that plain `generate` is asked for, too
MEMORY = Memory(pages=32, page_tokens=4, host_pages=1000, step_tokens=128, sequences=64)
HEADINGS = (
    "load", "contender", "sequences/s", "tokens/s", "mean s", "p99 s", "ms a token", "preemptions", "recomputed", "batch",
    "iteration ms", "deciding ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`scale`: of Vicuna's tokens; `overload`: arrivals over what transformers' scheduler serves of the batch."""

    requests: int = 600
    policies: tuple[str, ...] = (OURS, "paged")
    margins: tuple[float, ...] = (0.0, 0.15, 0.3)
    with_host: bool = False  # transformers' scheduler with memory on the host, too
    scale: float = 0.125
    overload: float = 1.6
    memory: Memory = MEMORY
    hidden: int = 512
    layers: int = 4
    context: int = 512
    seed: int = 0


QUICK = EngineConfig()
FULL = EngineConfig(requests=1200, layers=8, policies=(OURS, "paged", "s3", "orca", "oracle"), with_host=True)


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

    def figures(self) -> tuple[float, ...]:
        """As HEADINGS has them, from `sequences/s` on. Iterations and what was decided with the one that warmed up."""
        ran, status, taken = self.ran, self.ran.status, np.array(self.ran.taken)
        lengths, iterations = [len(text) for text in ran.texts], max(status.iterations, 1)
        a_token = float((taken / lengths).mean())
        return (
            len(taken) / ran.seconds, sum(lengths) / ran.seconds, float(taken.mean()), float(np.quantile(taken, 0.99)),
            1e3 * a_token, status.preemptions, status.recomputed / max(status.tokens, 1), status.sequences / iterations,
            1e3 * status.busy / iterations, 1e3 * status.deciding / iterations,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    rows: tuple[Row, ...]
    rate: float  # requests/s of ONLINE
    plain: tuple[tuple[int, ...], ...]  # what plain `generate` made of the first requests

    def figure(self, load: str, title: str, heading: str) -> float:
        row = next(row for row in self.rows if (row.load, row.contender.title) == (load, title))
        return row.figures()[HEADINGS.index(heading) - 2]

    def best(self, load: str, heading: str, most: bool) -> float:
        """Of transformers' scheduler as it is, over its margins: the rival of every figure is its best setting for that."""
        titles = {row.contender.title for row in self.rows if row.contender.name == FIFO}
        told = [self.figure(load, title, heading) for title in titles]
        return max(told) if most else min(told)

    def differing(self) -> int:
        """Texts that are not everybody's, or not plain `generate`'s."""
        first = self.rows[0].ran.texts
        others = sum(text != same for row in self.rows for text, same in zip(row.ran.texts, first, strict=True))
        return others + sum(text != same for text, same in zip(first, self.plain, strict=False))

    def targets(self) -> list[Target]:
        faster = {
            load: self.figure(load, OURS, "tokens/s") / self.best(load, "tokens/s", True) for load in (OFFLINE, ONLINE)
        }
        sooner = self.figure(ONLINE, OURS, "mean s") / self.best(ONLINE, "mean s", False)
        preempted = min(self.figure(load, "paged", "preemptions") for load in (OFFLINE, ONLINE))
        return [
            *(
                Target(f"{load}: tokens/s over transformers' best margin", ratio, ">=", 1.1, "x")
                for load, ratio in faster.items()
            ),
            Target(f"{ONLINE}: mean completion over transformers' best margin", sooner, "<=", 0.75, "x"),
            Target("preemptions by paging on demand", preempted, ">=", 1),
            Target("greedy texts that differ from others' or from plain generate's", self.differing(), "<=", 0),
        ]

    def table(self) -> list[tuple[str, ...]]:
        return [(row.load, row.contender.title, *_cells(row.figures())) for row in self.rows]

    def details(self) -> dict[str, Any]:
        """For JSON."""
        rows = [
            {"load": row.load, "contender": row.contender.title, **dict(zip(HEADINGS[2:], row.figures(), strict=True))}
            | {"status": asdict(row.ran.status)}
            for row in self.rows
        ]
        return {"rate": self.rate, "device": _device(), "rows": rows}


def _cells(figures: Sequence[float]) -> tuple[str, ...]:
    forms = ("{:.1f}", "{:,.0f}", "{:.2f}", "{:.2f}", "{:.1f}", "{:.0f}", "{:.1%}", "{:.1f}", "{:.2f}", "{:.2f}")
    return tuple(form.format(figure) for form, figure in zip(forms, figures, strict=True))


def missing() -> str:
    return vicuna.missing()


def measure(config: EngineConfig, home: Path, train: Train, way: str, progress: Progress = silent) -> Found:
    """`train` and `way` as in vicuna.cached: the predictor is trained once and kept in `home`."""
    told = vicuna.vicuna(vicuna.cached(home, train, way))
    generator, batch = _generator(config), _submissions(told, config, 0.0)
    steps = steps_of(generator, config.memory, _device())
    packing = planned(generator, config.memory, steps, _submissions(told, config, 0.0, PLANNED))
    contenders = list(_contenders(config, packing))
    offline = _rows(OFFLINE, contenders, generator, batch)
    progress(1, 2)
    theirs = [row.ran.seconds for row in offline if row.contender.name == FIFO]
    rate = config.overload * config.requests / min(theirs)
    online = _rows(ONLINE, contenders, generator, _submissions(told, config, rate))
    progress(2, 2)
    return Found((*offline, *online), rate, _generated(generator, batch[:PLAIN]))


def _rows(
    load: str, contenders: Sequence[Contender], generator: Generator, submissions: Sequence[Submission]
) -> list[Row]:
    ran = in_turns([_maker(generator, contender) for contender in contenders], submissions)
    return [Row(load, *pair) for pair in zip(contenders, ran, strict=True)]


def _maker(generator: Generator, of: Contender) -> Make:
    def make(deliver: Deliver, clock: Clock) -> Engine:
        return Engine(
            generator, of.memory, of.rules, deliver, _device(), sampling=False, margin=of.margin, clock=clock
        )  # fmt: skip

    return make


def _contenders(config: EngineConfig, packing: Packing) -> Iterator[Contender]:
    memory = config.memory
    for margin in config.margins:
        yield Contender(FIFO, None, replace(memory, host_pages=memory.host_pages if _device() != "cpu" else 0), margin)
        if config.with_host:
            yield Contender(FIFO_HOST, None, memory, margin)
    for policy in config.policies:
        yield Contender(policy, rules_of(packing, config.context, policy), memory)


def _generator(config: EngineConfig) -> Generator:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(config.seed)
    heads = config.hidden // 32
    made = LlamaConfig(
        vocab_size=2048, hidden_size=config.hidden, intermediate_size=11 * config.hidden // 4,
        num_hidden_layers=config.layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=config.context,
    )  # fmt: skip
    return Generator("random", made.to_json_string(), "", "", config.context, (2,), "", weights(LlamaForCausalLM(made)))


def _submissions(told: Foretold, config: EngineConfig, rate: float, others: int = 0) -> list[Submission]:
    """In order of arrival, seconds from the start; all at 0 where the rate is. `others`: so many that are not among them."""
    rng, times = np.random.default_rng([config.seed, 3]), np.random.default_rng([config.seed, 4])
    rows, count = rng.permutation(len(told.lengths.output)), others or config.requests
    rows = rows[config.requests :][:others] if others else rows[: config.requests]
    arrivals = np.cumsum(times.exponential(1 / rate, count)) if rate else np.zeros(count)
    limit = int(np.ceil(LONGEST * config.scale))
    most = config.memory.pages * config.memory.page_tokens - limit
    return [_submission(told, config, number, int(row), float(arrivals[number]), limit, most, rng, not rate)
            for number, row in enumerate(rows)]  # fmt: skip


def _submission(
    told: Foretold, config: EngineConfig, id: int, row: int, arrival: float, limit: int, most: int,
    rng: np.random.Generator, offline: bool,
) -> Submission:  # fmt: skip
    def scaled(tokens: Any) -> int:
        return max(int(np.ceil(tokens * config.scale)), 1)

    ids = tuple(int(one) for one in rng.integers(3, 2048, min(scaled(told.lengths.prompt[row]), most)))
    output, bucket = scaled(told.lengths.output[row]), min(scaled(told.buckets[row]), limit)
    forecast = tuple(float(max(tokens * config.scale, 1.0)) for tokens in told.forecasts_NL[row])
    prompt = Prompt(id, arrival, len(ids), limit, forecast, bucket, offline=offline, exact=output)
    return Submission(prompt, ids, force=output)


def _generated(generator: Generator, submissions: Sequence[Submission]) -> tuple[tuple[int, ...], ...]:
    """By plain `generate`, one by one."""
    model, found = load_generator(generator, _device()), []
    model.generation_config.eos_token_id = None
    for submission in submissions:
        ids = torch.tensor([submission.ids], device=model.device)
        mask = torch.ones_like(ids)
        made = model.generate(
            ids, attention_mask=mask, max_new_tokens=submission.force, do_sample=False, pad_token_id=0
        )
        found.append(tuple(made[0, len(submission.ids) :].tolist()))
    return tuple(found)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
