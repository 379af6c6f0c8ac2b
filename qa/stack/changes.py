"""Changes planted in a running service, and what follows without a hand, from the alarm to the release that is served.

Everything is real: a Prefect server with the deployments of the nights and what alarms start, a worker, a service with its
watch and its trials, a registry, and clients over HTTP. Nothing here starts a flow once the first release is served: the
service's event does, by Prefect's trigger. The models have the demo's sizes, and trials are shorter than by default.

What a system plants and how its clients speak is in `qa.stack.plans`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from math import inf, isnan, nan
from typing import Any, TypeVar
from unittest.mock import patch

from pliant.benchmarks.demo.story import ENDS, clear, own_environment
from pliant.benchmarks.demo.story_follow import Follower, MissedError
from pliant.benchmarks.demo.story_load import Clients
from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.serving.events import ALARM, CHAMPION, PROMISE_BROKEN, ROLLBACK, Event
from qa.prefect_server import ENDED, Server, night
from qa.stack.plans import PLANS
from qa.targets import say

LIMIT = 15 * 60.0  # seconds from a change to the first answer of what was learnt from it
TRAINING = 1800.0  # seconds within which a first release is there
SLOW = ("agreement of ",)
"""How streams begin that need hours to know what is usual, and are not waited for."""
LEARNING = 600.0  # seconds within which the watch knows what is usual
SETTLED = 5.0  # seconds between what is usual and the change
DEADLINE = 30.0  # seconds of each request, so that none is refused because the machine is slow or trains meanwhile
LABELLED = 0.2  # share of the answers, where clients label any
SERVED = 20  # answers of the new release that are waited for
LOOK_SECONDS = 2.0  # between two looks at Prefect's runs
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


def has_learnt(status: Mapping[str, Any]) -> bool:
    """Return whether a watch knows what is usual, by its service's status."""
    rows = [row for row in (status.get("watch") or {}).get("streams", ()) if not row["stream"].startswith(SLOW)]
    return bool(rows) and all(row["state"] != "learning" for row in rows)


def changes(system: str, context: Context) -> Measured:
    """Plant the changes of a system one after the other, and follow each."""
    home, courses = settings.read().home / "bench" / "changes" / system, list[Course]()
    with (
        own_environment(home),
        patch.dict(os.environ, ENVIRONMENT),
        context.stage(f"changes in {system}") as progress,
        ExitStack() as running,
    ):
        project = settings.read()
        clear(home)
        (home / "mlruns").mkdir(parents=True, exist_ok=True)
        settings.prepare(project)
        plan = PLANS[system](project.home)
        given = running.enter_context(night(project, plan.parameters))
        first = given.await_end(given.start(given.deployment(f"{system}/{system}-nightly")), TRAINING)
        if first.state != "COMPLETED":
            raise PliantError(f"the first flow of {system} ended as {first.word}: {first.message}")
        options = {**SERVICE, **plan.service}
        journal = project.home / "journals" / f"{system}.jsonl"
        address = running.enter_context(serving(system, 0, project, journal=journal, **options))
        follower = Follower(project.home, system, say)
        running.enter_context(follower.running(address + plan.status))
        clients = Clients(address, plan.speech, plan.before, plan.rate, DEADLINE, follower.start, LABELLED)
        running.enter_context(clients.running())

        def learnt() -> bool | None:
            stage = (follower.status.get("trial") or {}).get("stage", "guard")  # in its guard a release is the champion
            return (has_learnt(follower.status) and stage == "guard") or None

        for number, planted in enumerate(plan.planted, start=1):
            course = Course(planted.name, planted.name == plan.known)
            courses.append(course)
            try:
                follower.wait("what is usual", LEARNING, learnt, clients)
                time.sleep(SETTLED)
                follower.mark("learnt", "the watch knows what is usual")
                clients.mix = planted
                follower.mark("change", f"the change: {planted.name}")
                pursue(system, given, follower, clients, course)
            except (MissedError, PliantError) as error:
                course.trouble = str(error)
            progress(number, len(plan.planted))
    say(f"{clients.labels} labels were taken, {clients.refused_labels} were not")
    say(*(f"failed: {failure.failure}" for failure in clients.failures[:5]))
    say(*(f"{course.change}: {course.trouble or f'served after {course.served:.0f} s'}" for course in courses))
    done, new = sum(course.served <= LIMIT for course in courses), [course for course in courses if not course.known]
    done_new = sum(course.served <= LIMIT for course in new)
    worst = max(inf if isnan(course.served) else course.served for course in new)
    sent, failed = len(clients.answers), len(clients.failures)
    targets = [Target(f"{system}: planted changes served without a hand within 15 minutes", done, ">=", len(courses))]
    if len(new) < len(courses):
        name = f"{system}: the same, of changes that the first release did not know"
        targets.append(Target(name, done_new, ">=", len(new)))
    targets += [
        Target(f"{system}: from a change to the first answer of what was learnt, worst", worst, "<=", LIMIT, "s"),
        Target(f"{system}: requests that failed meanwhile", failed, "<=", 0, f"of {sent:,}"),
    ]
    return targets, {
        "courses": [asdict(course) for course in courses],
        "rate": plan.rate,
        "service": options,
        "sent": sent,
    }


