"""Makes a service follow the registry's alias: it is polled, one poll at a time, and a new version is loaded and served.

A release is taken up as a whole. One that is broken is held: the former is served, and the outcome says so. Held, too, are
versions that do not fit together in a registry without releases (one model's alias has moved, another's has not yet), what
the devices or the settings do not allow, and whatever another registry offers that has taken the place of this one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

from typing_extensions import TypeVar

from pliant.errors import ArtifactError, InputError, PliantError, RegistryError, UnreachableError
from pliant.redaction import redact
from pliant.registry.names import system_of
from pliant.registry.releases import ReleaseView
from pliant.serving.driver import Driver
from pliant.serving.lifecycle.catalog import Artifacts, Catalog, Loaded, Registry, discard, released
from pliant.serving.lifecycle.generation import Generation, Generations, Running
from pliant.serving.loop.observe import DriftCounter
from pliant.serving.loop.trials import Trials
from pliant.serving.loop.watcher import Watcher

logger = logging.getLogger("pliant.serving")

C = TypeVar("C", bound=Catalog)
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)


REPLACED = (
    "another registry is at this address now than when the service started: what was loaded goes on being served; restart "
    "the service to take up what this registry holds"
)

Tell = Callable[[str, Mapping[str, Any]], None]

Extend = Callable[[Generation[C, H, D], C], Awaitable[Generation[C, H, D] | None]]
"""Gives the present generation with another catalog but the same workers; None if that needs new workers."""


class RefreshCounter(Protocol):
    """Counts polls by their outcome."""

    def refreshed(self, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one poll. `changed`: registered model -> version, of the versions that are now served."""

    outcome: str  # unchanged, changed, held (the new versions do not fit together yet) or failed
    message: str
    changed: Mapping[str, int]


Poll = Callable[[bool], Awaitable[Outcome]]
"""Polls once. The argument `retry_held` says whether versions that the last poll held are tried again."""


Bell = Callable[[], object]
"""Gives another value as soon as a poll is worth while, and costs next to nothing."""
LISTEN_SECONDS = 0.25  # between two looks at the bell


class Poller:
    """Polls every `seconds`, or as soon as the bell rings; 0: only when `poll` is called.

    No poll runs while somebody holds the lock `busy`.
    """

    def __init__(self, poll: Poll, seconds: float, metrics: RefreshCounter, bell: Bell | None = None) -> None:
        self._poll, self.seconds, self._metrics, self._bell = poll, seconds, metrics, bell
        self._heard = bell() if bell is not None else None
        self.busy = asyncio.Lock()
        self.last = Outcome("unchanged", "not polled yet", {})

    async def run(self) -> None:
        """Poll until cancelled. No exception ends it."""
        while self.seconds:
            if self._bell is None:
                await asyncio.sleep(self.seconds)
            else:
                loop = asyncio.get_running_loop()
                until = loop.time() + self.seconds
                while self._heard == (heard := self._bell()) and loop.time() < until:
                    await asyncio.sleep(min(LISTEN_SECONDS, self.seconds))
                self._heard = heard
            try:
                await self.poll(retry_held=False)
            except Exception as error:  # `last`, the metric and the log report it
                if not isinstance(error, PliantError):
                    logger.error("the poll of the registry failed", exc_info=error)

    async def poll(self, retry_held: bool = True) -> Outcome:
        """Poll once and return the outcome. Raises what the poll raises, after recording it."""
        async with self.busy:
            try:
                outcome = await self._poll(retry_held)
            except Exception as error:
                self.record(Outcome("failed", redact(str(error)), {}))
                raise
            self.record(outcome)
            return outcome

    def record(self, outcome: Outcome) -> None:
        """Count the outcome, and log it if it differs from the last one."""
        self._metrics.refreshed(outcome.outcome)
        if outcome != self.last and outcome.outcome != "unchanged":
            log = logger.info if outcome.outcome == "changed" else logger.warning
            log("refresh: %s: %s", outcome.outcome, outcome.message)
        self.last = outcome


