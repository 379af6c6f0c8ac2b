"""`pliant bench cascade`: every bar of the cascade system, measured, printed and written as JSON.

Parts can be asked for by name. Knows in which order parts run and what each is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    cascade_alone,
    cascade_contest,
    cascade_control,
    cascade_figures,
    cascade_importance,
    cascade_input,
    cascade_live,
    cascade_models,
    cascade_replay,
    shown,
)
from benchmarks.cascade_data import FOLDER, SOURCES
from benchmarks.cascade_replay import LoadConfig
from benchmarks.cascade_study import Latencies, Study, latencies, material, ready, study
from benchmarks.results import Bar, exit_status, write
from flows import cascade_run, settings
from pliant.errors import InputError, PliantError, RegistryError
from pliant.progress import Progress
from registry.store import FolderStore

RESULTS = Path("benchmarks/results")
QUICK_TRAINED = ("massive",)  # where nothing has been trained yet: what a quick run has time for
SPLITS = 20
LOADED = ("default", "tabi", "single", "voting")

Found = tuple[list[Bar], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Setting:
    full: bool

    @property
    def texts(self) -> int:
        """Run one by one, a data set."""
        return 600 if self.full else 150


class Ground:
    """What several parts need, made once: data sets with their classifiers' outputs, and latencies of this run."""

    def __init__(self, setting: Setting, stage: Any) -> None:
        self.setting, self._stage = setting, stage
        self._studies: list[Study] | None = None
        self._latencies: Latencies | None = None

    def studies(self) -> list[Study]:
        if self._studies is None:
            store = FolderStore(settings.read().home / "bench")
            self._studies = [study(name, store, FOLDER, self._opened) for name in self._names(store)]
        return self._studies

    def latencies(self) -> Latencies:
        if self._latencies is None:
            with self._stage("latencies of every level") as progress:
                self._latencies = latencies(self.studies()[0].classifiers, progress)
        return self._latencies

    def _names(self, store: FolderStore) -> list[str]:
        if self.setting.full:
            return list(SOURCES)
        found = ready(list(SOURCES), store, FOLDER)
        if not found:
            told = f"Nothing is trained yet: the quick setting trains {' and '.join(QUICK_TRAINED)} alone, --full all."
            Console().print(told)
        return found or list(QUICK_TRAINED)

    def _opened(self, name: str) -> Progress:
        return _Bar(self._stage, name)


class _Bar:
    """A stage's progress whose context ends with its last step."""

    def __init__(self, stage: Any, name: str) -> None:
        self._stack = ExitStack()
        self._progress: Progress = self._stack.enter_context(stage(name))

    def __call__(self, done: int, total: int) -> None:
        self._progress(done, total)
        if done >= total:
            self._stack.close()


def bench(full: bool, parts: Sequence[str] = ()) -> int:
    """Measure the parts (none named: all), print, write; 1 if a bar falls short."""
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise InputError("part", unknown[0], f"one of {', '.join(PARTS)}")
    settings.prepare(settings.read())
    from flows.progress import stage

    ground = Ground(Setting(full), stage)
    bars: list[Bar] = []
    details: dict[str, Any] = {}
    for part in parts or PARTS:
        Console().rule(part)
        try:
            found, details[part] = PARTS[part](ground, stage)
        except PliantError as error:  # data or encoder are not there, say; what was measured is not lost
            if parts:
                raise
            details[part] = {"skipped": str(error)}
            Console().print(f"Skipped, so its bars are not measured: {error}")
            continue
        bars += found
    shown.bars(bars)
    name = "-".join(["cascade", *(p for p in PARTS if p in parts), *(["full"] if full else [])])
    Console().print(f"Written to {write(RESULTS, name, bars, details)}")
    return max(exit_status(bars), *("skipped" in one for one in details.values()))


def _contest(ground: Ground, stage: Any) -> Found:
    rounds = {}
    for one in ground.studies():
        with stage(f"{one.data.name}: {SPLITS} splits") as progress:
            rounds[one.data.name] = cascade_contest.contest(material(one, ground.latencies()), SPLITS, progress)
    shown.table("means over the splits", cascade_figures.HEADINGS, cascade_figures.rows(rounds))
    Console().print(cascade_figures.NOTE)
    shown.picture(cascade_figures.contest_figure(rounds), settings.read().home, "cascade")
    return cascade_figures.contest_bars(rounds), {name: [asdict(one) for one in each] for name, each in rounds.items()}


def _alone(ground: Ground, stage: Any) -> Found:
    found = {}
    for one in ground.studies():
        with stage(f"{one.data.name}: texts one by one") as progress:
            found[one.data.name] = cascade_alone.measure(one, ground.latencies(), ground.setting.texts, progress)
    shown.table("milliseconds a request, alone on one core", *cascade_figures.alone_table(found))
    return cascade_figures.alone_bars(found), {name: asdict(one) for name, one in found.items()}


def _importance(ground: Ground, stage: Any) -> Found:
    lengths = cascade_importance.LENGTHS if ground.setting.full else (32, 128, 512)
    with stage("attention importance") as progress:
        found = cascade_importance.measure(cascade_models.encoder(), (1, 6), lengths, progress)
    shown.table("attention importance, one text", *cascade_figures.importance_table(found))
    return [], {"costs": [asdict(one) for one in found]}


def _control(ground: Ground, stage: Any) -> Found:
    with stage("control logic") as progress:
        found = cascade_control.measure(ground.studies()[0], ground.latencies(), progress)
    shown.table("control logic of one request", ("part", "microseconds"), found.rows())
    return [found.bar()], asdict(found)


def _input(ground: Ground, stage: Any) -> Found:
    del ground
    _trained()
    with stage("bad input against a real endpoint") as progress:
        found = cascade_input.measure(progress)
    shown.table("bad input", cascade_input.HEADINGS, [one.row() for one in found])
    return [cascade_input.bar(found)], {"cases": [asdict(one) for one in found]}


def _load(ground: Ground, stage: Any) -> Found:
    _trained()
    found = {}
    for times in (0.9, 1.5):
        config = LoadConfig(share=times, seconds=20.0 if ground.setting.full else 6.0)
        with stage(f"over HTTP, {times:g} times what the large model bears") as progress:
            _, found[f"{times:g}"] = cascade_live.measure(LOADED, config, progress)
        title = f"the embedded corpus over HTTP, {times:g} times what the large model bears"
        shown.table(title, cascade_replay.HEADINGS, found[f"{times:g}"].rows())
    return [], {times: one.plain() for times, one in found.items()}


def _trained() -> None:
    """The flow runs first where the registry has no champion on the embedded corpus."""
    try:
        cascade_live.live_cascade()
    except RegistryError:
        cascade_run.run_flow(None, {})


PARTS: Mapping[str, Callable[[Ground, Any], Found]] = {
    "contest": _contest,
    "alone": _alone,
    "importance": _importance,
    "control": _control,
    "input": _input,
    "load": _load,
}
