"""Starts, follows and ends the trials of a service: one challenger at a time, from the registry and back to it.

A challenger waits in the registry until a service finds it there, on top of the release that it serves. Its models start
with the lowest priority that the operating system has, since copies must not slow the champion; as a canary they start
anew with the usual one. What the controller knows is kept in a file, so that a restarted service goes on where it was. Where
the registry does not answer, a decision holds in this service at once and is written down as soon as it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from typing_extensions import TypeVar as DefaultedTypeVar

from pliant.errors import InputError, PliantError
from pliant.registry import decisions, mlflow_switch
from pliant.registry.mlflow_store import CHALLENGER, MlflowRegistry
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout, restored
from pliant.rollout.events import Action, Ask, Broken, Cancelled, Note, Promote, SetShare, TakeBack, Tick
from pliant.serving.driver import Clock, Driver
from pliant.serving.lifecycle.generation import Generation, Generations, Running
from pliant.serving.loop.trial import Trial
from pliant.serving.settings import Settings
from pliant.serving.state_file import StateFile
from pliant.serving.workers.child_process import lowest_priority

logger = logging.getLogger("pliant.serving")

C = TypeVar("C")
H = TypeVar("H")
D = DefaultedTypeVar("D", bound=Running, default=Driver)

TICK_SECONDS = 1.0
SAVE_SECONDS = 5.0
UNKNOWN = "the process that ended its trial was itself ended before it could write why"
SUPERSEDED = "another release is served or tried by now"
ELSEWHERE = "another service, or somebody by hand, promoted it while it was tried here"
Event = Callable[[str, Mapping[str, Any]], None]
"""Tells others what happened: a kind (trial, champion, rollback), and figures."""


def rollout_config(settings: Settings) -> RolloutConfig | None:
    """Return how challengers are tried; None where they are not. Raises `InputError`."""
    if not settings.try_challengers:
        return None
    try:
        steps = tuple(float(share) for share in settings.trial_steps.split(","))
    except ValueError:
        limit = "shares of the requests, separated by commas"
        raise InputError("PLIANT_TRIAL_STEPS", repr(settings.trial_steps), limit) from None
    return RolloutConfig(
        shadow_share=settings.trial_copied,
        shadow_requests=settings.trial_copies,
        steps=steps,
        step_requests=settings.trial_requests,
        step_seconds=settings.trial_seconds,
        max_seconds=3600 * settings.trial_hours,
    )


class TrialRecord:
    """The releases of one system that are tried, in MLflow, for people and for other services to see.

    Every method raises `RegistryError`.
    """

    def __init__(self, registry: MlflowRegistry, system: str) -> None:
        self._registry, self._system = registry, system

    def challenger(self) -> RegistryRelease | None:
        """Return the release that waits to be tried or is being tried."""
        release = self._registry.release(self._system, CHALLENGER)
        present = self._registry.release(self._system)
        if release is None or present is None or release.former != present.number:
            return None
        return release if release.state in (mlflow_switch.WAITING, *mlflow_switch.TRIALS) else None

    def champion(self) -> RegistryRelease | None:
        """Return the release that is served."""
        return self._registry.release(self._system)

    def unfinished(self) -> list[RegistryRelease]:
        """Return the releases that are still marked as tried though their trial is over."""
        return mlflow_switch.unfinished(self._registry, self._system)

    def mark(self, release: RegistryRelease, state: str, reason: str) -> None:
        """Write down the state of a release, and why; `shadow` and `canary` are aliases, too."""
        decisions.write(self._registry, state, release, reason, self._registry.release(self._system))
        mlflow_switch.label(self._registry, release, state if state in mlflow_switch.TRIALS else None)
        mlflow_switch.note(self._registry, release, state, reason)

    def promote(self, release: RegistryRelease, reason: str) -> None:
        """Make the release the champion; if it is already, write only what is missing."""
        present = self._registry.release(self._system)
        if present is None or present.number != release.number:
            mlflow_switch.switch(self._registry, self._system, release.number, reason)
        else:
            mlflow_switch.finish(self._registry, self._system, reason)


@dataclass(frozen=True, slots=True)
class TrialParts(Generic[C, H, D]):
    """What trials need of a service. `load` gives the catalog of a release, `start` a started generation of it."""

    record: TrialRecord
    generations: Generations[C, H, D]
    load: Callable[[RegistryRelease], C]
    start: Callable[[C], Awaitable[Generation[C, H, D]]]
    refresh: Callable[[], Awaitable[object]]
    clock: Clock
    config: RolloutConfig
    file: StateFile  # of the trial
    event: Event = lambda _kind, _figures: None
    copy_time: float = 1.0  # share of the idle time that copies take at most
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread  # runs what waits for the registry or the disk


class Trials(Generic[C, H, D]):
    """The trials of one service. `run` is a task for as long as the service lives."""

    def __init__(self, parts: TrialParts[C, H, D]) -> None:
        self._parts = parts
        self.trial: Trial | None = None
        self._catalog: C | None = None
        self._low = False  # whether the challenger's processes have the lowest priority
        self._settled = False  # whether what killed processes left unwritten has been looked for
        self._over = False  # whether the file is of a trial that is over; it goes once the registry knows the end
        self._ended: set[int] = set()  # releases that are not tried again here
        self._unwritten: list[tuple[RegistryRelease, str, str]] = []  # marks that the registry has not got yet
        self._waiting = asyncio.Event()  # there is something to do
        self._trouble = ""  # what was logged last

    def to_dict(self) -> dict[str, Any] | None:
        """Return what a status says of the trial; None where there is none."""
        if self.trial is None:
            return None
        rollout = self.trial.rollout
        return {
            "release": self.trial.release.number,
            "stage": rollout.stage,
            "share": rollout.share,
            "requests": rollout.requests,
            "copies": rollout.copies,
            "evidence": rollout.evidence,
            "figures": rollout.sentences(),
        }

    async def run(self, seconds: float) -> None:
        """Look for a challenger every `seconds`, and follow the one on trial, until cancelled. No exception ends it."""
        clock = asyncio.get_running_loop().time
        looked = saved = float("-inf")
        while True:
            try:
                due = self._unwritten or (self.trial is not None and self.trial.rollout.decided)
                if due or clock() - looked >= seconds:
                    looked = clock()
                    await self.look()
                    self._trouble = ""
                if self.trial is not None:
                    await self._follow(self.trial)
                    if clock() - saved >= SAVE_SECONDS:
                        saved = clock()
                        self._save()
            except Exception as error:
                if str(error) != self._trouble:  # the same one once only until the registry was read without any
                    known = isinstance(error, PliantError)
                    logger.error("the trial of a challenger waits: %s", error, exc_info=None if known else error)
                self._trouble = str(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.wait(), TICK_SECONDS)
            self._waiting.clear()

    async def _follow(self, trial: Trial) -> None:
        """Start a canary's models anew with the usual priority, until when it gets no requests; and let time pass."""
        if not (trial.open or trial.rollout.decided):
            try:
                await self._start(trial.rollout)
                trial.open = True
            except Exception as error:
                trial.feed(Broken(f"it could not be started as a canary: {error}"))
        challenger = self._parts.generations.challenger
        if challenger is not None and not challenger.driver.alive:
            trial.feed(Broken("its scheduler has failed"))
        trial.feed(Tick())

    async def stop(self) -> None:
        """Keep what is known of the trial for the next start."""
        if self.trial is not None:
            self._save()
            await self.trial.stop()

    def wake(self) -> None:
        """Let `run` go on at once."""
        self._waiting.set()

    async def look(self) -> None:
        """Read the registry once: begin, end and write down what is due. Raises `RegistryError`."""
        await self._write_marks()
        if not self._settled:
            await self._settle()
        if self.trial is not None and self.trial.rollout.decided:
            await self._conclude(self.trial)
            return
        challenger = await self._parts.in_thread(self._parts.record.challenger)
        trial = self.trial
        if trial is not None and (challenger is None or challenger.number != trial.release.number):
            served = await self._parts.in_thread(self._parts.record.champion)
            if served is not None and served.number == trial.release.number:
                await self._end_promoted(trial, ELSEWHERE)
                await self._write_marks()
            else:
                trial.feed(Cancelled(SUPERSEDED))
                await self._conclude(trial)
        if self.trial is None and challenger is not None:
            allowed = challenger.state == mlflow_switch.WAITING  # again: how its trial ended is written down by now
            if allowed or challenger.number not in self._ended:
                await self._begin(challenger)

    async def _settle(self) -> None:
        """Write down how trials ended whose end a killed process did not write. Raises `RegistryError`."""
        record, number = self._parts.record, (self._parts.file.read() or {}).get("release")
        served = await self._parts.in_thread(record.champion)
        left = {release.number: release for release in await self._parts.in_thread(record.unfinished)}
        if served is not None and served.number == number:
            left[served.number] = served
        for release in left.values():
            rollout, _ = self._restored(release) or (None, "")
            decided = rollout is not None and rollout.decided
            reason = rollout.reason if rollout is not None and decided else UNKNOWN
            known = {"release": release.number, "reason": reason}
            if served is None or release.number != served.number:
                await self._parts.in_thread(record.mark, release, "taken back", reason)
                self._parts.event("rollback", known)
            else:
                await self._parts.in_thread(record.promote, release, reason)
                if decided:
                    self._parts.event("champion", known)
        challenger = await self._parts.in_thread(record.challenger)
        if number is not None and (challenger is None or challenger.number != number):
            self._parts.file.remove()
        self._settled = True

    async def _begin(self, release: RegistryRelease) -> None:
        rollout, secret = self._restored(release) or (Rollout(self._parts.config), "")
        if rollout.decided:
            self.trial = self._new_trial(release, rollout, secret)
            return
        logger.info("%s is tried, at first in %s", release.name, rollout.stage)
        try:
            self._catalog = await self._parts.in_thread(self._parts.load, release)
            await self._start(rollout)
        except Exception as error:
            self._ended.add(release.number)
            reason = f"it could not be started: {error}"
            logger.warning("%s is not tried: %s", release.name, reason)
            self._unwritten.append((release, "taken back", reason))
            self._parts.event("rollback", {"release": release.number, "reason": reason})
            await self._write_marks()
            return
        self.trial = self._new_trial(release, rollout, secret)
        share, kind = (rollout.config.shadow_share, "copies of ") if rollout.stage == "shadow" else (rollout.share, "")
        self._tell(rollout.stage, f"{kind}{100 * share:g}% of the requests")

    def _new_trial(self, release: RegistryRelease, rollout: Rollout, secret: str) -> Trial:
        parts, generations = self._parts, self._parts.generations
        return Trial(
            release,
            rollout,
            parts.clock,
            idle=lambda: generations.present.driver.waiting == 0,
            act=self._act,
            copy_time=parts.copy_time,
            unused=lambda: generations.present.driver.pending == 0,
            secret=secret,
        )

    async def _start(self, rollout: Rollout) -> None:
        assert self._catalog is not None, "it is loaded first"
        self._low = rollout.stage == "shadow"
        with lowest_priority() if self._low else nullcontext():
            started = await self._parts.start(self._catalog)
        self._parts.generations.challenge(started, promotable=not self._low)

    def _act(self, actions: list[Action]) -> None:
        """Do what the controller wants; what takes time is done by `run`."""
        assert self.trial is not None, "only a trial acts"
        for action in actions:
            match action:
                case Note(sentence):
                    logger.info("%s: %s", self.trial.release.name, sentence)
                case Ask(sentence):
                    number, system = self.trial.release.number, self.trial.release.system
                    logger.warning("%s %s", self.trial.release.name, sentence)
                    self._tell("canary", f"{sentence}; `pliant promote {system} {number}` serves it")
                case SetShare(share):
                    if share > 0 and self._low:  # also where it is all of them: shadow's processes answer no client
                        self.trial.open = False
                    if 0 < share < 1:
                        self._tell("canary", f"{100 * share:g}% of the requests")
                case TakeBack(reason):
                    self._parts.generations.end_challenge()
                    logger.warning("%s is %s", self.trial.release.name, reason)
                case Promote(reason):
                    logger.info("%s is %s", self.trial.release.name, reason)
        self._save()
        self.wake()

    def _tell(self, state: str, reason: str) -> None:
        """Have the state written into the registry, and tell others."""
        assert self.trial is not None, "only a trial has a state"
        release = self.trial.release
        self._unwritten.append((release, state, reason))
        self._parts.event("trial", {"release": release.number, "state": state, "reason": reason})
        self.wake()

    async def _conclude(self, trial: Trial) -> None:
        """Write a decision into the registry, and forget the trial. Raises `RegistryError`; then it is tried again."""
        release, rollout = trial.release, trial.rollout
        if rollout.stage == "promoted":
            await self._end_promoted(trial, rollout.reason)
            self._parts.event("champion", {"release": release.number, "reason": rollout.reason})
            await self._write_marks()
            return
        self._parts.generations.end_challenge()
        self._parts.event("rollback", {"release": release.number, "reason": rollout.reason})
        self._unwritten.append((release, "taken back", rollout.reason))
        await self._forget(trial)
        await self._write_marks()

    async def _end_promoted(self, trial: Trial, reason: str) -> None:
        """Serve the challenger as the champion that it is from now on, or is already. Raises `RegistryError`."""
        await self._parts.in_thread(self._parts.record.promote, trial.release, reason)
        await self._parts.refresh()
        await self._forget(trial)

    async def _forget(self, trial: Trial) -> None:
        self._ended.add(trial.release.number)
        self.trial, self._catalog, self._over = None, None, True
        await trial.stop()
        self._parts.generations.end_challenge()

    async def _write_marks(self) -> None:
        while self._unwritten:
            await self._parts.in_thread(self._parts.record.mark, *self._unwritten[0])
            del self._unwritten[0]
        if self._over:  # a service that is killed before knows by the file how the trial ended
            self._parts.file.remove()
            self._over = False

    def _save(self) -> None:
        if self.trial is None:
            return
        trial = self.trial
        content = {"release": trial.release.number, "secret": trial.secret, "rollout": asdict(trial.rollout)}
        self._parts.file.write(content)

    def _restored(self, release: RegistryRelease) -> tuple[Rollout, str] | None:
        """Return what was known of this release's trial before the service was restarted, and the secret of its arms."""
        content = self._parts.file.read()
        if content is None or content.get("release") != release.number:
            return None
        try:
            return restored(content["rollout"]), str(content["secret"])
        except (KeyError, TypeError, InputError) as error:
            logger.warning("the state of the trial cannot be read, so it begins anew: %s", error)
            return None
