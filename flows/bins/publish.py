"""What a run of the bins flow publishes: its metrics, figures and reports, and the registered models of each stream.

A stream is two registered models, its encoder and its bins; the bins' version names the encoder's. Knows no Prefect and no
MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pliant.bins.artifact import Bins, Encoder
from pliant.flows.bins.champions import SCORE, VERSION, Record
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.bins.plan import Choice, ShapeTrial, Weighed, describe
from pliant.flows.bins.stages import StreamResults
from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.release import Publication, commit
from pliant.flows.stage import Notes, noted
from pliant.flows.trained import described, draw_curves
from pliant.latency import LatencyTable
from pliant.registry.mlflow_store import Run
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.registry.package import Example, Package
from pliant.registry.releases import table
from pliant.training.classifier import Curves

matplotlib.use("Agg")

GROUP = 8  # tokens a bar of the histogram

TEXTS = ("Return the sorted array.", "Raised when a connection is lost.")
PLAN = "pliant.plan"
"""Tag of a version of bins: in a sentence, which static runtimes were worth it."""
LENGTHS = "pliant.lengths"
"""Tag of a version of bins: where the lengths come from that they were chosen for."""


def register(published: Publication, config: BinsFlowConfig, stream: StreamResults) -> list[str]:
    """Log and register the stream's encoder and its bins, and return the names of their models in this order."""
    log_stream(published.run, stream)
    encoder, bins = stream.encoder, stream.bins
    names = [BINS_ENCODER + stream.name, BINS_PREFIX + stream.name]
    package = lambda: encoder_package(encoder.load(), encoder.folder, encoder.notes)  # noqa: E731
    version = published.register(names[0], encoder.digest, package)
    notes = {**bins.notes, **stream.lengths.notes, "score": stream.noted("score")}
    record = Record(config.engine, config.latency, config.edges, config.threads)
    published.register(names[1], bins.digest, lambda: bins_package(bins.load(), version, bins.folder, notes, record))
    return names


def log_stream(run: Run, stream: StreamResults) -> None:
    """Log metrics, figures and the data set."""
    bins, measured, notes = stream.bins.load(), stream.latencies.load(), stream.bins.notes
    choice, weighed, trained = noted(Choice, notes, "choice"), noted(Weighed, notes, "weighed"), stream.encoder.notes
    run.dataset(stream.name, stream.encoder.load().data, stream.name)
    metrics = encoder_metrics(trained) | bins_metrics(bins, choice, weighed)
    metrics |= stream.linear.metrics() if stream.linear else {}
    engines = {f"seconds.engine.{engine}": seconds for engine, seconds in measured.trials.items()}
    run.metrics({f"{name}.{stream.name}": value for name, value in (metrics | engines).items()})
    plan = {
        **notes,
        "told": describe(weighed),
        "lengths": stream.lengths.load().source,
        "engine": bins.engine,
        "untried": measured.untried,
        "precision": bins.precision,
        "arithmetic": measured.arithmetic,
    }
    run.document(f"plan-{stream.name}", plan)
    run.figure(f"staircase-{stream.name}", staircase(bins, choice, measured.alone(), measured.dynamic))
    run.document(f"encoder-{stream.name}", trained)
    if "curves" in trained:
        learnt = noted(Curves, trained, "curves")
        run.figure(f"curves-{stream.name}", draw_curves({stream.name: learnt}))


def encoder_package(encoder: Encoder, folder: Path, notes: Notes) -> Package:
    """Return an encoder's package. Inputs and outputs are examples: their types become the model's signature."""
    if encoder.head == "embedding":
        outputs: Example = np.zeros((2, int(json.loads(encoder.config).get("hidden_size", 1))), np.float32)
    elif encoder.classes:
        outputs = {"label": np.array(["a class", "another"]), "confidence": np.zeros(2)}
    else:
        outputs = {"label": np.zeros(2)}
    package = Package(
        BINS_ENCODER + encoder.name,
        folder,
        {"text": np.array(TEXTS)},
        outputs,
        config={"device": "cpu"},
        params={
            "head": encoder.head,
            "classes": len(encoder.classes),
            "pooling": encoder.pooling or "none",
            "normalize": encoder.normalize,
            "max_length": encoder.max_length,
        },
        metrics=encoder_metrics(notes),
    )
    return described(package, encoder, notes)


