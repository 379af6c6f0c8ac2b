"""The cascade's part of `pliant demo`: held-out texts over HTTP, by the cascade and by its large model alone.

Texts are those of the embedded corpus that the champion was neither trained nor planned with. Both candidates get the same
texts at the same times from one service, in turns; deadlines are short enough to matter under load.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from pliant.benchmarks.demo.run import Comparison, keep
from pliant.benchmarks.demo.turns import Compared, cells, compare
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import Form, Parsed, capacity
from pliant.benchmarks.planned import against_live
from pliant.cascade.artifact import Cascade
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.champions import champion_artifacts
from pliant.flows.settings import Settings
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import Observation, summarise
from pliant.training import docstrings
from pliant.training.text_data import TextData
from pliant.workload import poisson

# Chosen on one core with AVX2 at some 10 Gflop/s, where training takes half a minute (docs/log).
OVERRIDES: Mapping[str, Any] = {
    "levels": [
        {
            "name": "large",
            "scratch": {"width": 128, "layers": 4, "heads": 4, "vocabulary": 4000, "dropout": 0.2},
            # Learns from the first 32 tokens and reads 128: that makes a text much heavier than its way over HTTP.
            "classifier": {"epochs": 1, "batch": 16, "rate": 3e-3, "head_rate": 3e-3, "train_length": 32},
        },
    ],
    "latency": {
        "lengths": [16, 32, 64],
        "batches": [1, 4, 16],
        "timer": {"warmup": 1, "least": 3, "most": 10, "budget": 0.05},
    },
    "gate": {"seeds": 1},
    "reference": {"seconds": 0.5},
}
"""The demo's sizes, laid over the flow's: `pliant train cascade` trains longer, on longer texts, and a larger model."""

DEFAULT = "default"
KEPT = ", not cut short"
MOST_TEXTS = 2000


@dataclass(frozen=True, slots=True)
class TextExample:
    text: tuple[str, str | None]
    label: str


@dataclass(frozen=True, slots=True)
class LoadConfig:
    seconds: float = 3.0  # of one turn
    turns: int = 2
    share: float = 2.0  # of what the large model alone can bear
    deadline: float = 0.25
    probe: float = 1.5  # seconds of saturation to find what that is
    clients: int = 64
    probed: int = 256  # texts of the probe


LOAD = LoadConfig()


def demo(project: Settings, console: Console) -> Comparison:
    """Compare the default with the large model alone, and point at the picture."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    cascade, data = live_cascade()
    alone, promised = f"only {cascade.levels[-1].name}", cascade.candidates[0].promised
    with stage("the cascade and its large model under one load") as progress:
        compared = measure(cascade, data, (DEFAULT, alone), LOAD, progress)
    console.print(
        f"The large model alone bears {compared.bears:.0f} texts/s on this machine; offered are "
        f"{LOAD.share * compared.bears:.0f}, each to be answered within {1e3 * LOAD.deadline:.0f} ms. The table says how "
        "many of the answers were right, which model gave them (level), and how many were cut short by their deadline (cut)."
    )
    console.print(table(compared, [level.name for level in cascade.levels], promised))
    console.print(words(compared, promised, cascade.confidence))
    default, large = compared.report(DEFAULT), compared.report(alone)
    ratio = default.utility / max(large.utility, 1.0)
    console.print(
        f"Of the texts, the cascade answers [bold]{ratio:.2f}x[/bold] as many correctly and in time as the large model "
        f"alone: {default.utility:.0f} and {large.utility:.0f} of {default.requests}, at the median in "
        f"{1e3 * default.p50:.0f} ms and {1e3 * large.p50:.0f} ms. "
        + (
            "Deadlines are met by answers of the small levels: where they are sure, and where the large one has no time."
            if len(cascade.candidates[0].levels) > 1
            else "The small levels were right too seldom on this machine for a promise, so the large one serves alone."
        )
    )
    seen, figures = {name: compared.seen(name) for name in compared.turns}, {"capacity": compared.bears}
    picture = keep(project, "cascade", seen, figures, compared.plain())
    console.print(f"\nThe picture of this run: {picture}")
    reason = "Where a text's way over HTTP takes as long as the large model, there is little to win."
    return Comparison("texts answered correctly and in time, over the large model alone", ratio, reason)


def cut_short(compared: Compared, name: str, whether: bool) -> list[Observation]:
    """Return the answers that a deadline cut short, or those that it did not, which the promise is about."""
    answers = [answer for answer in compared.seen(name) if answer.setting is not None]
    return [answer for answer in answers if (answer.setting or 0) % 2 == whether]


