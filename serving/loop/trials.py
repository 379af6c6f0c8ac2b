"""Starts, follows and ends the trials of a service: one challenger at a time, from the registry and back to it.

A challenger waits in the registry until a service finds it there, on top of the release that it serves. Its models start
with the lowest priority that the operating system has, since copies must not slow the champion; as a canary they start
anew with the usual one. After its promotion the former champion stays loaded, which needs memory, until the guard ends: in
time, or where another release comes. What the controller knows is kept in a file, so that a restarted service goes on where
it was. Where the registry does not answer, a decision holds in this service at once and is written down as soon as it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from typing_extensions import TypeVar as DefaultedTypeVar

from pliant.errors import InputError, PliantError, RegistryError
from pliant.registry import decisions, mlflow_switch
from pliant.registry.mlflow_store import CHALLENGER, MlflowRegistry
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import HELD_BACK, RolloutConfig
from pliant.rollout.controller import Rollout, restored
from pliant.rollout.events import Action, Ask, Broken, Cancelled, Note, Promote, SetShare, TakeBack, Tick
from pliant.serving.driver import Clock, Driver
from pliant.serving.lifecycle.generation import Generation, Generations, Running
from pliant.serving.loop.pairs import Pairs
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
FORMER_GONE = "the former champion does not run any more"
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
        guard_seconds=3600 * settings.guard_hours,
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

    def former(self, release: RegistryRelease) -> RegistryRelease | None:
        """Return the release that this one replaced."""
        return None if release.former is None else self._registry.release(self._system, release.former)

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

    def undo(self, number: int, reason: str) -> None:
        """Take a champion back; if that has begun, write only what is missing."""
        present = self._registry.release(self._system)
        if present is not None and present.number == number:
            former = mlflow_switch.former_of(self._registry, self._system)
            mlflow_switch.switch(self._registry, self._system, former, reason, mlflow_switch.TAKEN_BACK)
        else:
            mlflow_switch.finish(self._registry, self._system, reason, mlflow_switch.TAKEN_BACK)


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
        self._promoted = False  # whether the registry knows that the challenger is promoted, which is guarded now
        self._over = False  # whether the file is of a trial that is over; it goes once the registry knows the end
        self._ended: set[int] = set()  # releases that are not tried again here
        self._unwritten: list[tuple[RegistryRelease, str, str]] = []  # marks that the registry has not got yet
        self._waiting = asyncio.Event()  # there is something to do
        self._trouble = ""  # what was logged last
        self._pairs_path = parts.file.path.with_suffix(".pairs")

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
                due = self._unwritten or (self.trial is not None and (self.trial.rollout.decided or self._to_promote))
                if due or clock() - looked >= seconds:
                    looked = clock()
                    await self.look()
                    self._trouble = ""
                if self.trial is not None:
                    await self._follow(self.trial)
                    if clock() - saved >= SAVE_SECONDS:
                        saved = clock()
                        self._save()
                        await self.trial.keep(self._parts.in_thread)
            except Exception as error:
                if str(error) != self._trouble:  # the same one once only until the registry was read without any
                    known = isinstance(error, PliantError)
                    logger.error("the trial of a challenger waits: %s", error, exc_info=None if known else error)
                self._trouble = str(error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._waiting.wait(), TICK_SECONDS)
            self._waiting.clear()

    @property
    def _to_promote(self) -> bool:
        return self.trial is not None and self.trial.rollout.stage == "guard" and not self._promoted

    async def _follow(self, trial: Trial) -> None:
        """Start a canary's models anew with the usual priority, until when it gets no requests; and let time pass."""
        if not (trial.open or trial.rollout.decided):
            try:
                await self._start(trial.rollout)
                trial.open = True
            except Exception as error:
                trial.feed(Broken(f"it could not be started as a canary: {error}"))
        challenger = self._parts.generations.challenger
        alive = challenger is not None and challenger.driver.alive
        if self._promoted and not (alive and self._parts.generations.former_beside):
            trial.feed(Cancelled(FORMER_GONE))
        elif challenger is not None and not alive:
            trial.feed(Broken("its scheduler has failed"))
        trial.feed(Tick())

    async def stop(self) -> None:
        """Keep what is known of the trial for the next start."""
        if self.trial is not None:
            self._save()
            await self.trial.keep(self._parts.in_thread)
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
        if self.trial is not None and self._to_promote:
            await self._promote(self.trial, self.trial.rollout.reason)
            return
        challenger = await self._parts.in_thread(self._parts.record.challenger)
        trial = self.trial
        if trial is not None and self._promoted:
            served = await self._parts.in_thread(self._parts.record.champion)
            if challenger is not None or served is None or served.number != trial.release.number:
                trial.feed(Cancelled(SUPERSEDED))
                await self._conclude(trial)
        elif trial is not None and (challenger is None or challenger.number != trial.release.number):
            served = await self._parts.in_thread(self._parts.record.champion)
            if served is not None and served.number == trial.release.number:
                await self._promote(trial, ELSEWHERE)
                await self._forget(trial)
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
        content, record = self._parts.file.read() or {}, self._parts.record
        number: int | None = content.get("release")
        rollout, secret = self._restored(number) or (None, "")
        if number is not None and content.get("promoted") and rollout is not None and rollout.stage == "taken_back":
            await self._undo(number, rollout.reason)
        served = await self._parts.in_thread(record.champion)
        left = {release.number: release for release in await self._parts.in_thread(record.unfinished)}
        if served is not None and served.number == number:
            left[served.number] = served
        for release in left.values():
            reason = rollout.reason if rollout is not None and release.number == number else ""
            decided, reason = bool(reason), reason or UNKNOWN
            known = {"release": release.number, "reason": reason}
            if served is None or release.number != served.number:
                await self._parts.in_thread(record.mark, release, "taken back", reason)
                self._parts.event("rollback", known)
            else:
                await self._parts.in_thread(record.promote, release, reason)
                if decided and not content.get("promoted"):
                    self._parts.event("champion", known)
                if rollout is not None and rollout.stage == "guard":
                    await self._guard_again(release, rollout, secret)
        challenger = await self._parts.in_thread(record.challenger)
        if self.trial is None and number is not None and (challenger is None or challenger.number != number):
            self._parts.file.remove()
        self._settled = True

    async def _guard_again(self, release: RegistryRelease, rollout: Rollout, secret: str) -> None:
        """Go on with the guard of the release that is served, beside which the former champion is started."""
        try:
            former = await self._parts.in_thread(self._parts.record.former, release)
            if former is None:
                raise RegistryError("the former release is gone")
            catalog = await self._parts.in_thread(self._parts.load, former)
            self._parts.generations.challenge(await self._parts.start(catalog), as_former=True)
        except Exception as error:
            logger.warning(
                "the guard of %s has ended: its former champion could not be started: %s", release.name, error
            )
            return
        self.trial, self._promoted = self._new_trial(release, rollout, secret), True
        self._save()

    async def _begin(self, release: RegistryRelease) -> None:
        rollout, secret = self._restored(release.number) or (Rollout(self._parts.config), "")
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
        if rollout.stage in ("shadow", "canary"):
            self._tell(rollout.stage, f"{kind}{100 * share:g}% of the requests")

    def _new_trial(self, release: RegistryRelease, rollout: Rollout, secret: str) -> Trial:
        parts, generations = self._parts, self._parts.generations

        def drivers() -> list[D]:
            beside = generations.challenger
            return [generations.present.driver, *([beside.driver] if beside is not None else [])]

        return Trial(
            release,
            rollout,
            parts.clock,
            idle=lambda: not any(driver.waiting for driver in drivers()),
            act=self._act,
            pairs=Pairs(self._pairs_path, release.number),
            copy_time=parts.copy_time,
            unused=lambda: not any(driver.pending for driver in drivers()),
            secret=secret,
            beside=lambda: "champion" if generations.former_beside else "canary",
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
                    stage = self.trial.rollout.stage
                    if stage in ("canary", "load"):
                        what = f"{100 * share:g}% of the requests" if stage == "canary" else "all requests, in turns"
                        self._tell("canary", what)
                case TakeBack(reason):
                    if not self._parts.generations.former_beside:
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
            if not self._promoted:
                await self._promote(trial, rollout.reason)
        elif self._promoted:
            await self._undo(release.number, rollout.reason)
        else:
            self._parts.generations.end_challenge()
            self._parts.event("rollback", {"release": release.number, "reason": rollout.reason})
            self._unwritten.append((release, "taken back", rollout.reason))
        await self._forget(trial)
        await self._write_marks()

    async def _promote(self, trial: Trial, reason: str) -> None:
        """Serve the challenger as the champion that it is from now on, or is already. Where a guard follows the former one
        stays beside it. Raises `RegistryError`."""
        parts, number, guarded = self._parts, trial.release.number, trial.rollout.stage == "guard"
        if guarded and self._low:
            await self._start(trial.rollout)
            trial.open = True
        parts.generations.guards = guarded
        await parts.in_thread(parts.record.promote, trial.release, reason)
        await parts.refresh()
        parts.generations.guards = False
        if reason != ELSEWHERE:
            parts.event("champion", {"release": number, "reason": reason})
        self._promoted = True
        if guarded:
            self._save()
            kept = f"{100 * HELD_BACK:g}% of the requests stay with the former champion"
            parts.event("trial", {"release": number, "state": "guard", "reason": kept})

    async def _undo(self, number: int, reason: str) -> None:
        """Serve the former champion again instead of a release that its guard has taken back. Raises `RegistryError`."""
        await self._parts.in_thread(self._parts.record.undo, number, reason)
        await self._parts.refresh()
        self._parts.event("rollback", {"release": number, "reason": reason})

    async def _forget(self, trial: Trial) -> None:
        self._ended.add(trial.release.number)
        self.trial, self._catalog, self._over, self._promoted = None, None, True, False
        await trial.stop()
        self._parts.generations.end_challenge()

    async def _write_marks(self) -> None:
        while self._unwritten:
            await self._parts.in_thread(self._parts.record.mark, *self._unwritten[0])
            del self._unwritten[0]
        if self._over:  # a service that is killed before knows by the file how the trial ended
            self._parts.file.remove()
            self._pairs_path.unlink(missing_ok=True)
            self._over = False

    def _save(self) -> None:
        if self.trial is None:
            return
        trial = self.trial
        known = {"release": trial.release.number, "secret": trial.secret, "promoted": self._promoted}
        self._parts.file.write({**known, "rollout": asdict(trial.rollout)})

    def _restored(self, number: int | None) -> tuple[Rollout, str] | None:
        """Return what was known of this release's trial before the service was restarted, and the secret of its arms."""
        content = self._parts.file.read()
        if content is None or number is None or content.get("release") != number:
            return None
        try:
            return restored(content["rollout"]), str(content["secret"])
        except (KeyError, TypeError, InputError) as error:
            logger.warning("the state of the trial cannot be read, so it begins anew: %s", error)
            return None
