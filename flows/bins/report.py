"""What a run of the bins flow logs of one stream: metrics, curves by epoch, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from flows import curves
from flows.bins import figures
from flows.bins.lengths import Lengths
from flows.bins.measure import Latencies
from flows.bins.packages import bins_metrics, choice_of, encoder_metrics, weighed_of
from flows.bins.plan import told
from flows.bins.stages import StreamMade, load_encoder
from pliant.bins.artifact import Bins
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_stream(run: Run, made: StreamMade, store: FolderStore) -> None:
    bins = store.load(Bins, made.bins["key"], made.bins["digest"])
    measured = store.load(Latencies, made.latencies["key"], made.latencies["digest"])
    observed = store.load(Lengths, made.lengths["key"], made.lengths["digest"])
    encoder, notes = load_encoder(store, made.encoder), made.bins["notes"]
    choice, weighed = choice_of(notes), weighed_of(notes)
    run.dataset(made.name, encoder.data, made.name)
    metrics = encoder_metrics(made.encoder) | bins_metrics(bins, choice, weighed)
    engines = {f"seconds.engine.{engine}": seconds for engine, seconds in measured.trials.items()}
    run.metrics({f"{name}.{made.name}": value for name, value in (metrics | engines).items()})
    run.document(
        f"plan-{made.name}",
        {
            **notes,
            "told": told(weighed),
            "lengths": observed.source,
            "engine": bins.engine,
            "untried": measured.untried,
        },
    )
    run.figure(f"staircase-{made.name}", figures.staircase(bins, choice, measured.alone(), measured.dynamic))
    run.figure(f"padding-{made.name}", figures.padding(bins, choice))
    if weighed:
        run.figure(f"static-{made.name}", figures.gains(bins, weighed))
    _log_training(run, made)


def _log_training(run: Run, made: StreamMade) -> None:
    """Where an encoder was trained here: its notes, and one value an epoch."""
    notes = made.encoder.get("notes", {})
    run.document(f"encoder-{made.name}", notes)
    if "curves" not in notes:
        return
    learnt = curves.curves_of(notes)
    curves.log_epochs(run, made.name, learnt)
    run.figure(f"curves-{made.name}", curves.figure({made.name: learnt}))