def table(compared: Compared, levels: Sequence[str], promised: float) -> Table:
    """Return a line for each candidate, and one of its answers that were not cut short, if any were.

    Its share in time, too, is of all requests; `promised` stands in the line that it is about.
    """
    rows = Table("candidate", "in time", "accuracy", "promised", "p50 ms", "level", "cut")  # what 80 characters hold
    about = DEFAULT + KEPT if cut_short(compared, DEFAULT, True) else DEFAULT
    for candidate in compared.turns:
        seen = compared.seen(candidate)
        lines = {candidate: seen}
        if cut_short(compared, candidate, True):
            lines[candidate + KEPT] = cut_short(compared, candidate, False)
        for name, some in lines.items():
            report = summarise(some)
            answered = max(1, sum(report.settings.values()))
            by_level: Counter[str] = Counter()
            for setting, count in report.settings.items():
                by_level[levels[setting // 2]] += count
            own, cut = cells(report), sum(count for setting, count in report.settings.items() if setting % 2)
            in_time = f"{report.attainment * len(some) / len(seen):.1%}" if some else "0.0%"
            says = f"{promised:.1%}" if name == about else ""
            given = " ".join(f"{level}:{count / answered:.0%}" for level, count in by_level.items())
            row = (name, in_time, own["accuracy"], says, own["p50 ms"], given, f"{cut / answered:.1%}")
            rows.add_row(*row, style="bold" if name == DEFAULT else "")
    return rows


def words(compared: Compared, promised: float, confidence: float) -> str:
    """Return what was promised, what deadlines did, and whether what they left alone kept the promise."""
    cut, kept = (summarise(cut_short(compared, DEFAULT, whether)) for whether in (True, False))
    said = (
        f"Promised is an accuracy of {promised:.3f} at least (with {confidence:.0%} confidence) for answers that are given "
        "as planned."
    )
    if cut.requests:
        said += (
            f" Deadlines cut {cut.requests / (cut.requests + kept.requests):.1%} of the answers short: a small level was "
            "unsure, no time was left for the large one, and so its own answer was given, which was right in "
            f"{cut.accuracy:.3f}. Of these nothing is promised, and each says so (`cut_short`)."
        )
    if not kept.requests:
        return f"{said} None was given as planned."
    those = "The others" if cut.requests else "They"
    if kept.accuracy >= promised:
        return f"{said} {those} are right in {kept.accuracy:.3f}."
    chance = 2 * math.sqrt(promised * (1 - promised) / kept.requests)
    much = "and more" if promised - kept.accuracy > chance else "but no more"
    return f"{said} {those} are right in {kept.accuracy:.3f}: less, {much} than chance explains with {kept.requests}."


def form(candidate: str, levels: Sequence[str]) -> Form:
    """Return a candidate's form. Settings are twice the level's number, and one more where the answer was cut short."""

    def body(request: Request, example: TextExample) -> bytes:
        first, second = example.text
        fields = {"task": request.task, "text": first, "candidate": candidate, "utility": request.utility}
        fields |= {"deadline": request.deadline - request.arrival} | ({} if second is None else {"text_pair": second})
        return json.dumps(fields).encode()

    def read(answer: Any, example: TextExample) -> Parsed:
        (result,) = answer["answers"]
        setting = 2 * levels.index(result["level"]) + bool(result["cut_short"])
        seconds = result.get("queue_seconds", math.nan) + result.get("run_seconds", math.nan)
        return Parsed(result["label"] == example.label, setting, None, seconds)

    return Form(body, read)


def live_cascade() -> tuple[Cascade, TextData]:
    """Return the champion of the first embedded task, and its data. Raises `RegistryError` without one."""
    champions = champion_artifacts(settings.read(), Cascade)
    for cascade in champions.values():
        for task in docstrings.TASKS:
            data = docstrings.load(task, cascade.task)
            if data.fingerprint == cascade.data and data.classes:
                return cascade, data
    has = f"has no champion but {', '.join(champions)}" if champions else "holds no champion of the cascade system"
    raise RegistryError(f"the registry {has}: run `pliant train cascade` first")


def planned(context: Context) -> Measured:
    """Plan for what came to a live service of the champion's large model alone, and compare: no journal holds a bag."""
    cascade, data = live_cascade()
    alone, levels = f"only {cascade.levels[-1].name}", [level.name for level in cascade.levels]
    return against_live(context, "cascade", form(alone, levels), texts(cascade, data), [2 * LOAD.deadline], alone)


def texts(cascade: Cascade, data: TextData) -> dict[str, list[TextExample]]:
    """Return the task's test texts with their labels."""
    index = data.split.test[:MOST_TEXTS]
    labels = [data.classes[int(number)] for number in data.labels[index]]
    return {cascade.task: [TextExample(*pair) for pair in zip(data.texts(index), labels, strict=True)]}


def measure(
    cascade: Cascade, data: TextData, candidates: Sequence[str], config: LoadConfig, progress: Progress = silent
) -> Compared:
    """Serve the same loads of test texts by each of these candidates, the last of which sets the rate of a turn.

    Its capacity is measured just before the turn, as a machine that does something else may bear half as much.
    """
    levels, pool = [level.name for level in cascade.levels], texts(cascade, data)
    forms = {name: form(name, levels) for name in candidates}

    def load(number: int, borne: float) -> list[Request]:
        arrivals = poisson(config.share * borne, config.seconds, np.random.default_rng(number)).tolist()
        return [Request(i, at, at + config.deadline, cascade.task) for i, at in enumerate(arrivals)]

    with serving("cascade") as url:

        def probe() -> float:
            probed = forms[candidates[-1]], 1.0, config.probed
            return asyncio.run(capacity(url, pool, config.probe, config.clients, *probed))

        return compare(dict.fromkeys(candidates, url), forms, pool, config.turns, probe, load, progress)
