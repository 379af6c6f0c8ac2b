"""`pliant demo --story`: the night watch at work in a running system, in some minutes.

A change is planted in what the clients send, which costs accuracy. The service notices it, the story starts the flow for the
alarm, which learns from the labels that clients report, and the service tries the challenger and promotes it. Then a release
that the gate refused is forced in by `pliant promote` and taken back by `pliant rollback`. Everything happens in a folder
and a registry of its own: no release of yours is touched.

In production Prefect starts the flow (docs/watch.md); here the story itself does, as soon as the event is in
`events.jsonl`: Prefect's trigger waits 30 s so that one run answers a burst of alarms.
"""

from __future__ import annotations

import os
import shutil
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from rich.console import Console
from rich.table import Table

from pliant import systems
from pliant.benchmarks.demo.story_follow import Follower, Mark, MissedError
from pliant.benchmarks.demo.story_load import Answer, Clients
from pliant.benchmarks.endpoint import serving
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.run import with_prefect
from pliant.flows.settings import Settings
from pliant.serving.events import ALARM, CHAMPION, ROLLBACK

SYSTEM = "tokens"
"""Its flow learns from labels, and its backbone is kept from one run to the next."""

RATE, DEADLINE = 20.0, 20.0
"""Requests a second, and the seconds within which each must be answered: no failure is due to a slow machine."""

SERVICE: Mapping[str, Any] = {
    "watch_seconds": 1.0,
    "watch_burn_in": 300,
    "refresh_seconds": 2.0,
    "trial_copied": 0.5,
    "trial_copies": 60,
    "trial_copy_time": 1.0,
    "trial_steps": "0.2,0.5,1",
    "trial_requests": 20,
    "trial_seconds": 3.0,
}
"""Everything is shorter than by default, so that a night takes minutes, and the tests of a trial see less than usual."""

BAD_ANSWERS, GOOD_ANSWERS = 120, 150  # that are waited for before and after the rollback
LIMITS: Mapping[str, float] = {
    "learn": 300,
    "alarm": 300,
    "labels": 300,
    "trial": 600,
    "take-up": 120,
    "rollback": 60,
    "answers": 120,
}
"""Seconds, generous, as machines are slow: what has not come by then has failed."""
CLEARED = ("mlruns", "watch", "trials", "outbox", "journals", "outcomes", "observed", "events.jsonl")
"""What a former story has left in its folder and would mix with this one. Trained models and Prefect's runs stay."""
WINDOW = 10.0  # seconds over which the picture takes shares
DRAWN = ("change", "alarm", "flow", "gate passed", "promoted", "bad answers", "rollback")
"""Names of marks that the picture shows."""
ENDS = ("promoted ", "taken back ")
"""How the reasons of a service begin that has decided on a challenger; a flow and a command tell of champions, too."""


def story() -> int:
    """Tell the story. Returns 1 where a step did not come or a request failed. Raises `PliantError`."""
    console, home = Console(), settings.read().home / "story"
    with own_environment(home), patch.dict(os.environ, PLIANT_TRUSTED_LABELS="anonymous"):
        listed = systems.system(SYSTEM)
        clear(home)
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        # Prefect's server takes seconds to start; meanwhile flow and texts are imported.
        prepare = lambda: (listed.part("flows", "flow"), listed.part("benchmarks", "story"))  # noqa: E731
        with with_prefect(settings.read(), prepare):
            telling = _Story(console, settings.read())
            trouble = telling.tell()
    answers = telling.clients.answers if telling.clients else []
    return _conclude(console, telling.follower.marks, answers, trouble, home / "story.png")


@contextmanager
def own_environment(home: Path) -> Iterator[None]:
    """Set what makes flows, services and commands of this process use a folder and a registry of the story's own."""
    own = {"PLIANT_HOME": str(home), "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlruns' / 'mlflow.db'}"}
    with patch.dict(os.environ, own, PLIANT_ROLLOUT="canary"):
        # Another Prefect server might start flows of its own for the story's alarm.
        for name in ("PREFECT_API_URL", "PREFECT_HOME"):
            os.environ.pop(name, None)
        yield


