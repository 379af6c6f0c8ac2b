"""A real language model on real prompts: the champion that was trained from a folder, in Pliant's engine and transformers'.

The prompts are Alpaca's, in the model's own chat template. What the model answers to each, greedy and up to a limit, is
made first; its length is then forced on every contender, so that all do the same work. Transformers' continuous batching
is tried at several safety margins, of which the best counts for each figure. The requests come all at once, and then by
Poisson times at more than transformers serves. Ours admits by what the champion's predictor says of each prompt. How good
that predictor is on prompts that it was not trained on was measured by the flow and stands in its artifact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from pliant.benchmarks import places
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing.turns import Contender, Row, serve
from pliant.benchmarks.places import ALPACA
from pliant.benchmarks.results import Target
from pliant.flows import settings
from pliant.flows.champions import load_champions
from pliant.flows.packing.champions import fetch_generator, fetch_predictor
from pliant.flows.packing.stages import rendered
from pliant.flows.release import open_registry
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import PredictorModel, tokenizer_of
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.reference import rules_of
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.progress import Progress, share, silent
from pliant.training.packing import prompts

NAME = "smollm2-135m-instruct"
MISSING = (
    f"needs {NAME}: make it by shared/tools/make_real_models.py, then pliant train packing --config "
    "packing_smollm2 --generator path:FOLDER --data parquet:alpaca_train.parquet"
)
FIFO, OURS = "transformers", "default"
OFFLINE, ONLINE = "all at once", "Poisson"
TOGETHER, LATER = 32, 40  # requests at once, and by Poisson times
LIMIT = 96  # tokens of an output
OVERLOAD = 1.2  # arrivals over what transformers serves of those at once
MARGINS = (0.0, 0.15, 0.3)
LONGEST = 160  # tokens of a prompt
MEMORY = Memory(pages=512, page_tokens=16, step_tokens=256, sequences=64)


def targets(rows: Sequence[Row], predictor: Predictor) -> list[Target]:
    """Judge the rows of both loads, the rival at its best setting for each figure, and the predictor."""

    def figure(load: str, name: str, heading: str, best: Any) -> float:
        mine = [row for row in rows if (row.load, row.contender.name) == (load, name)]
        return float(best(row.figures()[heading] for row in mine))

    faster = figure(OFFLINE, OURS, "tokens/s", max) / figure(OFFLINE, FIFO, "tokens/s", max)
    sooner = figure(ONLINE, OURS, "mean s", min) / figure(ONLINE, FIFO, "mean s", min)
    texts = [row.ran.texts for row in rows if row.load == OFFLINE]
    differing = sum(text != same for each in texts for text, same in zip(each, rows[0].ran.texts, strict=True))
    metrics, held_out = predictor.metrics, f"{NAME}'s predictor, held out"
    apart = max(abs(metrics[f"coverage_{level:g}"] - level) for level in QUANTILES)
    pinball = metrics["pinball"] / metrics["constant_pinball"]
    return [
        Target(f"{NAME}, {TOGETHER} at once: tokens/s over transformers' best setting", faster, ">=", 1.2, "x"),
        Target(f"{NAME}, {OVERLOAD:g}x load: mean completion over transformers' best", sooner, "<=", 0.7, "x"),
        Target(f"{NAME}: texts that differ between contenders", differing, "<=", 0),
        Target(f"{held_out}: pinball loss over constant quantiles", pinball, "<=", 0.8, "x"),
        Target(f"{held_out}: Kendall's tau", metrics["tau"], ">=", 0.4),
        Target(f"{held_out}: coverage, the quantile furthest off", apart, "<=", 0.03),
    ]


def real(context: Context) -> Measured:
    """Compare our engine with transformers' continuous batching, and judge the predictor."""
    need(missing())
    with context.stage("a real language model, two engines in turns") as progress:
        rows, rate, trained = measure(progress)
    plain = [{"load": row.load, "contender": row.contender.title, **row.figures()} for row in rows]
    details = {"rate": rate, "rows": plain, "memory": asdict(MEMORY), "predictor": dict(trained.metrics)}
    return targets(rows, trained), details


def missing() -> str:
    """Return what is missing to measure this; empty if nothing is."""
    if reason := places.missing(ALPACA):
        return reason
    return "" if NAME in load_champions(_registry(), Packing) else MISSING


def predictor() -> Predictor | None:
    """Return the champion's predictor of the model's lengths; None without a champion."""
    registry = _registry()
    champion = load_champions(registry, Packing).get(NAME)
    return None if champion is None else fetch_predictor(registry, champion)


def measure(progress: Progress = silent) -> tuple[list[Row], float, Predictor]:
    """Answer the prompts once to know how long each output is, then serve both loads.

    Returns the rows, the requests/s of ONLINE and the predictor.
    """
    torch.set_num_threads(1)
    registry = _registry()
    champion = load_champions(registry, Packing)[NAME]
    generator, trained = fetch_generator(registry, champion), fetch_predictor(registry, champion)
    texts, encoded = _prompts(generator, TOGETHER + LATER)
    completions = complete(generator, encoded, MEMORY, LIMIT, progress=share(progress, 0, 25))
    submissions = []
    for number, forecast in enumerate(PredictorModel.of(trained).predict(texts)):
        ids, output = encoded[number], len(completions[number].tokens)
        said = tuple(min(tokens, float(LIMIT)) for tokens in forecast.tokens), min(forecast.bucket, LIMIT)
        prompt = Prompt(number, 0.0, len(ids), LIMIT, *said, offline=True, exact=output)
        submissions.append(Submission(prompt, ids, force=output))
    ours = Contender(OURS, rules_of(champion.artifact, generator.context), MEMORY)
    contenders = [*(Contender(FIFO, None, MEMORY, margin) for margin in MARGINS), ours]
    progress(25, 100)
    offline = serve(OFFLINE, contenders, generator, submissions[:TOGETHER])
    progress(55, 100)
    rate = OVERLOAD * TOGETHER / min(row.ran.seconds for row in offline if row.contender.name == FIFO)
    arrivals = np.cumsum(np.random.default_rng(8).exponential(1 / rate, LATER)).tolist()
    later = [
        replace(each, prompt=replace(each.prompt, id=number, arrival=at, offline=False))
        for number, (each, at) in enumerate(zip(submissions[TOGETHER:], arrivals, strict=True))
    ]
    online = serve(ONLINE, contenders, generator, later)
    progress(100, 100)
    return [*offline, *online], rate, trained


def _registry() -> Any:
    return open_registry(settings.read(), "packing")


def _prompts(generator: Generator, count: int) -> tuple[list[str], list[tuple[int, ...]]]:
    """Return prompts as the predictor reads them, and their tokens in the generator's template."""
    tokenizer = tokenizer_of(generator.tokenizer)
    _, loaded = prompts.load(f"parquet:{ALPACA}")
    order = np.random.default_rng(7).permutation(len(loaded))[: 4 * count]
    written = rendered(generator, tokenizer, [loaded[at] for at in order])
    encoded = [tuple(encoding.ids) for encoding in tokenizer.encode_batch(written, add_special_tokens=False)]
    kept = [ids for ids in encoded if len(ids) <= LONGEST][:count]
    return tokenizer.decode_batch([list(ids) for ids in kept], skip_special_tokens=True), kept