def join_versions(moved: Mapping[str, int]) -> str:
    """Return models with their versions as part of a sentence."""
    return ", ".join(f"{name} version {version}" for name, version in sorted(moved.items()))


@dataclass(frozen=True, slots=True)
class Marks:
    """What a poll reads first, to see whether anything has changed.

    `identity`: of the registry; `release`: the number of the last one, if there is any; `pointers`: the versions to
    serve; `strays`: models whose own alias names another version than the release does; `signed`: when versions of the
    release were last signed by hand.
    """

    identity: str
    release: int | None
    pointers: Mapping[str, int]
    strays: tuple[str, ...] = ()
    signed: str = ""


@dataclass(frozen=True, slots=True)
class Source(Generic[C]):
    """Where a system's catalogs come from: the models of one prefix, under one alias."""

    registry: Registry
    alias: str
    prefix: str  # of the names of all its registered models
    load_catalog: Callable[[Artifacts, str, C | None], C]  # artifacts that the given catalog has are not fetched again

    def marks(self, running: C) -> Marks:
        """Return what tells whether anything has changed. Raises `RegistryError`."""
        identity, release = self.registry.identity(), released(self.registry, self.alias, self.prefix)
        strays: list[str] = []
        if release is not None:
            aliases = self.registry.aliases(self.prefix, self.alias)
            strays = [name for name, number in release.versions.items() if aliases.get(name) != number]
        number, signed = (release.number, release.signed) if release else (None, "")
        return Marks(identity, number, self.pointers(running), tuple(strays), signed)

    def pointers(self, running: C, registry: Artifacts | None = None) -> Mapping[str, int]:  # noqa: ARG002
        """Return the versions to serve, by registered model, as `registry` shows them. Raises `RegistryError`."""
        return (registry or self.registry).versions(self.prefix, self.alias)

    def load(self, running: C | None, oldest: int = 0) -> Loaded[C]:
        """Return the catalog of the last whole release under the alias. None before number `oldest` is gone back to.

        Raises `UnreachableError` where the registry does not answer, and what is wrong with the last release, a
        `RegistryError`, `ArtifactError` or `InputError`, where none is whole.
        """
        registry, first = self.registry, None
        release = released(registry, self.alias, self.prefix)
        if release is None:
            return Loaded(self.load_from(registry, running), None)
        while release is not None:
            try:
                catalog = self.load_from(ReleaseView(registry, release), running)
            except UnreachableError:
                raise
            except (ArtifactError, InputError, RegistryError) as error:
                first = first or error
                number = release.former  # of the release before this one, if it is still in the registry
                release = None if number is None or number < oldest else registry.release(release.system, number)
            else:
                fault = f"the last release is broken ({first}): release {release.number} is served" if first else ""
                return Loaded(catalog, release.number, fault, release.created)
        assert first is not None, "the loop ends with an error or an answer"
        raise first

    def load_from(self, registry: Artifacts, running: C | None) -> C:
        """Return the catalog that `registry`, which may be the view of one release, shows. Raises as `load`."""
        return self.load_catalog(registry, self.alias, running)


async def extend_never(present: object, target: object) -> None:
    """Extend no generation: every change needs the next one."""


