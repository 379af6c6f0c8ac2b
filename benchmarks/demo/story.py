"""`pliant demo --story`: the night watch at work in a running system, in some minutes.

A change is planted in what the clients send. The service notices it, the story starts the flow for the alarm, and the
service tries the challenger and promotes it. Then a release that the gate refused is forced in by `pliant promote` and
taken back by `pliant rollback`. Everything happens in a folder and a registry of its own: no release of yours is touched.

In production Prefect starts the flow (docs/watch.md); here the story itself does, as soon as the event is in
`events.jsonl`: Prefect's trigger waits 30 s so that one run answers a burst of alarms.
"""

from __future__ import annotations

import os
import shutil
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pliant import systems
from pliant.benchmarks.demo.story_follow import Follower, Mark, MissedError
from pliant.benchmarks.demo.story_load import Answer, Clients, Speech
from pliant.benchmarks.endpoint import serving
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.run import with_prefect
from pliant.flows.settings import Settings
from pliant.serving.events import ALARM, CHAMPION, ROLLBACK
from pliant.systems import System

SYSTEM = "bins"
"""Its flow is the quickest that has something to learn from a change: bins for the lengths that it has seen."""

RATE, DEADLINE = 15.0, 20.0
"""Requests a second, and the seconds within which each must be answered: no failure is due to a slow machine."""

SERVICE: Mapping[str, Any] = {
    "watch_seconds": 1.0,
    "watch_burn_in": 300,
    "refresh_seconds": 2.0,
    "trial_copied": 0.5,
    "trial_copies": 30,
    "trial_copy_time": 1.0,
    "trial_steps": "0.2,0.5,1",
    "trial_requests": 20,
    "trial_seconds": 3.0,
}
"""Everything is shorter than by default, so that a night takes minutes, and the tests of a trial see less than usual."""

GATHER_SECONDS = 10.0  # from the alarm to the flow, so that the journal has some requests of the new kind
BAD_ANSWERS, GOOD_ANSWERS = 120, 150  # that are waited for before and after the rollback
LIMITS: Mapping[str, float] = {"learn": 300, "alarm": 300, "trial": 600, "take-up": 120, "rollback": 60, "answers": 120}
"""Seconds, generous, as machines are slow: what has not come by then has failed."""
CLEARED = ("mlruns", "watch", "trials", "outbox", "journals", "outcomes", "observed", "events.jsonl")
"""What a former story has left in its folder and would mix with this one. Trained models and Prefect's runs stay."""


@dataclass(slots=True)
class _Scene:
    """What the parts of the story work with."""

    console: Console
    project: Settings
    part: Any  # the system's module `benchmarks.SYSTEM.story`
    flow: Callable[..., Any]
    follower: Follower
    clients: Clients | None = None

    @property
    def running(self) -> Clients:
        assert self.clients is not None, "the clients run by now"
        return self.clients


def story() -> int:
    """Tell the story. Returns 1 where a step did not come or a request failed. Raises `PliantError`."""
    console, home = Console(), settings.read().home / "story"
    with own_environment(home):
        project, listed = settings.read(), systems.system(SYSTEM)
        clear(home)
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        with with_prefect(project, 0, partial(_import, listed)):
            scene = _scene(console, project, listed)
            trouble = _tell(scene)
    return _conclude(console, scene.follower.marks, scene.clients.answers if scene.clients else [], trouble)


@contextmanager
def own_environment(home: Path) -> Iterator[None]:
    """Set what makes flows, services and commands of this process use a folder and a registry of the story's own."""
    own = {
        "PLIANT_HOME": str(home),
        "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlruns' / 'mlflow.db'}",
        "PLIANT_ROLLOUT": "canary",
    }
    # Another Prefect server might start flows of its own for the story's alarm.
    names = (*own, "PREFECT_API_URL", "PREFECT_HOME")
    former = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in former.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def clear(home: Path) -> None:
    """Remove what a former story has left in its folder, but for what was trained."""
    for name in CLEARED:
        path = home / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _import(listed: System) -> None:
    """Do what takes seconds while Prefect's server starts."""
    listed.part("flows", "flow")
    listed.part("benchmarks", "story")


def _scene(console: Console, project: Settings, listed: System) -> _Scene:
    part, flow = listed.part("benchmarks", "story"), getattr(listed.part("flows", "flow"), listed.name)
    return _Scene(console, project, part, flow, _follower(console, project.home))


def _follower(console: Console, home: Path) -> Follower:
    return Follower(home, SYSTEM, partial(console.print, markup=False, highlight=False))


