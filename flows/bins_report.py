"""What a run of the bins flow logs of one stream: metrics, curves by epoch, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from flows import bins_figures, cascade_figures
from flows.bins_lengths import Lengths
from flows.bins_measure import Latencies
from flows.bins_packages import bins_metrics, choice_of, encoder_metrics, weighed_of
from flows.bins_plan import told
from flows.bins_stages import StreamMade, load_encoder
from flows.cascade_report import CURVES
from pliant.bins.artifact import Bins
from registry.mlflow_store import Run
from registry.store import FolderStore
from training.cascade_classifier import Curves


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
    run.figure(f"staircase-{made.name}", bins_figures.staircase(bins, choice, measured.alone(), measured.dynamic))
    run.figure(f"padding-{made.name}", bins_figures.padding(bins, choice))
    if weighed:
        run.figure(f"static-{made.name}", bins_figures.gains(bins, weighed))
    _log_training(run, made)


def _log_training(run: Run, made: StreamMade) -> None:
    """Where an encoder was trained here: its notes, and one value an epoch."""
    notes = made.encoder.get("notes", {})
    run.document(f"encoder-{made.name}", notes)
    if "curves" not in notes:
        return
    columns = {name: tuple(notes["curves"][field]) for field, name in CURVES.items()}
    for epoch in range(len(next(iter(columns.values())))):
        run.metrics({f"{name}.{made.name}": values[epoch] for name, values in columns.items()}, step=epoch)
    curves = Curves(**{field: tuple(notes["curves"][field]) for field in CURVES})
    run.figure(f"curves-{made.name}", cascade_figures.curves({made.name: curves}))