def clear(home: Path) -> None:
    """Remove what a former story has left in its folder, but for what was trained."""
    for name in CLEARED:
        path = home / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class _Story:
    """One telling. `part`: the module of what the clients send; `follower` and `clients` run once a release is served."""

    def __init__(self, console: Console, project: Settings) -> None:
        self.console, self.project = console, project
        listed = systems.system(SYSTEM)
        self.part, self._flow = listed.part("benchmarks", "story"), getattr(listed.part("flows", "flow"), SYSTEM)
        self.follower = Follower(project.home, SYSTEM, partial(console.print, markup=False, highlight=False))
        self.clients: Clients | None = None

    def tell(self) -> str:
        """Tell the whole story; return why it ended early, or nothing."""
        part, home = self.part, self.project.home
        self.console.rule("A first release, and its clients")
        self.console.print(f"The gate: {self._run(part.first(home))['reason']}.")
        before, after = part.mixes()
        with ExitStack() as stack:
            address = stack.enter_context(serving(SYSTEM, 0, self.project, **SERVICE, **part.SERVICE))
            stack.enter_context(self.follower.running(f"{address}/v1/status"))
            self.clients = Clients(address, part.SPEECH, before, RATE, DEADLINE, self.follower.start)
            stack.enter_context(self.clients.running())
            try:
                self._learn(before.name)
                self.console.rule("A change, and what follows by itself")
                self.clients.mix = after
                self._answer_alarm(part.after(home))
                self._try()
                self.console.rule("A bad champion, forced in and taken back")
                self._force_and_take_back(part.worse(home))
            except (MissedError, PliantError) as error:
                return f"The story ends here: {error}."
        return ""

    def _run(self, overrides: Mapping[str, Any], reason: str | None = None) -> dict[str, Any]:
        """Run the flow here. A failed stage is raised as one sentence."""
        from pliant.flows.run import run

        return run(partial(self._flow, reason=reason), None, overrides)

    def _learn(self, mix: str) -> None:
        """Wait until the watch knows what is usual."""
        follower = self.follower
        follower.mark("start", f"{RATE:g} requests a second, {mix}; the watch learns what is usual")

        def learnt() -> bool | None:
            rows = (follower.status.get("watch") or {}).get("streams", ())
            return True if rows and all(row["state"] != "learning" for row in rows) else None

        follower.wait("what is usual", LIMITS["learn"], learnt, self.clients)
        follower.mark("learnt", f"the watch has learnt what is usual from {SERVICE['watch_burn_in']} answers")
        time.sleep(3)  # some quiet seconds, for whoever watches
        for at, event in follower.events(ALARM):
            follower.mark("other alarm", f"alarm before any change was planted: {event.payload['reason']}", at)

    def _answer_alarm(self, overrides: Mapping[str, Any]) -> None:
        """Wait for the alarm of the change and run the flow for it. Raises `MissedError` where its gate refuses."""
        follower = self.follower
        assert self.clients is not None, "the clients run by now"
        clients, labels = self.clients, self.clients.labels + self.part.NEWEST
        planted = follower.mark("change", f"the change: {self.part.CHANGE}")
        alarm = lambda: next(iter(follower.events(ALARM, planted)), None)  # noqa: E731
        at, event = follower.wait("the alarm", LIMITS["alarm"], alarm, clients)
        reason = str(event.payload["reason"])
        follower.mark("alarm", f"alarm, {at - planted:.1f} s after the change: {reason}", at)
        follower.wait("labels", LIMITS["labels"], lambda: True if clients.labels >= labels else None, clients)
        self.console.print(
            "The story starts the flow for the event pliant.alarm; in production Prefect's trigger does."
        )
        begun = follower.mark("flow", "the flow starts, with the alarm as its reason")
        released = self._run(overrides, reason)
        took, said = follower.now() - begun, released["reason"]
        if not released["promoted"]:
            follower.mark("refused", f"the gate refuses the challenger after {took:.0f} s: {said}")
            raise MissedError(f"the gate refused the challenger: {said}")
        follower.mark("gate passed", f"the flow is done after {took:.0f} s, and the challenger waits: {said}")

    def _try(self) -> None:
        """Wait for the end of the trial. Raises `MissedError` where the challenger is taken back."""
        follower = self.follower

        def ended() -> tuple[float, Any] | None:
            events = follower.events(CHAMPION) + follower.events(ROLLBACK)
            return next(((at, event) for at, event in events if str(event.payload["reason"]).startswith(ENDS)), None)

        try:
            at, event = follower.wait("the end of the trial", LIMITS["trial"], ended, self.clients)
        except MissedError as error:
            waiting = self._registry().release(SYSTEM, "challenger")
            known = (
                f"release {waiting.number} is {waiting.state}: {waiting.reason}"
                if waiting
                else "there is no challenger"
            )
            raise MissedError(f"{error}; {known}") from None
        number, reason = event.payload["release"], event.payload["reason"]
        if event.name == ROLLBACK:
            follower.mark("taken back", f"release {number} is {reason}", at)
            raise MissedError(f"the trial ended otherwise: release {number} is {reason}")
        follower.mark("promoted", f"release {number} is {reason}", at)

    def _force_and_take_back(self, overrides: Mapping[str, Any]) -> None:
        """Train a bad release, which the gate refuses; promote it nevertheless; take it back, and say how fast that was."""
        follower, model = self.follower, self.part.MODEL
        good = self._registry().release(SYSTEM).number
        follower.mark("bad model", "somebody trains a model that learns nothing")
        released = self._run(overrides)
        if released["promoted"]:
            raise MissedError("the gate let the bad model pass")
        bad = self._releases().get(released["versions"][model])
        if bad is None:
            raise MissedError("the refused model is no release that could be promoted")
        follower.mark("refused", f"the gate refuses it, release {bad}: {released['reason']}")
        forced = follower.mark("promote", f"`pliant promote {SYSTEM} {bad}`: it is forced in by hand")
        command("promote", SYSTEM, str(bad), "--reason", "the story forces it in")
        seconds = self._await("an answer of the bad release", "take-up", bad, forced, 1)
        follower.mark(
            "bad answers", f"first answer of release {bad}, {seconds:.1f} s after the command", forced + seconds
        )
        self._await("its answers", "answers", bad, 0.0, BAD_ANSWERS)
        begun = follower.mark("rollback", f"`pliant rollback {SYSTEM}`: it is taken back by hand")
        command("rollback", SYSTEM, "--reason", "its answers were wrong")
        seconds = self._await("an answer of the former release", "rollback", good, begun, 1)
        sentence = f"first answer of release {good} again, {seconds:.1f} s after the command (target: at most 2 s)"
        follower.mark(f"back after {seconds:.1f} s", sentence, begun + seconds)
        self._await("its answers", "answers", good, begun, GOOD_ANSWERS)

    def _await(self, what: str, limit: str, release: int, since: float, count: int) -> float:
        """Return the seconds from `since` to the first answer that came from a release after it, once there are `count`."""

        def seen() -> float | None:
            releases = self._releases()
            assert self.clients is not None, "the clients run by now"
            ends = [each.at for each in list(self.clients.answers) if releases.get(each.version) == release]
            ends = [at for at in ends if at >= since]
            return min(ends) - since if len(ends) >= count else None

        return self.follower.wait(what, LIMITS[limit], seen, self.clients)

    def _registry(self) -> Any:
        from pliant.flows.release import open_registry

        return open_registry(self.project, SYSTEM)

    def _releases(self) -> dict[int, int]:
        """Return version of the model -> number of the first release with it, as answers name versions alone."""
        from pliant.registry.mlflow_switch import history

        releases = history(self._registry(), SYSTEM)  # the newest first
        return {release.versions[self.part.MODEL]: release.number for release in releases}


