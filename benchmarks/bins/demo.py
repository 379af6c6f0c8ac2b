"""The bins system's part of `pliant demo`: texts of all lengths over HTTP, by two endpoints that differ in their policy.

One serves as Pliant does by default. The other takes the same requests first come, first served on the dynamic runtime,
which is what one would run without bins: the same service, model and compiled file, batches and drops by the same rules.
Both are up all the time and take turns, so that what else the machine does falls on both. What the machine bears is
measured first, and the load goes from well below to well above it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks.demo.run import Comparison, keep
from pliant.benchmarks.demo.turns import Compared, compare
from pliant.benchmarks.endpoint import serving_each
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import Form, Parsed, capacity, warm
from pliant.benchmarks.planned import against_live
from pliant.bins.artifact import Bins
from pliant.errors import RegistryError
from pliant.flows import champions
from pliant.flows.settings import Settings, read
from pliant.protocol import Request
from pliant.training import docstrings
from pliant.workload import RequestKind, alternating, piecewise, requests

OVERRIDES: Mapping[str, Any] = {
    "streams": [{"data": "docstrings:package", "limit": 2200}],
    "embedded": {
        "scratch": {"width": 128, "layers": 4, "heads": 4, "vocabulary": 2000, "dropout": 0.1},
        "classifier": {"epochs": 2, "rate": 3e-3, "head_rate": 3e-3, "smoothing": 0.1, "max_length": 32},
    },
    "engine": {"lengths": [64, 256]},
    "latency": {"lengths": [16, 64, 128, 256], "batches": [1, 2, 4], "repeats": 3, "least": 2, "budget": 0.1},
    "edges": {"most": 4, "step": 32, "batches": [1, 2, 4]},
}
"""The demo's sizes, laid over the flow's embedded configuration: fewer texts, of which the first 32 tokens are learnt from
(69% right, where `pliant train bins` reaches 75% in five times as long), and fewer lengths and batches to measure."""

OURS, OTHER = "Pliant", "first come, first served"
POLICIES: Mapping[str, str] = {OURS: "default", OTHER: "first-come"}
QUIET, LOUD = 0.5, 2.0  # shares of what OTHER bears
SECONDS, STRETCHES, ROUNDS = 0.55, 2, 3  # of a stretch; quiet and loud ones of a turn; turns of each endpoint
PROBE, CLIENTS, POOL = 2.0, 8, 32  # seconds of saturation, by so many clients, with so many texts
WARM = 10
PATIENT = 20.0  # seconds: a deadline that the probe's requests cannot miss


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    label: str


def held_out(task: str) -> list[Example]:
    """Return the texts of an embedded task that nothing was trained on, with their labels."""
    data = docstrings.load(task, task)
    labels = [data.classes[int(number)] for number in data.labels[data.split.test]]
    return [Example(text, label) for (text, _), label in zip(data.texts(data.split.test), labels, strict=True)]


def lead(compared: Compared) -> float:
    """Return the other's mean seconds over ours, the median of all turns."""
    turns = range(len(compared.borne))
    return statistics.median(compared.mean(OTHER, turn) / compared.mean(OURS, turn) for turn in turns)


def live_bins(project: Settings) -> Bins:
    """Return the champion on an embedded corpus. Raises `RegistryError` without one."""
    artifacts = champions.champion_artifacts(project, Bins)
    bins = next((each for name, each in artifacts.items() if name in docstrings.TASKS), None)
    if bins is None:
        missing = "the registry holds no champion of the bins system on an embedded corpus"
        raise RegistryError(f"{missing}: run `pliant train bins`")
    return bins


def planned(context: Context) -> Measured:
    """Plan for what came to a live service of the champion, and compare."""
    bins = live_bins(read())
    return against_live(
        context, "bins", _form(bins.name, bins.slo), {bins.name: held_out(bins.name)}, [bins.slo], "default"
    )


def demo(project: Settings, console: Console) -> Comparison:
    """Print the comparison and point at the picture. Raises `RegistryError` without a champion on the embedded corpus."""
    bins = live_bins(project)
    compared = measure(bins, held_out(bins.name))
    static = sum(not shape.dynamic for shape in bins.shapes)
    kept = f"{static} static shapes" if static else "no static shape, as none was faster here than the dynamic runtime"
    console.print(f"The plan for {bins.device_class}: {bins.engine}, {kept}.")
    console.print(
        f"First come, first served the endpoint answers {compared.bears:.0f} texts/s; the load goes from {QUIET:g} to "
        f"{LOUD:g} times that, and each text is due within {1e3 * bins.slo:.0f} ms."
    )
    console.print(compared.table(("requests", "in time", "mean ms", "p50 ms", "p98 ms"), OURS))
    console.print(
        f"Both live, in turns, the same requests from the same service and model. With Pliant an answer takes "
        f"{1e3 * compared.mean(OURS):.0f} ms in the mean, first come, first served {1e3 * compared.mean(OTHER):.0f} ms: "
        f"[bold]{lead(compared):.2f}x[/bold] (median of {ROUNDS} turns; no answer counts as {1e3 * bins.slo:.0f} ms). A "
        "long text takes the time of many short ones, and lets them go first."
    )
    seconds = {f"mean_seconds.{policy}": compared.mean(name) for name, policy in POLICIES.items()}
    in_time = {f"in_time.{policy}": compared.report(name).attainment for name, policy in POLICIES.items()}
    picture = keep(project, "bins", {name: compared.seen(name) for name in POLICIES}, seconds | in_time, {})
    console.print(f"\nThe picture of this run: {picture}")
    reason = "Where all texts take about as long, or few have to wait, there is little to win."
    return Comparison("mean time of first come, first served, over Pliant's", lead(compared), reason)


def measure(bins: Bins, pool: Sequence[Example]) -> Compared:
    """Probe, then both in turns."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from pliant.flows.progress import stage

    options = {name: {"policy": policy, "refresh_seconds": 0.0} for name, policy in POLICIES.items()}
    by_name, patient = {bins.name: pool}, _form(bins.name, PATIENT)
    with stage("two bins endpoints, up") as progress, serving_each("bins", options, progress) as addresses:
        for address in addresses.values():
            warm(address, by_name, WARM, patient)
        with stage("what the machine bears") as progress:
            # Texts whose lengths are spread as all are.
            ordered = sorted(pool, key=lambda example: len(example.text))
            spread = [ordered[int((i + 0.5) / POOL * len(ordered))] for i in np.random.default_rng(0).permutation(POOL)]
            rate = asyncio.run(capacity(addresses[OTHER], {bins.name: spread}, PROBE, CLIENTS, patient))
            progress(1, 1)

        def load(number: int, rate: float) -> list[Request]:
            rng = np.random.default_rng(number)
            times = piecewise(alternating([QUIET * rate] * STRETCHES, [LOUD * rate] * STRETCHES, SECONDS), rng)
            return requests(times, [RequestKind(bins.name, bins.slo, 1.0)], rng)

        forms = dict.fromkeys(addresses, _form(bins.name, bins.slo))
        with stage("texts of all lengths in turns") as progress:
            return compare(addresses, forms, by_name, ROUNDS, lambda: rate, load, progress)


def _form(stream: str, deadline: float) -> Form:
    def body(_request: Request, example: Example) -> bytes:
        return json.dumps({"inputs": example.text, "deadline": deadline}).encode()

    def read(answer: Any, example: Example) -> Parsed:
        return Parsed(answer[0]["label"] == example.label, 0, None, float("nan"))

    return Form(body, read, f"/{stream}/predict")