class Refresher(Generic[C, H, D]):
    """Loads and serves what `source` points to, whenever `poller` polls."""

    def __init__(
        self,
        generations: Generations[C, H, D],
        source: Source[C],
        start: Callable[[C], Awaitable[Generation[C, H, D]]],
        seconds: float,
        metrics: RefreshCounter,
        extend: Extend[C, H, D] = extend_never,
        loaded: Loaded[C] | None = None,
        identity: str = "",
    ) -> None:
        """`start` starts the next generation. If it raises `PliantError`, nothing is left running.

        `loaded`: how the first generation's catalog was loaded; `identity`: of the registry that it came from.
        """
        self.generations, self._source, self._start, self._extend = generations, source, start, extend
        self._judged: tuple[Marks, Outcome] | None = None
        self._identity = identity
        self.release = loaded.release if loaded else None
        """The number of the release that is served; None in a registry without."""
        self.created = loaded.created if loaded else ""
        """When that release was written: what came before is known to it."""
        self.drift = DriftCounter()
        """What the watch is given to see."""
        self.watcher: Watcher | None = None
        self.tell: Tell = lambda _kind, _figures: None
        """Tells others what happened: a kind of event, and figures."""
        self.trials: Trials[C, H, D] | None = None
        """Tries challengers, where the service does that."""
        self.poller = Poller(self._poll, seconds, metrics, source.registry.bell(system_of(source.prefix) or ""))
        if loaded and loaded.fault:
            self.poller.record(Outcome("held", loaded.fault, {}))

    async def _poll(self, retry_held: bool) -> Outcome:
        """Poll once. Unless `retry_held`, held versions are not tried again before a pointer moves.

        Raises `RegistryError` and `WorkerError`.
        """
        running, source = self.generations.present.catalog, self._source
        marks = await asyncio.to_thread(source.marks, running)
        self._identity = self._identity or marks.identity
        if marks.identity and marks.identity != self._identity:  # equal numbers mean nothing in another registry
            return Outcome("held", REPLACED, {})
        served = marks.release == self.release and not marks.strays  # since the start
        at_start = replace(marks, pointers=running.pointers) if served else None
        seen, outcome = self._judged or (at_start, _unchanged())
        if marks == seen and (outcome.outcome == "unchanged" or not retry_held):
            return outcome
        try:
            outcome = await self._serve_target(running)
        except (ArtifactError, InputError, RegistryError) as error:
            unreachable = isinstance(error, UnreachableError)
            if unreachable or (marks.release is None and isinstance(error, RegistryError)):
                raise
            outcome = Outcome("held", f"the versions that {source.alias} points to are not served: {error}", {})
        if marks.strays:  # the log says once which models' own aliases are not followed
            listed = ", ".join(marks.strays[:3]) + (", ..." if len(marks.strays) > 3 else "")
            text = (
                f"the alias {source.alias} of {listed} differs from release {marks.release}, which is what counts: "
                f"to serve other versions, move the alias of the release"
            )
            if seen is None or seen.strays != marks.strays:
                logger.warning("refresh: %s", text)
            outcome = replace(outcome, message=f"{outcome.message}; {text}")
        self._judged = marks, _unchanged() if outcome.outcome == "changed" else outcome
        return outcome

    async def _serve_target(self, running: C) -> Outcome:
        source = self._source
        loaded = await asyncio.to_thread(source.load, running, self.release or 0)
        target = loaded.catalog
        if target.serves_as(running):
            self.release, self.created = loaded.release, loaded.created
            return Outcome("held", loaded.fault, {}) if loaded.fault else _unchanged()
        try:
            await self.serve(target)
        except BaseException:
            discard(source.registry, target, running)
            raise
        self.release, self.created = loaded.release, loaded.created
        moved = {name: v for name, v in target.pointers.items() if running.pointers.get(name) != v}
        message = f"now served: {join_versions(moved) or 'fewer tasks'}"
        return Outcome("changed", f"{message}; {loaded.fault}" if loaded.fault else message, moved)

    async def serve(self, target: C) -> None:
        """Serve `target` from now on: in the present generation if that can be extended, else in the next one.

        The caller holds `poller.busy`. Raises as `start` and `extend`; then everything is served as before.
        """
        loaded = self.generations.take_loaded(target.serves_as)
        if loaded is not None:
            discard(self._source.registry, target, loaded.catalog)
            self.generations.promote(loaded)
            return
        extended = await self._extend(self.generations.present, target)
        if extended is not None:
            self.generations.amend(extended)
            return
        dropped = self.generations.drop_standby()
        if dropped is not None:  # or three generations would need memory
            await dropped
        self.generations.promote(await self._start(target))


def _unchanged() -> Outcome:
    return Outcome("unchanged", "the service serves what the alias points to", {})