def command(*words: str) -> None:
    """Run `pliant promote` or `pliant rollback` in this process."""
    from pliant.cli import releases

    parser = ArgumentParser(prog="pliant")
    releases.commands(parser.add_subparsers())
    args = parser.parse_args(words)
    args.run(args)


def _conclude(console: Console, marks: Sequence[Mark], answers: Sequence[Answer], trouble: str, picture: Path) -> int:
    """Print what happened in the order of time; return the exit status."""
    table = Table("second", "what happened", title="The story")
    for mark in sorted(marks, key=lambda mark: mark.at):
        table.add_row(f"{mark.at:.1f}", mark.sentence)
    console.print(table)
    failed = [answer for answer in answers if answer.failure]
    console.print(f"Requests: {len(answers)}; failed: {len(failed)} (target: 0).")
    for answer in failed[:5]:
        console.print(f"  {answer.at:.1f} s: {answer.failure}", markup=False)
    times = {mark.name: mark.at for mark in marks}
    if not trouble:
        spans = [("start", "change"), ("change", "gate passed"), ("promoted", "promote")]
        before, changed, promoted = (accuracy(answers, times[begin], times[end]) for begin, end in spans)
        console.print(
            f"Right: {before:.1%} before the change, {changed:.1%} after it, {promoted:.1%} after the promotion."
        )
        if not changed < min(before, promoted):
            trouble = "The change should cost accuracy, and the promotion bring some of it back."
        draw(marks, answers, picture)
        console.print(f"The picture of it: {picture}", markup=False)
    if trouble:
        console.print(trouble, style="bold red", markup=False)
    return 1 if trouble or failed else 0


def accuracy(answers: Sequence[Answer], begin: float, end: float) -> float:
    """Return the share of the answers between two seconds of the story that are right; NaN where there are none."""
    right = [each.correct for each in answers if begin <= each.at < end and not each.failure]
    return sum(right) / len(right) if right else float("nan")


def draw(marks: Sequence[Mark], answers: Sequence[Answer], path: Path) -> None:
    """Draw, over the seconds of the story, how many answers clients saw to be right, with what happened, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    axes, begin, end = figure.subplots(), min(each.at for each in answers), max(each.at for each in answers)
    edges = np.arange(begin, end, WINDOW)
    shares = [accuracy(answers, edge, edge + WINDOW) for edge in edges]
    axes.plot(edges + WINDOW / 2, 100 * np.array(shares), color="tab:blue")
    shown = [mark for mark in marks if mark.name in DRAWN]
    for number, mark in enumerate(sorted(shown, key=lambda mark: mark.at)):
        axes.axvline(mark.at, color="0.7", linewidth=1, zorder=0)
        axes.text(mark.at, 104 + 7 * (number % 3), f" {mark.name}", fontsize=8)
    axes.set(
        xlabel="seconds", ylabel=f"right, % of answers in {WINDOW:g} s", xlim=(begin, end + 5 * WINDOW), ylim=(0, 125)
    )
    axes.set_yticks(range(0, 101, 20))
    figure.savefig(path, dpi=110)
