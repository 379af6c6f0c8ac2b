"""`pliant bench cascade`: the targets of the cascade system, measured, printed and written as JSON.

Data sets' classifiers are trained where they are not kept. Knows what each part is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property, partial

from rich.console import Console

from benchmarks import console, harness
from benchmarks.cascade import contest, control, figures
from benchmarks.cascade.data import FOLDER, SOURCES
from benchmarks.cascade.study import Latencies, Study, latencies, material, ready, study
from benchmarks.harness import Context, Measured, Part
from flows import settings
from registry.store import FolderStore

QUICK_TRAINED = "massive"  # where nothing has been trained yet: what a quick run has time for
TRAINING = 1000.0  # seconds on the slow setting to train that
SPLITS = 20


class Ground(Context):
    """What both parts need, made once: data sets with their classifiers' outputs, and latencies of this run."""

    @cached_property
    def studies(self) -> list[Study]:
        names = list(SOURCES) if self.full else _ready()
        if not names:
            Console().print(f"Nothing is trained yet: the quick setting trains {QUICK_TRAINED} alone, --full all.")
        return [study(name, _store(), FOLDER, self.stage) for name in names or [QUICK_TRAINED]]

    @cached_property
    def latencies(self) -> Latencies:
        with self.stage("latencies of every level") as progress:
            return latencies(self.studies[0].classifiers, progress)


def _store() -> FolderStore:
    return FolderStore(settings.read().home / "bench")


def _ready() -> list[str]:
    """Return the data sets whose classifiers are trained already."""
    return ready(list(SOURCES), _store(), FOLDER)


def _training(_ground: Ground) -> float:
    return 0.0 if _ready() else TRAINING


def _contest(ground: Ground) -> Measured:
    rounds, measured = {}, ground.latencies
    for data_set in ground.studies:
        name = data_set.data.name
        with ground.stage(f"{name}: {SPLITS} splits") as progress:
            rounds[name] = contest.contest(material(data_set, measured), SPLITS, progress)
    console.table("means over the splits", figures.HEADINGS, figures.rows(rounds))
    Console().print(figures.NOTE)
    console.picture(figures.contest_figure(rounds), settings.read().home, "cascade")
    return figures.contest_targets(rounds), {name: contest.plain(each) for name, each in rounds.items()}


def _control(ground: Ground) -> Measured:
    first, measured = ground.studies[0], ground.latencies
    with ground.stage("control logic") as progress:
        result = control.measure(first, measured, progress)
    console.table("control logic of one request", control.HEADINGS, result.table())
    return [result.target()], asdict(result)


PARTS: Mapping[str, Part] = {
    "contest": Part(_contest, 120.0, _training),
    "control": Part(_control, 30.0, _training),
}

bench = partial(harness.run, "cascade", PARTS, make=Ground)