def _tell(scene: _Scene) -> str:
    """Tell the whole story; return why it ended early, or nothing."""
    console, home = scene.console, scene.project.home
    console.rule("A first release, and its clients")
    released = _run_flow(scene, scene.part.FIRST)
    console.print(f"The gate: {released['reason']}.")
    before, after = scene.part.mixes()
    journal = home / "journals" / f"{SYSTEM}.jsonl"
    with ExitStack() as stack:
        address = stack.enter_context(serving(SYSTEM, 0, scene.project, journal=journal, **SERVICE))
        scene.follower = _follower(console, home)
        stack.enter_context(scene.follower.running(address + scene.part.STATUS))
        speech = Speech(scene.part.PATH, scene.part.body, scene.part.read)
        scene.clients = Clients(address, speech, before, RATE, DEADLINE, scene.follower.clock.start)
        stack.enter_context(scene.clients.running())
        try:
            _learn(scene)
            console.rule("A change, and what follows by itself")
            alarm_at, reason = _plant(scene, after)
            _answer_alarm(scene, scene.part.after(journal), alarm_at, reason)
            _try(scene)
            console.rule("A bad champion, forced in and taken back")
            _force_and_take_back(scene, scene.part.worse(journal))
        except (MissedError, PliantError) as error:
            return f"The story ends here: {error}."
    return ""


