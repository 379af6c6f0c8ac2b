"""`pliant bench cascade`: every target of the cascade system, measured, printed and written as JSON.

Parts can be asked for by name; without names the quick setting leaves out what this machine has no time for. A part that
needs a champion trains one where there is none, in the quick setting of the demo's sizes. Knows in which order parts run
and what each is given; measures nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import bad_input, console, minilm
from benchmarks.budget import begin
from benchmarks.cascade import alone, contest, control, figures, importance, live, replay
from benchmarks.cascade import input as cascade_input
from benchmarks.cascade.data import FOLDER, SOURCES
from benchmarks.cascade.demo import OVERRIDES
from benchmarks.cascade.replay import LoadConfig
from benchmarks.cascade.study import Latencies, Study, latencies, material, ready, study
from benchmarks.results import Target, write
from flows import settings
from flows.cascade import run
from pliant.errors import InputError, PliantError, RegistryError
from pliant.progress import Progress
from registry.store import FolderStore

RESULTS = Path("benchmarks/results")
QUICK_TRAINED = ("massive",)  # where nothing has been trained yet: what a quick run has time for
SPLITS = 20
LOADED = ("default", "tabi", "single", "voting")

Found = tuple[list[Target], dict[str, Any]]


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
            self._studies = [study(name, store, FOLDER, self._opened) for name in self._names()]
        return self._studies

    def latencies(self) -> Latencies:
        if self._latencies is None:
            with self._stage("latencies of every level") as progress:
                self._latencies = latencies(self.studies()[0].classifiers, progress)
        return self._latencies

    def ready(self) -> list[str]:
        """The data sets whose classifiers are trained already."""
        return ready(list(SOURCES), FolderStore(settings.read().home / "bench"), FOLDER)

    def _names(self) -> list[str]:
        if self.setting.full:
            return list(SOURCES)
        found = self.ready()
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

    ground, budget = Ground(Setting(full), stage), begin("cascade", full, parts)
    targets: list[Target] = []
    details: dict[str, Any] = {}
    for part in parts or PARTS:
        Console().rule(part)
        try:
            if not budget.allows(part, *_seconds(part, ground)):
                continue
            found, details[part] = PARTS[part](ground, stage)
        except PliantError as error:  # data or encoder are not there, say; what was measured is not lost
            if parts:
                raise
            details[part] = {"skipped": str(error)}
            budget.leave_out(part, str(error))
            continue
        targets += found
    console.targets(targets)
    details["left out"] = budget.left_out
    name = "-".join(["cascade", *(p for p in PARTS if p in parts), *(["full"] if full else [])])
    Console().print(f"Written to {write(RESULTS, name, targets, details)}")
    return budget.status(targets)


SECONDS = {"contest": 120.0, "alone": 60.0, "importance": 45.0, "control": 30.0, "input": 10.0, "load": 95.0}
"""Of the quick setting on the machine of the slow setting, where everything is trained."""
STUDY, CHAMPION = (
    1000.0,
    60.0,
)  # seconds there: to train the quick setting's data set, and a champion of the demo's sizes


def _seconds(part: str, ground: Ground) -> tuple[float, float]:
    """Seconds of a part on the machine of the slow setting, and of what is trained for it first."""
    if part in ("contest", "alone", "control"):
        return SECONDS[part], 0.0 if ground.ready() else STUDY
    if part in ("input", "load"):
        return SECONDS[part], 0.0 if _has_champion() else CHAMPION
    return SECONDS[part], 0.0


def _contest(ground: Ground, stage: Any) -> Found:
    rounds = {}
    for one in ground.studies():
        with stage(f"{one.data.name}: {SPLITS} splits") as progress:
            rounds[one.data.name] = contest.contest(material(one, ground.latencies()), SPLITS, progress)
    console.table("means over the splits", figures.HEADINGS, figures.rows(rounds))
    Console().print(figures.NOTE)
    console.picture(figures.contest_figure(rounds), settings.read().home, "cascade")
    return figures.contest_targets(rounds), {name: contest.plain(each) for name, each in rounds.items()}


def _alone(ground: Ground, stage: Any) -> Found:
    found = {}
    for one in ground.studies():
        with stage(f"{one.data.name}: texts one by one") as progress:
            found[one.data.name] = alone.measure(one, ground.latencies(), ground.setting.texts, progress)
    console.table("milliseconds a request, alone on one core", *figures.alone_table(found))
    return figures.alone_bars(found), {name: asdict(one) for name, one in found.items()}


def _importance(ground: Ground, stage: Any) -> Found:
    lengths = importance.LENGTHS if ground.setting.full else (32, 128, 512)
    with stage("attention importance") as progress:
        found = importance.measure(minilm.folder(), (1, 6), lengths, progress)
    console.table("attention importance, one text", *figures.importance_table(found))
    return [], {"costs": [asdict(one) for one in found]}


def _control(ground: Ground, stage: Any) -> Found:
    with stage("control logic") as progress:
        found = control.measure(ground.studies()[0], ground.latencies(), progress)
    console.table("control logic of one request", ("part", "microseconds"), found.rows())
    return [found.bar()], asdict(found)


def _input(ground: Ground, stage: Any) -> Found:
    _train(ground.setting)
    with stage("bad input against a real endpoint") as progress:
        found = cascade_input.measure(progress)
    console.table("bad input", bad_input.HEADINGS, [one.row() for one in found])
    return [bad_input.bar(found)], {"cases": [asdict(one) for one in found]}


def _load(ground: Ground, stage: Any) -> Found:
    _train(ground.setting)
    found = {}
    for times in (0.9, 1.5):
        config = LoadConfig(share=times, seconds=20.0 if ground.setting.full else 6.0)
        with stage(f"over HTTP, {times:g} times what the large model bears") as progress:
            _, found[f"{times:g}"] = live.measure(LOADED, config, progress)
        title = f"the embedded corpus over HTTP, {times:g} times what the large model bears"
        console.table(title, replay.HEADINGS, found[f"{times:g}"].rows())
    return [], {times: one.plain() for times, one in found.items()}


def _train(setting: Setting) -> None:
    """The flow runs first where the registry has no champion on the embedded corpus."""
    if not _has_champion():
        which = "the flow's" if setting.full else "the demo's"
        Console().print(f"There is no champion yet: one of {which} sizes is trained first.")
        run.run_flow(None, {} if setting.full else OVERRIDES)


def _has_champion() -> bool:
    try:
        live.live_cascade()
    except RegistryError:
        return False
    return True


PARTS: Mapping[str, Callable[[Ground, Any], Found]] = {
    "contest": _contest,
    "alone": _alone,
    "importance": _importance,
    "control": _control,
    "input": _input,
    "load": _load,
}
