"""What every flow of a system does around its work: it is guarded against hanging, and answers the alarm that started it.

A run of a deployment ends with its process once its time is over (`guard`), and a registry that lets nobody in ends any run
before its work. One with a `reason` is debounced, has the drift report on its page, and its reason
as a tag on the MLflow runs of what it published.

The report shows what a service has written down of its watch in `PLIANT_HOME/watch/SYSTEM.json`. Only the key `alarms` is
read, leniently: a list of `{"stream", "sentence", "evidence", "at", "observations"}`, of which any may be missing.

Alarms start a flow at most so often, never beside a running one, and none is forgotten. What Prefect does: reactive triggers
fire at the first event and then swallow those of their `within`, so a burst of alarms is one run; a deployment's concurrency
limit of 1 makes a run that comes during another wait for its end. What it does not: bound how often a deployment runs, or
know that a run answers an alarm that came before it began. So a triggered run looks at the former runs of its deployment
when its turn comes, and either

- works, if none of the following holds,
- ends as `Skipped`, if a run that began after the alarm has completed: it has seen all that the alarm was about,
- ends as `Skipped` and leaves one run for later, if alarms have started a run less than the least time ago.

One whose gate refuses leaves a run for later, too: labels of the changed traffic come meanwhile, and at first they are few.

One that a schedule or an alarm started ends as `Skipped`, too, and asks, once the week's hours of the system are used up.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, cast
from uuid import UUID

from prefect import get_client
from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterDeploymentId
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL
from prefect.states import Completed, Scheduled

from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.release import Release, check_registry, current_run, open_registry, retried
from pliant.flows.watch.guard import PrefectRun, guarded, with_grace
from pliant.flows.watch.notify import REFUSED, emit
from pliant.registry import decisions
from pliant.registry.mlflow_switch import spent
from pliant.settings import FlowSettings

TAG, TRY = "alarm", "try-"
SKIPPED = "Skipped"
WEEK = timedelta(days=7)
LATEST = 50  # runs of the deployment that are looked at
TRIES = 6  # for one alarm, each after twice the time of the last: within a day and a half by default

logger = logging.getLogger("pliant")

P = ParamSpec("P")

REASON = "pliant.reason"
"""Tag of an MLflow run: the alarm that started the flow."""
COLUMNS: Mapping[str, str] = {
    "stream": "stream",
    "evidence": "evidence",
    "at": "since",
    "observations": "observations",
    "sentence": "what was noticed",
}
"""Key of an alarm -> heading of its column; a column that no alarm fills is left out."""
MOST_ALARMS, MOST_CHARACTERS = 50, 300


def triggered(system: str, function: Callable[P, dict[str, Any]]) -> Callable[P, dict[str, Any]]:
    """Return the function with what surrounds it in a run of Prefect; without a run it is the function alone."""
    signature = inspect.signature(function)

    @wraps(function)
    def surrounded(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:

        run = current_run()
        reason = signature.bind(*args, **kwargs).arguments.get("reason")
        if run is None:
            return function(*args, **kwargs)
        deployed = run.deployment_id is not None
        # A run from a command line is watched by whoever typed it, and has Prefect's timeout.
        limits = FlowSettings.read()
        address = PREFECT_API_URL.value()
        secrets = (_plain(each.value()) for each in (PREFECT_API_KEY, PREFECT_API_AUTH_STRING))
        reached = PrefectRun(str(address), str(run.id), *secrets) if address else None
        with guarded(with_grace(3600 * limits.flow_hours), reached) if deployed else nullcontext():
            sentence = debounced(run, 60 * limits.alarm_minutes).sentence if reason and deployed else ""
            if deployed and (reason or run.auto_scheduled):
                sentence = sentence or over_budget(system, limits.training_hours_per_week)
            if sentence:
                nothing = asdict(Release(False, sentence, {}, (), ""))
                return cast(Any, Completed(name=SKIPPED, message=sentence, data=nothing))  # type: ignore[no-any-return]
            check_registry(settings.read(), system, patient=deployed)
            if reason:
                text = to_markdown(system, reason, read_alarms(state_file(settings.read().home_of(system), system)))
                about = "What was noticed, and why this run was started"
                create_markdown_artifact(text, key=f"{system}-drift", description=about)
            released = function(*args, **kwargs)
            if reason:
                tag_runs(system, reason, released)
                if deployed and not released["promoted"]:
                    try_again(run, timedelta(minutes=limits.alarm_minutes))
            return released

    return surrounded


def over_budget(system: str, hours: float | None) -> str:
    """Return why a run that no person started does not train, which is sent and logged, too; empty where it may."""
    registry = open_registry(settings.read(), system)
    if hours is None or not registry.exists():
        return ""
    taken = retried(lambda: spent(registry, WEEK)) / 3600
    if taken < hours:
        return ""
    sentence = (
        f"{system} is not trained: its runs of the last seven days took {taken:.3g} hours (PLIANT_TRAINING_HOURS_PER_WEEK: "
        f"{hours:g}); `pliant train {system}` does so nevertheless."
    )
    emit(REFUSED, system, {"reason": sentence})
    if (live := registry.release(system)) is not None:
        decisions.write(registry, "not retrained", live, sentence, live)
    return sentence


def tag_runs(system: str, reason: str, released: Mapping[str, Any]) -> None:
    """Set the reason as a tag of the MLflow runs that published, if any did."""
    if identities := str(released.get("run", "")).split():
        client = open_registry(settings.read(), system).connect()
        for identity in identities:
            try:
                client.set_tag(identity, REASON, reason)
            except Exception as error:  # MLflow's own, which only registry/mlflow_* may import
                raise RegistryError(f"the reason could not be noted on the MLflow run {identity}: {error}") from error


def follow_up(deployment: str, reason: str) -> None:
    """Start a run of another deployment for the same reason, and await nothing; without such a deployment do nothing.

    It has its own place in the line of that deployment's runs, so it never runs beside another one of them.
    """
    try:
        run_deployment(deployment, parameters={"reason": reason}, timeout=0, as_subflow=False)
    except ObjectNotFound:
        logger.warning("nothing follows %r: there is no deployment %s", reason, deployment)


def _plain(secret: Any) -> str | None:
    """Return a setting that Prefect may keep from being printed."""
    value = secret.get_secret_value() if hasattr(secret, "get_secret_value") else secret
    return str(value) if value else None


def state_file(home: Path, system: str) -> Path:
    """Return where a system's service keeps the state of its watch."""
    return home / "watch" / f"{system}.json"


