"""Logs one stream of a run of the bins flow: metrics, curves by epoch, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from flows import curves
from flows.bins import figures
from flows.bins.lengths import Lengths
from flows.bins.measure import Latencies
from flows.bins.packages import bins_metrics, choice_of, encoder_metrics, weighed_of
from flows.bins.plan import describe
from flows.bins.stages import StreamResults, compared, load_encoder
from pliant.bins.artifact import Bins
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_stream(run: Run, stream: StreamResults, store: FolderStore) -> None:
    bins = store.load(Bins, stream.bins["key"], stream.bins["digest"])
    measured = store.load(Latencies, stream.latencies["key"], stream.latencies["digest"])
    observed = store.load(Lengths, stream.lengths["key"], stream.lengths["digest"])
    encoder, notes = load_encoder(store, stream.encoder), stream.bins["notes"]
    choice, weighed = choice_of(notes), weighed_of(notes)
    run.dataset(stream.name, encoder.data, stream.name)
    metrics = encoder_metrics(stream.encoder) | bins_metrics(bins, choice, weighed)
    linear = compared(stream)
    metrics |= linear.metrics() if linear else {}
    engines = {f"seconds.engine.{engine}": seconds for engine, seconds in measured.trials.items()}
    run.metrics({f"{name}.{stream.name}": value for name, value in (metrics | engines).items()})
    run.document(
        f"plan-{stream.name}",
        {
            **notes,
            "told": describe(weighed),
            "lengths": observed.source,
            "engine": bins.engine,
            "untried": measured.untried,
            "precision": bins.precision,
            "arithmetic": measured.arithmetic,
        },
    )
    run.figure(f"staircase-{stream.name}", figures.staircase(bins, choice, measured.alone(), measured.dynamic))
    run.figure(f"padding-{stream.name}", figures.padding(bins, choice))
    if weighed:
        run.figure(f"static-{stream.name}", figures.gains(bins, weighed))
    _log_training(run, stream)


def _log_training(run: Run, stream: StreamResults) -> None:
    """Log the encoder's notes and, where it was trained here, one value an epoch."""
    notes = stream.encoder.get("notes", {})
    run.document(f"encoder-{stream.name}", notes)
    if "curves" not in notes:
        return
    learnt = curves.curves_of(notes)
    curves.log_epochs(run, stream.name, learnt)
    run.figure(f"curves-{stream.name}", curves.figure({stream.name: learnt}))