def _run_flow(scene: _Scene, overrides: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
    """Run the flow here. A failed stage is raised as one sentence."""
    from pliant.flows.run import run

    return run(partial(scene.flow, reason=reason), None, overrides)


def _learn(scene: _Scene) -> None:
    """Wait until the watch knows what is usual."""
    follower, clients = scene.follower, scene.running
    follower.mark("start", f"{RATE:g} requests a second, {clients.mix.name}; the watch learns what is usual")

    def learnt() -> bool | None:
        rows = (follower.status.get("watch") or {}).get("streams", ())
        return True if rows and all(row["state"] != "learning" for row in rows) else None

    follower.wait("what is usual", LIMITS["learn"], learnt, clients)
    follower.mark("learnt", f"the watch has learnt what is usual from {SERVICE['watch_burn_in']} answers")
    time.sleep(3)  # some quiet seconds, for whoever watches


def _plant(scene: _Scene, mix: Any) -> tuple[float, str]:
    """Plant the change; return the second and the sentence of the alarm that comes after it."""
    follower, clients = scene.follower, scene.running
    for at, event in follower.events(ALARM):
        follower.mark("other alarm", f"alarm before any change was planted: {event.payload['reason']}", at)
    clients.mix = mix
    planted = follower.mark("change", f"the change: {scene.part.CHANGE}")
    at, event = follower.wait(
        "the alarm", LIMITS["alarm"], lambda: next(iter(follower.events(ALARM, planted)), None), clients
    )
    reason = str(event.payload["reason"])
    follower.mark("alarm", f"alarm, {at - planted:.1f} s after the change: {reason}", at)
    return at, reason


def _answer_alarm(scene: _Scene, overrides: Mapping[str, Any], alarm_at: float, reason: str) -> None:
    """Run the flow for the alarm. Raises `MissedError` where its gate refuses the challenger."""
    follower = scene.follower
    time.sleep(max(0.0, alarm_at + GATHER_SECONDS - follower.clock.now()))
    scene.console.print("The story starts the flow for the event pliant.alarm; in production Prefect's trigger does.")
    begun = follower.mark("flow", "the flow starts, with the alarm as its reason")
    released = _run_flow(scene, overrides, reason)
    took = follower.clock.now() - begun
    if not released["promoted"]:
        follower.mark("refused", f"the gate refuses the challenger after {took:.0f} s: {released['reason']}")
        raise MissedError(f"the gate refused the challenger: {released['reason']}")
    follower.mark("gate passed", f"the flow is done after {took:.0f} s, and the challenger waits: {released['reason']}")


def _try(scene: _Scene) -> None:
    """Wait for the end of the trial. Raises `MissedError` where the challenger is taken back."""
    follower, clients = scene.follower, scene.running

    def ended() -> tuple[float, Any] | None:
        events = follower.events(CHAMPION) + follower.events(ROLLBACK)
        return next(((at, event) for at, event in events if str(event.payload["reason"]).startswith(ENDS)), None)

    try:
        at, event = follower.wait("the end of the trial", LIMITS["trial"], ended, clients)
    except MissedError as error:
        waiting = _registry(scene).release(SYSTEM, "challenger")
        known = (
            f"release {waiting.number} is {waiting.state}: {waiting.reason}" if waiting else "there is no challenger"
        )
        raise MissedError(f"{error}; {known}") from None
    number, reason = event.payload["release"], event.payload["reason"]
    if event.name == ROLLBACK:
        follower.mark("taken back", f"release {number} is {reason}", at)
        raise MissedError(f"the trial ended otherwise: release {number} is {reason}")
    follower.mark("promoted", f"release {number} is {reason}", at)


ENDS = ("promoted ", "taken back ")
"""How the reasons of a service begin that has decided on a challenger; a flow and a command tell of champions, too."""


def _force_and_take_back(scene: _Scene, overrides: Mapping[str, Any]) -> None:
    """Train a bad release, which the gate refuses; promote it nevertheless; take it back, and say how fast that was."""
    follower, clients = scene.follower, scene.running
    good = _served(scene)
    follower.mark("bad model", "somebody trains a model that learns nothing")
    released = _run_flow(scene, overrides)
    if released["promoted"]:
        raise MissedError("the gate let the bad model pass")
    bad = _number_of(scene, released)
    follower.mark("refused", f"the gate refuses it, release {bad}: {released['reason']}")
    forced = follower.mark("promote", f"`pliant promote {SYSTEM} {bad}`: it is forced in by hand")
    command("promote", SYSTEM, str(bad), "--reason", "the story forces it in")
    seconds = follower.wait("an answer of the bad release", LIMITS["take-up"], _first(scene, bad, forced), clients)
    follower.mark("bad answers", f"first answer of release {bad}, {seconds:.1f} s after the command", forced + seconds)
    follower.wait("its answers", LIMITS["answers"], _several(scene, bad, BAD_ANSWERS), clients)
    begun = follower.mark("rollback", f"`pliant rollback {SYSTEM}`: it is taken back by hand")
    command("rollback", SYSTEM, "--reason", "its answers were wrong")
    seconds = follower.wait("an answer of the former release", LIMITS["rollback"], _first(scene, good, begun), clients)
    sentence = f"first answer of release {good} again, {seconds:.1f} s after the command (target: at most 2 s)"
    follower.mark(f"back after {seconds:.1f} s", sentence, begun + seconds)
    follower.wait("its answers", LIMITS["answers"], _several(scene, good, GOOD_ANSWERS, begun), clients)


def command(*words: str) -> None:
    """Run `pliant promote` or `pliant rollback` in this process."""
    from pliant.cli import releases

    parser = ArgumentParser(prog="pliant")
    releases.commands(parser.add_subparsers())
    args = parser.parse_args(words)
    args.run(args)


def _served(scene: _Scene) -> int:
    release = _registry(scene).release(SYSTEM)
    assert release is not None, "a first release was made"
    return int(release.number)


def _number_of(scene: _Scene, released: Mapping[str, Any]) -> int:
    """Return the release that names the versions of a flow. Raises `MissedError` where there is none."""
    from pliant.registry.mlflow_switch import history

    model = scene.part.MODEL
    for release in history(_registry(scene), SYSTEM):
        if release.versions.get(model) == released["versions"][model]:
            return release.number
    raise MissedError("the refused model is no release that could be promoted")


def _registry(scene: _Scene) -> Any:
    from pliant.flows.release import open_registry

    return open_registry(scene.project, SYSTEM)


def _releases(scene: _Scene) -> dict[int, int]:
    """Return version of the model -> number of the first release with it, as answers name versions alone."""
    from pliant.registry.mlflow_switch import history

    releases = history(_registry(scene), SYSTEM)  # the newest first
    return {release.versions[scene.part.MODEL]: release.number for release in releases}


def _first(scene: _Scene, release: int, since: float) -> Callable[[], float | None]:
    """Return what gives the seconds from `since` to the first answer that came from a release after it."""

    def first() -> float | None:
        ends = [each.at for each in _answers_of(scene, release) if each.at >= since]
        return min(ends) - since if ends else None

    return first


def _several(scene: _Scene, release: int, count: int, since: float = 0.0) -> Callable[[], bool | None]:
    """Return what gives True once there are so many answers from a release."""
    return lambda: True if sum(each.at >= since for each in _answers_of(scene, release)) >= count else None


def _answers_of(scene: _Scene, release: int) -> list[Answer]:
    releases = _releases(scene)
    return [each for each in list(scene.running.answers) if releases.get(each.version) == release]


def _conclude(console: Console, marks: Sequence[Mark], answers: Sequence[Answer], trouble: str) -> int:
    """Print what happened in the order of time; return the exit status."""
    table = Table("second", "what happened", title="The story")
    for mark in sorted(marks, key=lambda mark: mark.at):
        table.add_row(f"{mark.at:.1f}", mark.sentence)
    console.print(table)
    failed = [answer for answer in answers if answer.failure]
    console.print(f"Requests: {len(answers)}; failed: {len(failed)} (target: 0).")
    for answer in failed[:5]:
        console.print(f"  {answer.at:.1f} s: {answer.failure}", markup=False)
    if trouble:
        console.print(trouble, style="bold red", markup=False)
    return 1 if trouble or failed else 0