def read_alarms(path: Path) -> list[Mapping[str, Any]]:
    """Return the alarms of a watch's state, the first `MOST_ALARMS`; empty where the file is missing or is none."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    alarms = state.get("alarms") if isinstance(state, Mapping) else None
    return [alarm for alarm in alarms if isinstance(alarm, Mapping)][:MOST_ALARMS] if isinstance(alarms, list) else []


def to_markdown(system: str, reason: str, alarms: Sequence[Mapping[str, Any]]) -> str:
    """Return the report: the reason, and a table of alarms where there are any."""
    lines = [f"# {system}: why this run was started", "", _cell(reason)]
    columns = [key for key in COLUMNS if any(alarm.get(key) is not None for alarm in alarms)]
    if columns:
        rows = [[COLUMNS[key] for key in columns], ["---"] * len(columns)]
        rows += [[_cell(alarm.get(key)) for key in columns] for alarm in alarms]
        lines += ["", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _cell(value: object) -> str:
    """Return a value as a cell of a table: one line of bounded length, without what Markdown or HTML would act on."""
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    for character, replacement in {"\\": "\\\\", "|": "\\|", "<": "&lt;", "`": "'", "[": "\\[", "!": "&#33;"}.items():
        text = text.replace(character, replacement)
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."


@dataclass(frozen=True, slots=True)
class FormerRun:
    """A run of the same deployment that has begun and worked. `alarm`: whether an alarm caused it."""

    identity: str
    name: str
    started: datetime
    completed: bool
    alarm: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """`sentence`: why the run does not work, empty if it does. `at`: when another one should, `after` which run."""

    sentence: str = ""
    at: datetime | None = None
    after: str = ""


def decide(created: datetime, now: datetime, spacing: timedelta, former: Sequence[FormerRun]) -> Decision:
    """Return whether a run works whose alarm came at `created` (with a zone, as all times here)."""
    for run in former:
        if run.completed and created <= run.started <= now:  # one of the future began under a clock that was ahead
            return Decision(f"The alarm was answered by the run {run.name}, which began after it.")
    latest = max((run for run in former if run.alarm), key=lambda run: run.started, default=None)
    # That one began later than now, as the clock was set back, is no reason.
    if latest is None or latest.started + spacing <= now or latest.started > now:
        return Decision()
    at, minutes = latest.started + spacing, spacing.total_seconds() / 60
    words = f"{minutes:.0f} minutes" if minutes >= 2 else f"{60 * minutes:.0f} seconds"
    sentence = (
        f"An alarm has started the run {latest.name} less than {words} ago (PLIANT_ALARM_MINUTES); "
        f"another one follows at {at:%H:%M} UTC."
    )
    return Decision(sentence, at, latest.identity)


def debounced(run: Any, spacing: float) -> Decision:
    """Decide for a Prefect flow run of a deployment: tag it if it works, schedule the later one if there is to be one.

    Two runs that are to follow the same one are one run, since they have the same idempotency key.
    """
    deployment: UUID = run.deployment_id
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(
            flow_run_filter=FlowRunFilter(deployment_id=FlowRunFilterDeploymentId(any_=[deployment])),
            sort=FlowRunSort.START_TIME_DESC,
            limit=LATEST,
        )
        former = [
            FormerRun(
                identity=str(each.id),
                name=each.name,
                started=_zoned(each.start_time),
                completed=each.state is not None and each.state.is_completed(),
                alarm=TAG in each.tags,
            )
            for each in runs
            if each.start_time is not None and each.id != run.id and each.state_name != SKIPPED
        ]
        decision = decide(_zoned(run.created), datetime.now(UTC), timedelta(seconds=spacing), former)
        if not decision.sentence:
            client.update_flow_run(run.id, tags=sorted({*run.tags, TAG}))
        if decision.at is not None:
            client.create_flow_run_from_deployment(
                deployment,
                parameters=run.parameters,
                state=Scheduled(scheduled_time=decision.at),
                tags=[tag for tag in run.tags if tag.startswith(TRY)],
                idempotency_key=f"{TAG}-after-{decision.after}",
            )
    return decision


def try_again(run: Any, spacing: timedelta) -> None:
    """Schedule a run of the same deployment for the same alarm, after twice the time of the last; none after `TRIES`."""
    number = max((int(tag.removeprefix(TRY)) for tag in run.tags if tag.startswith(TRY)), default=1)
    if number < TRIES:
        at = datetime.now(UTC) + spacing * 2 ** (number - 1)
        with get_client(sync_client=True) as client:
            client.create_flow_run_from_deployment(
                run.deployment_id,
                parameters=run.parameters,
                state=Scheduled(scheduled_time=at),
                tags=[f"{TRY}{number + 1}"],
                idempotency_key=f"{TRY}{run.id}",
            )
        logger.info("the gate refused: another run follows at %s UTC, as an alarm stands", f"{at:%H:%M}")


def _zoned(moment: datetime | None) -> datetime:
    if moment is None:
        return datetime.now(UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
