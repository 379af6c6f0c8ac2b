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
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from typing_extensions import TypeVar as DefaultedTypeVar

from pliant.errors import InputError, PliantError
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import RolloutConfig
from pliant.rollout.controller import Rollout, restored
from pliant.rollout.events import Action, Broken, Cancelled, Note, Promote, SetShare, TakeBack, Tick
from pliant.serving.driver import Clock, Driver
from pliant.serving.lifecycle.generation import Generation, Generations, Running
from pliant.serving.loop.record import TrialRecord
from pliant.serving.loop.trial import Trial
from pliant.serving.state_file import StateFile
from pliant.serving.workers.child_process import lowest_priority

logger = logging.getLogger("pliant.serving")

A = TypeVar("A")
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
                if clock() - looked >= seconds or self._due:
                    looked = clock()
                    await self.look()
                    self._trouble = ""
                if self.trial is not None:
                    await self._reopen(self.trial)
                    self._tick(self.trial)
                    if clock() - saved >= SAVE_SECONDS:
                        saved = clock()
                        self._save()
            except Exception as error:
                self._log(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.wait(), TICK_SECONDS)
            self._waiting.clear()

    @property
    def _due(self) -> bool:
        """Whether something waits to be written into the registry."""
        return bool(self._unwritten) or (self.trial is not None and self.trial.rollout.decided)

    def _log(self, error: Exception) -> None:
        """Log an error, but the same one once only until the registry was read without any."""
        if str(error) != self._trouble:
            known = isinstance(error, PliantError)
            logger.error("the trial of a challenger waits: %s", error, exc_info=None if known else error)
        self._trouble = str(error)

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
            if await self._is_champion(trial.release):
                await self._end_promoted(trial, ELSEWHERE)
                await self._write_marks()
            else:
                trial.feed(Cancelled(SUPERSEDED))
                await self._conclude(trial)
        if self.trial is None and challenger is not None and challenger.number not in self._ended:
            await self._begin(challenger)

    async def _is_champion(self, release: RegistryRelease) -> bool:
        served = await self._parts.in_thread(self._parts.record.champion)
        return served is not None and served.number == release.number

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
        parts = self._parts
        return Trial(release, rollout, parts.clock, self._idle, self._act, parts.copy_time, self._unused, secret)

    async def _start(self, rollout: Rollout) -> None:
        assert self._catalog is not None, "it is loaded first"
        if rollout.stage == "shadow":
            with lowest_priority():
                started = await self._parts.start(self._catalog)
        else:
            started = await self._parts.start(self._catalog)
        self._low = rollout.stage == "shadow"
        self._parts.generations.challenge(started, promotable=not self._low)

    async def _reopen(self, trial: Trial) -> None:
        """Start a canary's models anew with the usual priority; until then it gets no requests."""
        if trial.open or trial.rollout.decided:
            return
        try:
            await self._start(trial.rollout)
        except Exception as error:
            trial.feed(Broken(f"it could not be started as a canary: {error}"))
            return
        trial.open = True

    def _idle(self) -> bool:
        return self._parts.generations.present.driver.waiting == 0

    def _unused(self) -> bool:
        return self._parts.generations.present.driver.pending == 0

    def _tick(self, trial: Trial) -> None:
        challenger = self._parts.generations.challenger
        if challenger is not None and not challenger.driver.alive:
            trial.feed(Broken("its scheduler has failed"))
        trial.feed(Tick())

    def _act(self, actions: list[Action]) -> None:
        """Do what the controller wants; what takes time is done by `run`."""
        assert self.trial is not None, "only a trial acts"
        for action in actions:
            match action:
                case Note(sentence):
                    logger.info("%s: %s", self.trial.release.name, sentence)
                case SetShare(share):
                    self._on_share(share)
                case TakeBack(reason):
                    self._parts.generations.end_challenge()
                    logger.warning("%s is %s", self.trial.release.name, reason)
                case Promote(reason):
                    logger.info("%s is %s", self.trial.release.name, reason)
        self._save()
        self.wake()

    def _on_share(self, share: float) -> None:
        assert self.trial is not None, "only a trial acts"
        if share > 0 and self._low:  # also where the first share is all of them: shadow's processes answer no client
            self.trial.open = False
        if 0 < share < 1:
            self._tell("canary", f"{100 * share:g}% of the requests")

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
