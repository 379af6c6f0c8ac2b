"""A system as its service knows it: one value that says what is particular to it. What all have is written here, once.

A service is assembled so: a catalog is loaded from the registry, its first generation is started, and the registry is
polled for the next.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from prometheus_client import REGISTRY, CollectorRegistry
from typing_extensions import TypeVar  # with defaults, which the standard library has from 3.13 on

from pliant.fallbacks import Fallback
from pliant.protocol import JournalEntry, Scheduler
from pliant.registry import webhooks
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import prefix
from pliant.registry.releases import ReleaseView
from pliant.serving.driver import Clock, Driver, Limits, Read, loop_clock
from pliant.serving.events import ALARM, CHAMPION, PROMISE_BROKEN, ROLLBACK, TRIAL, Event, EventOutbox, server_of
from pliant.serving.journal import FileRecorder
from pliant.serving.lifecycle.catalog import Artifacts, Catalog, Registry, discard, open_registry
from pliant.serving.lifecycle.generation import Generation, Generations, Running, numbered_journal
from pliant.serving.lifecycle.refresh import Refresher, Source
from pliant.serving.loop.outcomes import Names, Outcomes, open_outcomes
from pliant.serving.loop.trials import TrialParts, TrialRecord, Trials, rollout_config
from pliant.serving.loop.watcher import Watcher, WatcherParts, WatchMetrics
from pliant.serving.metrics import Metrics
from pliant.serving.settings import OutcomeSettings, Settings
from pliant.serving.state_file import StateFile
from pliant.serving.workers.device_process import Build
from pliant.serving.workers.devices import Profiled, SameDevice, devices
from pliant.serving.workers.worker import ProcessWorker, Worker

S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound=Catalog)
H = TypeVar("H")
E = TypeVar("E")
D = TypeVar("D", bound=Running, default=Driver)


WorkerFactory = Callable[[Build], Worker]
"""Makes a worker for a build plan; the worker is not started."""

EVENTS: Mapping[str, str] = {
    "alarm": ALARM,
    "champion": CHAMPION,
    "promise": PROMISE_BROKEN,
    "rollback": ROLLBACK,
    "trial": TRIAL,
}
"""What is told of trials and by the watch, and the event that it becomes."""

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


@dataclass(frozen=True, slots=True)
class Dependencies(Generic[C, H, D]):
    """What an endpoint is made of. `labels`: where labels of answers go, in a system that takes them."""

    refresher: Refresher[C, H, D]
    metrics: Any
    clock: Clock
    counted: CollectorRegistry
    labels: Outcomes | None

    @property
    def outcomes(self) -> Outcomes:
        assert self.labels is not None, "the system says how its labels are counted"
        return self.labels


class ServedSystem(ABC, Generic[S, C, H, E, D]):
    """A subclass a system (`SERVED` of serving/SYSTEM/assembly.py), a value a service.

    `S` are its settings, `C` its catalog, `H` its handler of one task, `E` its endpoint, `D` its driver.

    `profiled`: what its profiles are of, in sentences; `setting`: what metrics call the setting of a launch; `origins`:
    labels of the metric pliant_answers; `labels`: what labels of answers are counted by; None: it takes none.
    """

    profiled: ClassVar[str] = "tasks"
    setting: ClassVar[str]
    origins: ClassVar[tuple[str, ...]]
    labels: ClassVar[Names | None] = None

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @abstractmethod
    def load(self, registry: Artifacts, alias: str, running: C | None) -> C:
        """Return what `alias` points to. Artifacts that `running` has are not fetched again.

        Raises `RegistryError` for what is missing, `ArtifactError` and `InputError` for what cannot be used or does not fit
        together.
        """

    def blueprint(self, catalog: C) -> Blueprint[H]:
        """Return what a generation of this catalog needs, unless `maker` does without. Raises `PliantError`."""
        raise NotImplementedError

    @abstractmethod
    def endpoint(self, parts: Dependencies[C, H, D]) -> E:
        """Return what answers requests."""

    def source(self, registry: Registry | None = None) -> Source[C]:
        """Return where the catalogs come from: `registry`, or the one that the settings name."""
        settings = self.settings
        return Source(registry or open_registry(settings), settings.alias, prefix(settings.system), self.load)

    def check(self) -> None:
        """Check settings, artifacts and devices before the service starts. Raises `PliantError`."""
        self.check_catalog(self.source().load(None).catalog)

    def check_catalog(self, catalog: C) -> None:
        """Check that this machine can serve the catalog. Raises `PliantError`."""
        self.blueprint(catalog).make_scheduler()
        check_devices(self.settings, catalog)

    async def extend(self, present: Generation[C, H, D], target: C) -> Generation[C, H, D] | None:  # noqa: ARG002
        """Return the present generation with another catalog but the same workers; None: a change needs the next one."""
        return None

    def background(self, endpoint: E) -> Sequence[Coroutine[Any, Any, None]]:  # noqa: ARG002
        """Return what runs for as long as the service does."""
        return ()

    def open_pool(self) -> tuple[Callable[[Any], Any], Callable[[], None]]:
        """Return a function that makes workers, and one that closes their pool. Raises `WorkerError`."""
        return ProcessWorker, lambda: None

    def new_clock(self) -> Clock:
        """Return the clock that deadlines are on."""
        return loop_clock()

    def new_metrics(self, counted: CollectorRegistry) -> Any:
        return Metrics(self.setting, self.origins, counted)

    def maker(self, clock: Clock, metrics: Any, workers: Any) -> Make[C, H, D]:
        """Return a function that makes generations, in which a `Driver` runs a scheduler."""
        settings = self.settings

        def make(number: int, catalog: C) -> Any:  # another driver comes with a maker of its own
            plan = self.blueprint(catalog)
            recorder = FileRecorder(numbered_journal(settings.journal, number)) if settings.journal else None

            def record(entry: JournalEntry) -> None:
                scheduler: Any = driver.scheduler  # each knows how many requests wait for a launch
                metrics.observe(entry, plan.setting_name)
                metrics.waiting(int(scheduler.waiting))
                if recorder is not None:
                    recorder(entry)

            def fell_back(fallback: Fallback) -> None:
                metrics.fell_back(fallback)
                if plan.limited and fallback.batch:
                    driver.limit(fallback.setting, fallback.batch)

            different = [build for at, build in enumerate(plan.builds) if build not in plan.builds[:at]]
            serving = [workers(build) for build in plan.builds]
            spares = [workers(different[at % len(different)]) for at in range(settings.spare)]
            for worker in (*serving, *spares):
                worker.on_fallback = fell_back
            fresh, limits = plan.make_scheduler, Limits(launch=settings.launch_limit, ahead=plan.ahead)
            driver = Driver(
                fresh(), serving, record, clock, limits, metrics.died_idle, plan.read, plan.facts, fresh, spares
            )
            return Generation(number, catalog, plan.handlers, driver, recorder)

        return make

    async def assemble(
        self,
        registry: Registry | None = None,
        workers: Callable[[Any], Any] | None = None,
        counted: CollectorRegistry = REGISTRY,
    ) -> Assembly[E, C, H, D]:
        """Start the versions that the alias points to, and poll it every `refresh_seconds` from then on.

        Raises `PliantError`; then nothing is left running, and what the workers needed is closed.
        """
        settings, clock, metrics, source = (
            self.settings,
            self.new_clock(),
            self.new_metrics(counted),
            self.source(registry),
        )
        workers, close_pool = (workers, None) if workers else self.open_pool()
        same_device, labels, count = SameDevice(self.profiled, settings.any_profile), None, 0
        if self.labels is not None:
            assert isinstance(settings, OutcomeSettings), "a system that takes labels has their settings"
            labels = open_outcomes(settings, counted, self.labels)
        make = self.maker(clock, metrics, workers)

        async def start(catalog: C) -> Generation[C, H, D]:
            """Return the next generation, started. Raises `DeviceError` for another class of device than the first one's."""
            nonlocal count
            same_device.check(catalog)
            generation = make(count + 1, catalog)
            count = generation.number
            await generation.start()
            return generation

        def close() -> None:
            if close_pool is not None:
                close_pool()
            if labels is not None:
                labels.close()

        def drained(former: Generation[C, H, D]) -> None:
            discard(source.registry, former.catalog, *(generation.catalog for generation in generations.loaded))

        try:
            identity, loaded = source.registry.identity(), source.load(None)
            if settings.webhook_url and isinstance(source.registry, MlflowRegistry):
                webhooks.register(source.registry, settings.system, settings.webhook_url, settings.webhook_secret)
            first = await start(loaded.catalog)
        except BaseException:
            close()
            raise
        generations = Generations(first, drained, settings.standby_seconds)
        seconds = settings.refresh_seconds
        refresher = Refresher(generations, source, start, seconds, metrics, self.extend, loaded, identity)
        tasks = [refresher.poller.run(), *self._observing(refresher, source, start, clock, WatchMetrics(counted))]
        endpoint = self.endpoint(Dependencies(refresher, metrics, clock, counted, labels))
        tasks += self.background(endpoint)
        return Assembly(endpoint, refresher, tuple(map(asyncio.create_task, tasks)), close)

    def _observing(
        self,
        refresher: Refresher[C, H, D],
        source: Source[C],
        start: Callable[[C], Awaitable[Generation[C, H, D]]],
        clock: Clock,
        watched: WatchMetrics,
    ) -> Iterator[Coroutine[Any, Any, None]]:
        """Give the refresher its trials and its watch, as the settings say, and yield what runs for them and for events."""
        settings, generations = self.settings, refresher.generations
        outbox = EventOutbox(settings.home, settings.system, server_of(os.environ))

        def tell(kind: str, figures: Mapping[str, Any]) -> None:
            """Send an event of a kind that others are told of."""
            if kind in EVENTS:
                outbox.emit(Event(EVENTS[kind], settings.system, figures))
                watched.state.emitted(EVENTS[kind])

        refresher.tell = tell
        yield outbox.run()
        config = rollout_config(settings)
        if config is not None and isinstance(source.registry, MlflowRegistry) and settings.refresh_seconds:
            refresher.trials = Trials(
                TrialParts(
                    record=TrialRecord(source.registry, settings.system),
                    generations=generations,
                    load=lambda release: source.load_from(
                        ReleaseView(source.registry, release), generations.present.catalog
                    ),
                    start=start,
                    refresh=refresher.poller.poll,
                    clock=clock,
                    config=config,
                    file=StateFile(settings.home / "trials" / f"{settings.system}.json"),
                    event=tell,
                    copy_time=settings.trial_copy_time,
                )
            )
            yield refresher.trials.run(settings.refresh_seconds)
        yield watched.state.follow(
            lambda: generations.present.driver.ready, lambda: generations.present.driver.devices, lambda: outbox.waiting
        )
        refresher.drift.counting = bool(settings.watch_seconds)
        if settings.watch_seconds:
            file = StateFile(settings.home / "watch" / f"{settings.system}.json")
            served = lambda: (refresher.release, refresher.created)  # noqa: E731
            parts = WatcherParts(settings.system, refresher.drift, file, served, watched, tell)
            refresher.watcher = Watcher(parts)
            yield refresher.watcher.run(settings.watch_seconds)


def check_devices(settings: Settings, catalog: Profiled) -> None:
    """Raise `DeviceError` for a device of another class than the catalog was profiled on."""
    if settings.any_profile:
        return
    from pliant.serving.workers.on_device import check_device

    for device in devices(settings):
        check_device(catalog.device, device, settings.threads)
