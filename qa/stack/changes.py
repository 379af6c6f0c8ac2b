"""Changes planted in a running service, and what follows without a hand, from the alarm to the release that is served.

Everything is real: a Prefect server with the deployments of the nights and what alarms start, a worker, a service with its
watch and its trials, a registry, and clients over HTTP. Nothing here starts a flow once the first release is served: the
service's event does, by Prefect's trigger. The models have the demo's sizes, and trials are shorter than by default.

What a system plants and how its clients speak is in `qa.stack.plans`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from math import inf, isnan, nan
from typing import Any, TypeVar
from unittest.mock import patch

from rich.console import Console

from pliant.benchmarks.demo.story import ENDS, clear, own_environment
from pliant.benchmarks.demo.story_follow import Follower, MissedError
from pliant.benchmarks.demo.story_load import Clients
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.progress import Progress
from pliant.registry.mlflow_switch import TRIALS, WAITING
from pliant.serving.events import ALARM, CHAMPION, PROMISE_BROKEN, ROLLBACK, Event
from pliant.serving.loop.trials import SUPERSEDED
from qa.prefect_server import ENDED, Server, night
from qa.stack.plans import PLANS, Plan

LIMIT = 15 * 60.0  # seconds from a change to the first answer of what was learnt from it
TRAINING = 1800.0  # seconds within which a first release is there
SLOW = ("agreement of ", "load")
"""How streams begin that need hours or days to know what is usual, and are not waited for."""
LEARNING = 600.0  # seconds within which the watch knows what is usual
SETTLED = 5.0  # seconds between what is usual and the change
DEADLINE = 30.0  # seconds of each request, so that none is refused because the machine is slow or trains meanwhile
SERVED = 20  # answers of the new release that are waited for
LOOK_SECONDS = 2.0  # between two looks at Prefect's runs
PATIENCE = 30.0  # seconds after the end of the last run, within which a challenger is seen
T = TypeVar("T")

ENVIRONMENT: Mapping[str, str] = {"PLIANT_ALARM_MINUTES": "0.1", "PLIANT_TRUSTED_LABELS": "anonymous"}
"""Two changes of a system follow each other within minutes, and its clients have no keys."""

SERVICE: Mapping[str, Any] = {
    "watch_seconds": 1.0,
    "watch_burn_in": 300,
    "refresh_seconds": 2.0,
    "trial_copied": 0.5,
    "trial_copies": 60,
    "trial_copy_time": 1.0,
    "trial_steps": "0.1,0.3,1",
    "trial_requests": 30,
    "trial_seconds": 10.0,
}
"""Shorter than by default, where a trial alone lasts 20 minutes at least."""


@dataclass(slots=True)
class Course:
    """What became of a change. Seconds after it; NaN: it did not come to that."""

    change: str
    known: bool = False
    alarm: float = nan
    reason: str = ""
    flow_begun: float = nan
    flow_ended: float = nan
    runs: list[str] = field(default_factory=list)
    shadow: float = nan
    canary: float = nan
    promoted: float = nan
    served: float = nan
    release: int = 0
    trouble: str = ""

    @property
    def done(self) -> bool:
        """Whether what was learnt from the change was served in time."""
        return self.served <= LIMIT


def changes(system: str, context: Context) -> Measured:
    """Plant the changes of a system one after the other, and follow each."""
    home = settings.read().home / "bench" / "changes" / system
    with own_environment(home), patch.dict(os.environ, ENVIRONMENT), context.stage(f"changes in {system}") as progress:
        project = settings.read()
        clear(home)
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        settings.prepare(project)
        plan = PLANS[system](project.home)
        with night(project, plan.parameters) as given:
            first = given.await_end(given.start(given.deployment(plan.first)), TRAINING)
            if first.state != "COMPLETED":
                raise PliantError(f"the first flow of {system} ended as {first.word}: {first.message}")
            courses, sent, failed = _follow(system, plan, given, progress)
    return _targets(system, courses, sent, failed, plan)


def _targets(system: str, courses: Sequence[Course], sent: int, failed: int, plan: Plan) -> Measured:
    for course in courses:
        Console().print(f"{course.change}: {course.trouble or f'served after {course.served:.0f} s'}", markup=False)
    done, new = sum(course.done for course in courses), [course for course in courses if not course.known]
    done_new = sum(course.done for course in new)
    worst = max(inf if isnan(course.served) else course.served for course in new)
    targets = [
        Target(f"{system}: planted changes served without a hand within 15 minutes", done, ">=", len(courses)),
        *(
            [Target(f"{system}: the same, of changes that the first release did not know", done_new, ">=", len(new))]
            if len(new) < len(courses)
            else []
        ),
        Target(f"{system}: from a change to the first answer of what was learnt, worst", worst, "<=", LIMIT, "s"),
        Target(f"{system}: requests that failed meanwhile", failed, "<=", 0, f"of {sent:,}"),
    ]
    details = {
        "courses": [asdict(course) for course in courses],
        "rate": plan.rate,
        "service": {**SERVICE, **plan.service},
        "sent": sent,
    }
    return targets, details


def _follow(system: str, plan: Plan, given: Server, progress: Progress) -> tuple[list[Course], int, int]:
    project, console = settings.read(), Console()
    show: Callable[[str], None] = partial(console.print, markup=False, highlight=False)
    courses: list[Course] = []
    options = {**SERVICE, **plan.service}
    with ExitStack() as stack:
        journal = project.home / "journals" / f"{system}.jsonl"
        address = stack.enter_context(serving(system, 0, project, journal=journal, **options))
        follower = Follower(project.home, system, show)
        stack.enter_context(follower.running(address + plan.status))
        clients = Clients(address, plan.speech, plan.before, plan.rate, DEADLINE, follower.start)
        stack.enter_context(clients.running())
        for number, planted in enumerate(plan.planted):
            course = Course(planted.name, planted.known)
            courses.append(course)
            try:
                _learnt(follower, clients)
                clients.mix = planted.mix
                follower.mark("change", f"the change: {planted.name}")
                _Pursuit(system, given, follower, clients, course).run()
            except (MissedError, PliantError) as error:
                course.trouble = str(error)
                show(f"{follower.now():6.1f} s  {planted.name}: {error}")
            progress(number + 1, len(plan.planted))
        show(f"{clients.labels} labels were taken, {clients.refused_labels} were not")
    for failure in clients.failures[:5]:
        show(f"failed: {failure.failure}")
    return courses, len(clients.answers), len(clients.failures)


def has_learnt(status: Mapping[str, Any]) -> bool:
    """Return whether a watch knows what is usual, by its service's status."""
    rows = [row for row in (status.get("watch") or {}).get("streams", ()) if not row["stream"].startswith(SLOW)]
    return bool(rows) and all(row["state"] != "learning" for row in rows)


