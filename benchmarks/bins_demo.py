"""The bins system's part of `pliant demo`: a bursty load of texts over HTTP, and the same arrivals simulated otherwise.

What others would have made of the very requests that the endpoint's journal tells of is simulated on the measured profile:
first come first served, and every text padded to the longest.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.bins_fidelity import arrived, since
from benchmarks.endpoint import serving
from benchmarks.load_generator import Form, Told, one_by_one
from benchmarks.load_generator import replay as send
from flows import bins_live
from flows.settings import Settings
from pliant.bins.artifact import Bins, Shape
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import RegistryError
from pliant.protocol import Journal, Request
from pliant.report import Observation, observations, summarise
from pliant.simulate import simulate
from pliant.workload import RequestKind, alternating, piecewise, requests
from serving.journal import read
from training import docstrings

QUIET, LOUD, SECONDS, TURNS = 0.4, 1.6, 1.0, 3  # shares of the capacity; seconds of each stretch
WARM = 20
LIVE, SIMULATED = "live", "simulated"
FIRST, PADDED = "simulated: first come, first served", "simulated: every text padded to the longest"


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    label: str


def demo(told: Settings, console: Console) -> None:
    """Print the comparison and point at the picture. Raises `RegistryError` without a champion on the embedded corpus."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from flows.progress import stage

    bins, pool = _stream(told)
    with stage("texts of all lengths under one bursty load") as progress:
        found = measure(told, bins, pool, progress)
    table = Table("", "answered in time", "mean ms", "p50 ms", "p98 ms")
    for name, seen in found.items():
        told_of = summarise(seen)
        took = _latencies(seen)
        cells = (
            f"{100 * told_of.attainment:.1f}%",
            *(f"{1e3 * x:.1f}" for x in (took.mean(), told_of.p50, told_of.p98)),
        )
        table.add_row(name, *cells, style="bold" if name == LIVE else "")
    static = sum(not shape.dynamic for shape in bins.shapes)
    kept = f"{static} static shapes" if static else "no static shape, as none was faster here than the dynamic runtime"
    console.print(
        f"The plan for {bins.device_class}: {bins.engine}, {kept}. Each text is due within {1e3 * bins.slo:.0f} ms."
    )
    console.print(table)
    console.print(f"\nThe picture of this run: {_record(told, found)}")


def measure(told: Settings, bins: Bins, pool: list[Example], progress: Any) -> dict[str, list[Observation]]:
    """How every request fared, by way of serving."""
    known = knowledge_of([bins])
    capacity = 1 / known.streams[0].mean_seconds
    rng = np.random.default_rng(0)
    times = piecewise(alternating([QUIET * capacity] * TURNS, [LOUD * capacity] * TURNS, SECONDS), rng)
    asked = requests(times, [RequestKind(bins.name, bins.slo, 1.0)], rng)
    path = told.home / "bins-demo.jsonl"
    path.unlink(missing_ok=True)
    with serving("bins", journal=path, refresh_seconds=0.0) as service:
        warm = [Request(i, 0.0, 20.0, bins.name) for i in range(WARM)]
        asyncio.run(one_by_one(service.url, warm, {bins.name: pool}, form=_form(bins.name, bins.slo)))
        replies = asyncio.run(send(service.url, asked, {bins.name: pool}, 0, progress, _form(bins.name, bins.slo)))
    came = arrived(since(read(path), WARM))
    ways = {
        SIMULATED: (bins, "all", None),
        FIRST: (alone(bins), "dynamic", 0.0),
        PADDED: (padded(bins), "longest", 0.0),
    }
    return {LIVE: [reply.observation for reply in replies]} | {
        name: observations(_simulated(came, *way)) for name, way in ways.items()
    }


def alone(bins: Bins) -> Bins:
    """One text at a time by the dynamic runtime."""
    return replace(bins, shapes=(Shape(bins.shapes[-1].length, 1, True),), seconds=())


def padded(bins: Bins) -> Bins:
    """Every text takes what the longest does."""
    longest = bins.shapes[-1].length
    static = next(
        (t for s, t in zip(bins.shapes, bins.seconds, strict=False) if (s.length, s.batch) == (longest, 1)), None
    )
    seconds = static or bins.dynamic.between(longest, 1)
    return replace(bins, shapes=(Shape(longest, 1), bins.shapes[-1]), seconds=(seconds,))


def _simulated(came: list[Request], bins: Bins, runtimes: str, patience: float | None) -> Journal:
    """Without patience requests are served in order of arrival."""
    known = knowledge_of([bins], runtimes, "shared")
    return simulate(BinsScheduler(known, Config(patience=patience)), came, SimulatedBins(known, came))


def _form(stream: str, deadline: float) -> Form:
    def body(_request: Request, example: Example) -> bytes:
        return json.dumps({"inputs": example.text, "deadline": deadline}).encode()

    def told(answer: Any, example: Example) -> Told:
        return Told(answer[0]["label"] == example.label, 0, None, float("nan"))

    return Form(body, told, f"/{stream}/predict")


def _stream(told: Settings) -> tuple[Bins, list[Example]]:
    """The champion of the first embedded task, and texts that it was not trained on."""
    for name, bins in bins_live.champion(told).items():
        if name in docstrings.TASKS:
            data = docstrings.load(name, name)
            index = data.split.test
            labels = [data.classes[int(number)] for number in data.labels[index]]
            return bins, [Example(text, label) for (text, _), label in zip(data.texts(index), labels, strict=True)]
    raise RegistryError(
        "the registry holds no champion of the bins system on an embedded corpus: run `pliant train bins`"
    )


def _latencies(seen: list[Observation]) -> np.typing.NDArray[np.float64]:
    """Of the answered, in seconds."""
    return np.array([one.answered - one.request.arrival for one in seen if one.answered is not None])


def _record(told: Settings, found: dict[str, list[Observation]]) -> Path:
    """The figure as PNG and in MLflow."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for colour, (name, seen) in zip(("#c1440e", "#e3b23c", "#1f5f8b", "#9a9a9a"), found.items(), strict=True):
        took = np.sort(_latencies(seen))
        axes.plot(100 * np.arange(1, len(took) + 1) / len(seen), 1e3 * took, color=colour, label=name)
    axes.set(xlabel="% of requests answered within", ylabel="latency (ms)", yscale="log", xlim=(0, 100))
    axes.legend(frameon=False)
    path = told.home / "bins_load.png"
    figure.savefig(path, dpi=110)
    with bins_live.open_registry(told).run("bins load", {"kind": "replay"}) as run:
        run.metrics({"mean_seconds": float(_latencies(found[LIVE]).mean())})
        run.figure("load", figure)
    return path
