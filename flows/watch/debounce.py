"""Alarms start a flow at most so often, never beside a running one, and are not forgotten.

What Prefect does: a reactive trigger fires at the first event and then swallows those of its `within`, so a burst of alarms
is one run; a deployment's concurrency limit of 1 makes a run that comes during another wait for its end. What it does not:
bound how often a deployment runs, or know that a run answers an alarm that came before it began. So a triggered run looks
at the former runs of its deployment when its turn comes, and either

- works, if none of the following holds,
- ends as `Skipped`, if a run that began after the alarm has completed: it has seen all that the alarm was about,
- ends as `Skipped` and leaves one run for later, if alarms have started a run less than the least time ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

TAG = "alarm"
SKIPPED = "Skipped"
LATEST = 50  # runs of the deployment that are looked at


@dataclass(frozen=True, slots=True)
class FormerRun:
    """A run of the same deployment that has begun. `alarm`: whether an alarm caused it, and it worked."""

    identity: str
    name: str
    started: datetime
    completed: bool
    skipped: bool
    alarm: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """`sentence`: why the run does not work, empty if it does. `at`: when another one should, `after` which run."""

    sentence: str = ""
    at: datetime | None = None
    after: str = ""


def decide(created: datetime, now: datetime, spacing: timedelta, former: Sequence[FormerRun]) -> Decision:
    """Return whether a run works whose alarm came at `created` (with a zone, as all times here)."""
    worked = [run for run in former if not run.skipped]
    for run in worked:
        if run.completed and created <= run.started <= now:  # one of the future began under a clock that was ahead
            return Decision(f"The alarm was answered by the run {run.name}, which began after it.")
    latest = max((run for run in worked if run.alarm), key=lambda run: run.started, default=None)
    if (
        latest is None or latest.started + spacing <= now or latest.started > now
    ):  # a clock that was set back is no reason
        return Decision()
    at = latest.started + spacing
    sentence = (
        f"An alarm has started the run {latest.name} less than {_words(spacing)} ago (PLIANT_ALARM_MINUTES); "
        f"another one follows at {at:%H:%M} UTC."
    )
    return Decision(sentence, at, latest.identity)


def check(run: Any, spacing: float) -> Decision:
    """Decide for a Prefect flow run of a deployment: tag it if it works, schedule the later one if there is to be one.

    Two runs that are to follow the same one are one run, since they have the same idempotency key.
    """
    from prefect import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Scheduled

    deployment: UUID = run.deployment_id
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment])),
            sort=FlowRunSort.START_TIME_DESC,
            limit=LATEST,
        )
        former = [_former(each) for each in runs if each.start_time is not None and each.id != run.id]
        decision = decide(_zoned(run.created), datetime.now(UTC), timedelta(seconds=spacing), former)
        if not decision.sentence:
            client.update_flow_run(run.id, tags=sorted({*run.tags, TAG}))
        if decision.at is not None:
            client.create_flow_run_from_deployment(
                deployment,
                parameters=run.parameters,
                state=Scheduled(scheduled_time=decision.at),
                idempotency_key=f"{TAG}-after-{decision.after}",
            )
    return decision


def _former(run: Any) -> FormerRun:
    name = run.state_name or ""
    completed = name != SKIPPED and run.state is not None and run.state.is_completed()
    return FormerRun(str(run.id), run.name, _zoned(run.start_time), completed, name == SKIPPED, TAG in run.tags)


def _zoned(moment: datetime | None) -> datetime:
    if moment is None:
        return datetime.now(UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _words(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    return f"{minutes:.0f} minutes" if minutes >= 2 else f"{span.total_seconds():.0f} seconds"
