"""A system as its service knows it: one value that says what is particular to it. What all have is written here, once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic

from prometheus_client import REGISTRY, CollectorRegistry
from typing_extensions import TypeVar  # with defaults, which the standard library has from 3.13 on

from pliant.registry.names import prefix
from pliant.serving.driver import Clock, Driver, loop_clock
from pliant.serving.lifecycle.catalog import Artifacts, Catalog, Registry, open_registry
from pliant.serving.lifecycle.endpoint import Assembly, Blueprint, Make, assemble, generation_maker
from pliant.serving.lifecycle.generation import Generation, Running
from pliant.serving.lifecycle.refresh import Refresher, Source
from pliant.serving.loop.outcomes import Names, Outcomes, open_outcomes
from pliant.serving.loop.watcher import WatchMetrics
from pliant.serving.metrics import Metrics
from pliant.serving.settings import OutcomeSettings, Settings
from pliant.serving.workers.devices import Profiled, SameDevice, devices
from pliant.serving.workers.worker import ProcessWorker

S = TypeVar("S", bound=Settings)
C = TypeVar("C", bound=Catalog)
H = TypeVar("H")
E = TypeVar("E")
D = TypeVar("D", bound=Running, default=Driver)


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
        """Return what makes generations."""
        make: Any = generation_maker(self.settings, clock, metrics, workers, self.blueprint)
        return make  # type: ignore[no-any-return]  # another driver comes with a maker of its own

    async def assemble(
        self,
        registry: Registry | None = None,
        workers: Callable[[Any], Any] | None = None,
        counted: CollectorRegistry = REGISTRY,
    ) -> Assembly[E, C, H, D]:
        """Return a running service, whose models have run. Raises `PliantError`; then nothing is left running."""
        clock, metrics, source = self.new_clock(), self.new_metrics(counted), self.source(registry)
        workers, close_pool = (workers, None) if workers else self.open_pool()
        labels = None
        if self.labels is not None:
            assert isinstance(self.settings, OutcomeSettings), "a system that takes labels has their settings"
            labels = open_outcomes(self.settings, counted, self.labels)

        def close() -> None:
            if close_pool is not None:
                close_pool()
            if labels is not None:
                labels.close()

        assembled = await assemble(
            source,
            self.maker(clock, metrics, workers),
            SameDevice(self.profiled, self.settings.any_profile),
            lambda refresher: self.endpoint(Dependencies(refresher, metrics, clock, counted, labels)),
            self.settings,
            metrics,
            clock,
            self.extend,
            close,
            WatchMetrics(counted),
        )
        background = map(asyncio.create_task, self.background(assembled.endpoint))
        return replace(assembled, polling=(*assembled.polling, *background))


def check_devices(settings: Settings, catalog: Profiled) -> None:
    """Raise `DeviceError` for a device of another class than the catalog was profiled on."""
    if settings.any_profile:
        return
    from pliant.serving.workers.on_device import check_device

    for device in devices(settings):
        check_device(catalog.device, device, settings.threads)
