"""Assembles a service: loads a catalog from the registry, starts its first generation, and polls for the next.

What is particular to a system is a `ServedSystem` (system.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar

from pliant.fallbacks import Fallback
from pliant.protocol import JournalEntry, Scheduler
from pliant.registry.names import system_of
from pliant.registry.releases import RegistryRelease, ReleaseView
from pliant.serving.clock import Clock
from pliant.serving.driver import Driver, Limits, Read, Record
from pliant.serving.events import ALARM, CHAMPION, PROMISE_BROKEN, ROLLBACK, Event, EventOutbox, server_of
from pliant.serving.journal import FileRecorder
from pliant.serving.lifecycle.artifacts import register_webhook
from pliant.serving.lifecycle.catalog import Catalog, discard
from pliant.serving.lifecycle.generation import Generation, Generations, Running, numbered_journal
from pliant.serving.lifecycle.poller import RefreshCounter
from pliant.serving.lifecycle.refresh import Extend, Refresher, Source, Tell, extend_never
from pliant.serving.loop.record import rollout_config, trial_record
from pliant.serving.loop.trials import TrialParts, Trials
from pliant.serving.loop.watcher import Watcher, WatcherParts, WatchMetrics
from pliant.serving.metrics import Metrics, StateMetrics
from pliant.serving.settings import Settings
from pliant.serving.state_file import StateFile
from pliant.serving.workers.device_process import Build
from pliant.serving.workers.devices import SameDevice
from pliant.serving.workers.worker import Worker

C = TypeVar("C", bound=Catalog)
E = TypeVar("E")
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)

WorkerFactory = Callable[[Build], Worker]
"""Makes a worker for a build plan; the worker is not started."""

EVENTS: Mapping[str, str] = {
    "alarm": ALARM,
    "champion": CHAMPION,
    "promise": PROMISE_BROKEN,
    "rollback": ROLLBACK,
}

Make = Callable[[int, C], Generation[C, H, D]]
"""Makes the generation with a number and a catalog; it is not started. Raises `PliantError`."""


@dataclass(frozen=True, slots=True)
class Assembly(Generic[E, C, H, D]):
    """A running service that follows the registry."""

    endpoint: E
    refresher: Refresher[C, H, D]
    polling: tuple[asyncio.Task[None], ...]  # poll the registry, and follow a trial
    close: Callable[[], None]  # releases what the workers need, such as a connection to Ray

    @property
    def generations(self) -> Generations[C, H, D]:
        return self.refresher.generations

    async def stop(self) -> None:
        """Answer all pending requests, then end the device processes."""
        for task in self.polling:
            task.cancel()
        await asyncio.gather(*self.polling, return_exceptions=True)
        if self.refresher.trials is not None:
            await self.refresher.trials.stop()
        if self.refresher.watcher is not None:
            self.refresher.watcher.save()
        await self.generations.stop()
        self.close()


async def assemble(
    source: Source[C],
    make: Make[C, H, D],
    same_device: SameDevice,
    endpoint: Callable[[Refresher[C, H, D]], E],
    settings: Settings,
    metrics: RefreshCounter,
    clock: Clock,
    extend: Extend[C, H, D] = extend_never,
    close: Callable[[], None] = lambda: None,
    watched: WatchMetrics | None = None,
) -> Assembly[E, C, H, D]:
    """Start the versions that the alias points to, and poll it every `settings.refresh_seconds` from then on.

    `watched`: where the watch shows its figures; None: nothing is watched. Raises `PliantError`; then nothing is left
    running, and `close` has been called.
    """
    builder = Builder(make, same_device)
    try:
        identity, loaded = source.registry.identity(), source.load(None)
        register_webhook(source.registry, settings)
        first = await builder.start(loaded.catalog)
    except BaseException:
        close()
        raise

    def drained(former: Generation[C, H, D]) -> None:
        discard(source.registry, former.catalog, *(generation.catalog for generation in generations.loaded))

    generations = Generations(first, drained, settings.standby_seconds)
    seconds = settings.refresh_seconds
    refresher = Refresher(generations, source, builder.start, seconds, metrics, extend, loaded, identity)
    system = system_of(source.prefix) or "service"
    outbox = EventOutbox(settings.home, system, server_of(os.environ))
    state = watched.state if watched is not None else None
    refresher.tell = tell = partial(_tell, outbox, state, system)
    refresher.trials = make_trials(refresher, source, builder, settings, clock, tell)
    tasks = [refresher.poller.run(), outbox.run()]
    if refresher.trials is not None:
        tasks.append(refresher.trials.run(seconds))
    if state is not None:
        tasks.append(state.follow(lambda: generations.present.driver.ready, lambda: outbox.waiting))
    if watched is not None and settings.watch_seconds:
        refresher.watcher = make_watcher(refresher, source, settings, watched, tell)
        tasks.append(refresher.watcher.run(settings.watch_seconds))
    else:
        refresher.drift.counting = False
    return Assembly(endpoint(refresher), refresher, tuple(map(asyncio.create_task, tasks)), close)


def _tell(outbox: EventOutbox, state: StateMetrics | None, system: str, kind: str, figures: Mapping[str, Any]) -> None:
    """Send an event of a kind that trials and the watch know of; the states of a trial are for the registry alone."""
    if kind in EVENTS:
        outbox.emit(Event(EVENTS[kind], system, figures))
        if state is not None:
            state.emitted(EVENTS[kind])


def make_watcher(
    refresher: Refresher[C, H, D], source: Source[C], settings: Settings, watched: WatchMetrics, event: Tell
) -> Watcher:
    """Return what watches a service."""
    system = system_of(source.prefix) or ""
    file = StateFile(settings.home / "watch" / f"{system}.json")
    return Watcher(WatcherParts(system, refresher.drift, file, lambda: refresher.release, watched, event))


def make_trials(
    refresher: Refresher[C, H, D],
    source: Source[C],
    builder: Builder[C, H, D],
    settings: Settings,
    clock: Clock,
    event: Tell,
) -> Trials[C, H, D] | None:
    """Return the trials of a service: they start generations as the refresher does, from releases that are not served.

    None where nothing is tried. Raises `InputError` for settings that do not fit together.
    """
    system, generations = system_of(source.prefix) or "", refresher.generations
    config, record = rollout_config(settings), trial_record(source.registry, system)
    if config is None or record is None or not settings.refresh_seconds:
        return None

    def load(release: RegistryRelease) -> C:
        return source.load_from(ReleaseView(source.registry, release), generations.present.catalog)

    parts = TrialParts(
        record=record,
        generations=generations,
        load=load,
        start=builder.start,
        refresh=refresher.poller.poll,
        clock=clock,
        config=config,
        file=StateFile(settings.home / "trials" / f"{system}.json"),
        event=event,
        copy_time=settings.trial_copy_time,
    )
    return Trials(parts)


class Builder(Generic[C, H, D]):
    """Starts generations and numbers them."""

    def __init__(self, make: Make[C, H, D], same_device: SameDevice) -> None:
        self._make, self._same_device, self._number = make, same_device, 0

    async def start(self, catalog: C) -> Generation[C, H, D]:
        """Return the next generation, started.

        Raises `DeviceError` for another class of device than the first one's, and as `make` and `Generation.start`.
        """
        self._same_device.check(catalog)
        generation = self._make(self._number + 1, catalog)
        self._number = generation.number
        await generation.start()
        return generation


@dataclass(frozen=True, slots=True)
class Blueprint(Generic[H]):
    """What a generation with a scheduler is made of, for one catalog."""

    make_scheduler: Callable[[], Scheduler]  # a fresh one at each call
    handlers: Mapping[str, H]  # by task
    builds: Sequence[Build]  # one for each worker
    setting_name: Callable[[int], str] = str  # the label of a launch's setting in metrics
    read: Read = lambda _pending, result: result
    ahead: bool = False  # whether the scheduler gives a worker its next batch while one runs
    facts: Mapping[str, Any] | None = None  # the scheduler's first event, so that the journal is complete
    limited: bool = False  # whether the scheduler takes `Limited`: its settings are what its runtimes name in fallbacks


def generation_maker(
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    worker_factory: WorkerFactory,
    blueprint: Callable[[C], Blueprint[H]],
) -> Make[C, H, Driver]:
    """Return a function that makes generations in which a `Driver` runs a scheduler."""

    def make(number: int, catalog: C) -> Generation[C, H, Driver]:
        plan = blueprint(catalog)
        workers = [worker_factory(build) for build in plan.builds]
        recorder = FileRecorder(numbered_journal(settings.journal, number)) if settings.journal else None
        record = journal_recorder(metrics, lambda: _waiting(driver.scheduler), recorder, plan.setting_name)
        limits = Limits(launch=settings.launch_limit, ahead=plan.ahead)
        fresh = plan.make_scheduler
        spares = [worker_factory(build) for build in spare_builds(plan.builds, settings.spare)]

        def fell_back(fallback: Fallback) -> None:
            metrics.fell_back(fallback)
            if plan.limited and fallback.batch:
                driver.limit(fallback.setting, fallback.batch)

        for worker in (*workers, *spares):
            worker.on_fallback = fell_back
        driver = Driver(
            fresh(), workers, record, clock, limits, metrics.died_idle, plan.read, plan.facts, fresh, spares
        )
        return Generation(number, catalog, plan.handlers, driver, recorder)

    return make


def _waiting(scheduler: Any) -> int:
    """Return how many requests wait for a launch, which every system's scheduler knows."""
    return int(scheduler.waiting)


def spare_builds(builds: Sequence[Build], count: int) -> list[Build]:
    """Return the builds of `count` spare workers: those of the workers in turn, each different one once a turn."""
    different: list[Build] = []
    for build in builds:
        if build not in different:
            different.append(build)
    return [different[number % len(different)] for number in range(count)]


def journal_recorder(
    metrics: Metrics, waiting: Callable[[], int], recorder: FileRecorder | None, setting_name: Callable[[int], str]
) -> Record:
    """Return a function that passes each journal entry to the metrics and to the file."""

    def record(entry: JournalEntry) -> None:
        metrics.observe(entry, setting_name)
        metrics.waiting(waiting())
        if recorder is not None:
            recorder(entry)

    return record