def pursue(system: str, given: Server, follower: Follower, clients: Clients, course: Course) -> None:
    """Follow one change to the first answers of what was learnt from it.

    Raises `MissedError` where the change is not answered in time.
    """
    begun, wall, seen, next_look, since = follower.now(), time.time(), set[str](), 0.0, inf

    def wait(what: str, ready: Callable[[], T | None]) -> T:
        return follower.wait(what, max(LIMIT - (follower.now() - begun), 1.0), ready, clients)

    def alarm() -> tuple[float, Event] | None:
        events = follower.events(ALARM, begun) + follower.events(PROMISE_BROKEN, begun)
        return min(events, key=lambda event: event[0], default=None)

    def decided() -> tuple[float, Event] | None:
        """Return the event of the promotion, and note what refuses meanwhile: another alarm may follow."""
        nonlocal next_look
        stage = str((follower.status.get("trial") or {}).get("stage", ""))
        if stage == "shadow" and isnan(course.shadow):
            course.shadow = follower.now() - begun
        if stage == "canary" and isnan(course.canary):
            course.canary = follower.now() - begun
        for at, event in follower.events(CHAMPION, begun):
            if str(event.payload["reason"]).startswith(ENDS):
                return at, event
        if follower.now() < next_look:
            return None
        next_look = follower.now() + LOOK_SECONDS
        for run in given.flow_runs(wall):
            if not isnan(run.begun) and run.id not in seen:
                seen.add(run.id)
                at = run.begun - wall
                course.flow_begun = at if isnan(course.flow_begun) else course.flow_begun
                follower.mark("flow", f"{run.flow} begins, for: {run.reason}", begun + at)
            if run.state in ENDED and f"{run.id} ended" not in seen:
                seen.add(f"{run.id} ended")
                course.flow_ended = run.ended - wall
                verdict = given.verdict(system)
                course.runs.append(f"{run.flow} has ended as {run.word}. {run.message} {verdict}".strip())
                follower.mark("flow ended", course.runs[-1], begun + course.flow_ended)
        for at, event in follower.events(ROLLBACK, begun):
            if (note := f"release {event.payload['release']} is {event.payload['reason']}") not in course.runs:
                course.runs.append(note)
                follower.mark("taken back", note, at)
        return None

    def served() -> float | None:
        nonlocal since
        if follower.status.get("release") == course.release:
            since = min(since, follower.now())
        answers = [answer.at for answer in list(clients.answers) if answer.at > since and not answer.failure]
        return min(answers) if len(answers) >= SERVED else None

    at, event = wait("the alarm", alarm)
    course.alarm, course.reason = at - begun, str(event.payload["reason"])
    follower.mark("alarm", f"alarm after {course.alarm:.1f} s: {course.reason}", at)
    at, event = wait("a promotion", decided)
    course.promoted, course.release = at - begun, int(event.payload["release"])
    follower.mark("promoted", f"release {course.release} is {event.payload['reason']}", at)
    course.served = wait("an answer of the new release", served) - begun
    follower.mark("served", f"release {course.release} answers, {course.served:.0f} s after the change")