def bins_package(bins: Bins, version: int, folder: Path, notes: Notes, record: Record) -> Package:
    """Return the package of a stream's bins; `version`: of the encoder's model."""
    choice, weighed = noted(Choice, notes, "choice"), noted(Weighed, notes, "weighed")
    inputs = {"length": np.array([16, 200]), "batch": np.array([1, 4])}
    outputs = {"seconds": np.zeros(2), "padded_length": np.array([16, 200]), "padded_batch": np.array([1, 4])}
    return Package(
        BINS_PREFIX + bins.name,
        folder,
        inputs,
        outputs | {"runtime": np.array(["static", "dynamic"])},
        params={
            "engine": bins.engine,
            "precision": bins.precision,
            "placement": bins.placement,
            "slo": bins.slo,
            "edges": list(choice.edges),
            "shapes": [f"{'<= ' * shape.dynamic}{shape.length} x {shape.batch}" for shape in bins.shapes],
            "versions": dict(bins.versions),
        },
        metrics=bins_metrics(bins, choice, weighed),
        card=card(choice, weighed, record),
        tags={
            "pliant.git_commit": commit(),
            "pliant.device": bins.device_class,
            LENGTHS: notes.get("source", "unknown"),
            PLAN: describe(weighed),
            VERSION: version,
            SCORE: json.dumps(notes.get("score")),
            RECORD: record_to_json(record),
        },
    )


def card(choice: Choice, weighed: Weighed, record: Record) -> str:
    """Return what each static shape and padding to bins earn beside the dynamic runtime, in Markdown. Kept ones first."""
    best = choice.costs[max(0, min(len(choice.edges), len(choice.costs)) - 1)]
    padded, longest, dynamic = (f"{1000 * each:.2f} ms" for each in (best, choice.costs[0], choice.dynamic))
    lines = [
        f"Static shapes: {describe(weighed)}. Figures are medians of up to {record.latency.repeats} rounds, whose spread is "
        f"not kept; a shape is served where two measurements find it at least {record.edges.margin:.0%} faster.",
        f"A request alone takes {padded} padded to bins, {longest} padded to the longest, {dynamic} in the dynamic runtime.",
    ]
    heading = ("static shape: tokens x texts", "static ms", "dynamic ms, same requests", "times as fast", "served")
    rows = [
        (
            f"{trial.length} x {trial.batch}",
            *(f"{1000 * seconds:.2f}" for seconds in (trial.static, trial.dynamic)),
            f"{trial.dynamic / trial.static:.2f}",
            "yes" if trial.kept else "no",
        )
        for trial in sorted(weighed, key=lambda trial: not trial.kept)
    ]
    return "\n".join(lines + table(heading, rows))


def encoder_metrics(notes: Notes) -> dict[str, float]:
    score = {"test_accuracy": notes["score"]["accuracy"]} if "score" in notes else {}
    return {"encoder_seconds": notes.get("seconds", 0.0), **score}


def bins_metrics(bins: Bins, choice: Choice, weighed: tuple[ShapeTrial, ...]) -> dict[str, float]:
    """Return a request's mean seconds alone, padded and in the dynamic runtime, and how many static ones are kept."""
    count = max(1, min(len(choice.edges), len(choice.costs)))
    return {
        "bins": float(len(choice.edges)),
        "seconds.padded_to_bins": choice.costs[count - 1],
        "seconds.padded_to_longest": choice.costs[0],
        "seconds.dynamic": choice.dynamic,
        "seconds.load": bins.load_seconds,
        "static_shapes.measured": float(len(weighed)),
        "static_shapes.kept": float(sum(trial.kept for trial in weighed)),
        "requests_observed": float(bins.lengths.sum()),
    }


def staircase(bins: Bins, choice: Choice, static: Mapping[int, float], dynamic: LatencyTable) -> Figure:
    """Draw the milliseconds of one text over its length, the edges, and the requests (bars).

    `static`: seconds at batch 1 by length, and `dynamic` beside them, as measured when the edges were chosen.
    """
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    axes = figure.subplots()
    shares, seen = axes.twinx(), np.flatnonzero(bins.lengths)
    weights = bins.lengths[seen] / max(1, bins.lengths.sum())
    shares.hist(seen, list(range(0, len(bins.lengths) + GROUP, GROUP)), weights=weights, color="#d9dee6")
    shares.set_ylabel(f"share of the requests (bars of {GROUP} tokens)")
    lengths = sorted(static)
    if lengths:
        axes.step(
            lengths, [1000 * static[n] for n in lengths], where="pre", linewidth=2, color="C0", label="static, batch 1"
        )
    axes.plot(dynamic.settings, [1000 * row[0] for row in dynamic.seconds], color="C1", marker=".", label="dynamic")
    kept = {shape.length for shape in bins.shapes if not shape.dynamic}
    for edge in choice.edges:
        axes.axvline(
            edge, color="#6b7686", linestyle="-" if edge in kept else ":", linewidth=1.5 if edge in kept else 1
        )
    axes.set(xlabel="tokens (lines: edges; dotted: no faster than dynamic, not kept)", xlim=(0, bins.shapes[-1].length))
    axes.set_ylabel(f"milliseconds ({bins.engine}, {bins.device_class})")
    axes.set_title(f"{bins.name}: {len(kept)} of {len(choice.edges)} bins have static runtimes")
    axes.legend(loc="upper left")
    axes.set_zorder(2)
    axes.patch.set_visible(False)
    return figure