def _learnt(follower: Follower, clients: Clients) -> None:
    """Wait until the watch of the release that is served knows what is usual."""

    def learnt() -> bool | None:
        return (has_learnt(follower.status) and not follower.status.get("trial")) or None

    follower.wait("what is usual", LEARNING, learnt, clients)
    time.sleep(SETTLED)
    follower.mark("learnt", "the watch knows what is usual")


class _Pursuit:
    """Follows one change to the first answers of what was learnt from it."""

    def __init__(self, system: str, given: Server, follower: Follower, clients: Clients, course: Course) -> None:
        self._system, self._given, self._follower, self._clients = system, given, follower, clients
        self._course, self._seen = course, set[str]()
        self._at, self._wall = follower.now(), time.time()
        self._next_look = 0.0

    def run(self) -> None:
        """Raises `MissedError` where the change is not answered in time, and says where it ended."""
        follower, course = self._follower, self._course

        def alarm() -> tuple[float, Event] | None:
            events = follower.events(ALARM, self._at) + follower.events(PROMISE_BROKEN, self._at)
            return min(events, key=lambda event: event[0], default=None)

        at, event = self._wait("the alarm", alarm)
        course.alarm, course.reason = at - self._at, str(event.payload["reason"])
        follower.mark("alarm", f"alarm after {course.alarm:.1f} s: {course.reason}", at)
        at, event = self._wait("a promotion", self._decided)
        if event.name == ROLLBACK:
            raise MissedError(f"release {event.payload['release']} is {event.payload['reason']}")
        course.promoted, course.release = at - self._at, int(event.payload["release"])
        follower.mark("promoted", f"release {course.release} is {event.payload['reason']}", at)
        course.served = self._wait("an answer of the new release", self._served) - self._at
        follower.mark("served", f"release {course.release} answers, {course.served:.0f} s after the change")

    def _wait(self, what: str, ready: Callable[[], T | None]) -> T:
        left = LIMIT - (self._follower.now() - self._at)
        return self._follower.wait(what, max(left, 1.0), ready, self._clients)

    def _decided(self) -> tuple[float, Event] | None:
        """Return the event that ends the trial. Raises `MissedError` where no trial can come any more."""
        last, course = self._follower.last, self._course
        if last.stage == "shadow" and isnan(course.shadow):
            course.shadow = last.at - self._at
        if last.stage == "canary" and isnan(course.canary):
            course.canary = last.at - self._at
        events = self._follower.events(CHAMPION, self._at) + self._follower.events(ROLLBACK, self._at)
        reasons = [(pair, str(pair[1].payload["reason"])) for pair in events]
        # Another alarm may have made a newer challenger, which is followed instead.
        if ours := [pair for pair, reason in reasons if reason.startswith(ENDS) and SUPERSEDED not in reason]:
            return ours[0]
        if self._follower.now() >= self._next_look:
            self._next_look = self._follower.now() + LOOK_SECONDS
            self._note_runs()
        return None

    def _note_runs(self) -> None:
        runs, course = self._given.flow_runs(self._wall), self._course
        for run in runs:
            if not isnan(run.begun) and run.id not in self._seen:
                self._seen.add(run.id)
                at = run.begun - self._wall
                course.flow_begun = at if isnan(course.flow_begun) else course.flow_begun
                self._follower.mark("flow", f"{run.flow} begins, for: {run.reason}", self._at + at)
            if run.state in ENDED and f"{run.id} ended" not in self._seen:
                self._seen.add(f"{run.id} ended")
                course.flow_ended = run.ended - self._wall
                sentence = f"{run.flow} has ended as {run.word}. {run.message}".strip()
                course.runs.append(sentence)
                self._follower.mark("flow ended", sentence, self._at + course.flow_ended)
        over = bool(runs) and all(run.state in ENDED for run in runs) and time.time() - runs[-1].ended > PATIENCE
        release = open_registry(settings.read(), self._system).release(self._system, "challenger") if over else None
        waits = release is not None and release.state in (WAITING, *TRIALS)
        if over and not self._follower.last.stage and not waits:
            raise MissedError(f"no challenger came of it; {self._given.verdict(self._system)}")

    def _served(self) -> float | None:
        since = next((sample.at for sample in self._follower.samples if sample.release == self._course.release), None)
        if since is None:
            return None
        answers = [answer.at for answer in list(self._clients.answers) if answer.at > since and not answer.failure]
        return min(answers) if len(answers) >= SERVED else None
