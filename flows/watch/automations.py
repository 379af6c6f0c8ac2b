"""Prefect's automations for alarms and for what goes wrong at night, and `pliant schedule`, which makes them with a system's
nightly deployments. `python -m pliant.flows.watch.automations` makes the automations alone.

| automation | when | what |
|---|---|---|
| pliant: an alarm of SYSTEM | a service alarms, or its promise is broken | a run of its deployment, with the reason |
| pliant: decisions | an alarm, a refusal by the gate, a step of a trial, a new champion, a rollback | notification |
| pliant: a run failed | a run of a deployment fails, crashes or runs out of time | notification |
| pliant: no run of FLOW | no run completes within 26 h (of one that does not run every day: longer) | notification |
| pliant: no worker | the work pool is not ready: no worker has been heard of for a while | notification |
| pliant: a silent run | a run sends no heartbeat for 15 minutes: its machine is gone | its state becomes Crashed |
| pliant: a hung run | a run is still Running an hour after its limit, which its guard should have kept | it is cancelled |

A notification is a run of `pliant-notify` (notify.py), which needs nothing from outside. It has a work pool of its own, so
that it also runs where no worker takes the trainings. Where there is a Prefect block `pliant-alerts`, a webhook or any kind
of notification, Prefect's server calls it as well, which needs no worker at all.

`within` of an alarm makes one run of a burst of them, which begins when no more are swallowed (`schedule_after`), and so has
seen what every one of them was about.

Running this again changes nothing but what is different. It makes the work pools and `pliant-notify` where they are missing.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_client
from prefect.automations import AutomationCore, EventTrigger, Posture
from prefect.client.schemas.objects import StateType
from prefect.events.actions import CallWebhook, CancelFlowRun, ChangeFlowRunState, RunDeployment, SendNotification
from prefect.exceptions import ObjectNotFound

from pliant import systems
from pliant.errors import InputError, PliantError
from pliant.flows import configuration, settings
from pliant.flows.config import file_of
from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.flows.watch import deployments
from pliant.flows.watch.deployments import NIGHTLY, NOTIFY, POOL
from pliant.flows.watch.notify import ALARM, CHAMPION, PROMISE_BROKEN, REFUSED, ROLLBACK, TRIAL
from pliant.settings import FlowSettings

PREFECT = Path(__file__).parents[1] / "prefect.toml"
PREFIX = "pliant: "
ALARM_PREFIX = f"{PREFIX}an alarm of "
BURST = timedelta(seconds=30)  # within which alarms are one run, and what is told of one run or pool is told once
BLOCK = "pliant-alerts"
DAY = timedelta(days=1)
MISSING = timedelta(hours=26)  # a nightly run, and two hours for the night's other ones
SILENT = timedelta(minutes=15)  # 30 heartbeats
CANCEL_AFTER = timedelta(hours=1)
SAID: Mapping[str, str] = {
    "a run failed": "When a nightly run fails, crashes or runs out of time, people are notified.",
    "decisions": "When a service alarms, a gate refuses, a trial moves or another release is served, people are notified.",
    "no worker": "When the work pool has no worker, people are notified.",
    "a silent run": "When a run sends no heartbeat for 15 minutes, it counts as crashed.",
    "a hung run": "When a run is still running an hour after its limit, it is cancelled.",
    "an alarm of ": "When a service of {0} alarms, or its promise is broken, {0} is trained anew, with the reason.",
    "no run of ": "When no run of {0} has completed for its period and two hours, people are notified.",
}
"""Beginning of an automation's name -> what it does."""
FAILED = ("prefect.flow-run.Failed", "prefect.flow-run.Crashed", "prefect.flow-run.TimedOut")
DECISIONS = (ALARM, PROMISE_BROKEN, REFUSED, TRIAL, CHAMPION, ROLLBACK)
ENDED = (*FAILED, *(f"prefect.flow-run.{name}" for name in ("Completed", "Skipped", "Cancelled", "Cancelling")))


@dataclass(frozen=True, slots=True)
class Deployed:
    """A nightly deployment: its flow's name and its identifier.

    `alarmed_by`: the system whose alarms start it; empty: none. `period`: the longest time between two of its runs.
    """

    flow: str
    identity: UUID
    alarmed_by: str = ""
    period: timedelta = DAY


@dataclass(frozen=True, slots=True)
class Targets:
    """What the automations are about. `block`: identifier of `pliant-alerts` and whether it is a plain webhook, or None."""

    deployments: Sequence[Deployed]
    notify: UUID
    pool: UUID
    block: tuple[UUID, bool] | None = None


def automations(targets: Targets, flow_limit: float, missing: timedelta = MISSING, silent: timedelta = SILENT) -> Any:
    """Return the automations, as Prefect's client takes them. `flow_limit`: the seconds that a flow may take."""

    def runs(*deployments: Deployed) -> dict[str, Any]:
        """Return by what a trigger knows the runs of these deployments."""
        resources = [f"prefect.deployment.{deployed.identity}" for deployed in deployments]
        related = {"prefect.resource.role": "deployment", "prefect.resource.id": resources}
        return {"match": {"prefect.resource.id": "prefect.flow-run.*"}, "match_related": related}

    def start(deployment: UUID, parameters: dict[str, Any], **more: Any) -> Any:
        return RunDeployment(
            source="selected", deployment_id=deployment, parameters=parameters, job_variables=None, **more
        )

    def notify(sentence: str, flow: str) -> list[Any]:
        """Return the actions of a notification. `sentence` may be a template; `flow`: what failed or is missing."""
        actions: list[Any] = [start(targets.notify, {"sentence": sentence, "failed_flow": flow})]
        if targets.block is not None:
            block, webhook = targets.block
            if webhook:
                actions.append(CallWebhook(block_document_id=block, payload=json.dumps({"text": sentence})))
            else:
                actions.append(SendNotification(block_document_id=block, subject="Pliant", body=sentence))
        return actions

    each: dict[str, Any] = {**runs(*targets.deployments), "for_each": {"prefect.resource.id"}}
    ended = (
        "{{ flow.name }}: the run {{ flow_run.name }} ended as {{ flow_run.state.name }}. {{ flow_run.state.message }}"
    )
    alone = f"The work pool {POOL} has no worker: nothing is trained until one is started."
    gone = ChangeFlowRunState(
        name=None, state=StateType.CRASHED, force=True, message="Its process sends no heartbeat any more."
    )
    never, heartbeat = {"posture": Posture.Proactive}, "prefect.flow-run.heartbeat"
    pool = {"match": {"prefect.resource.id": f"prefect.work-pool.{targets.pool}"}, "within": BURST}
    hung = timedelta(seconds=flow_limit) + CANCEL_AFTER
    wanted: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "a run failed": (notify(ended, "{{ flow.name }}"), {"expect": set(FAILED), "within": BURST, **each}),
        "decisions": (
            notify("{{ event.resource.id }}, {{ event.event }}: {{ event.payload.reason }}", ""),
            {"expect": set(DECISIONS), "match": {"prefect.resource.id": "pliant.*"}, "threshold": 1},
        ),
        "no worker": (notify(alone, ""), {"expect": {"prefect.work-pool.not-ready"}, **pool}),
        "a silent run": (
            [gone],
            {"after": {heartbeat}, "expect": {heartbeat, *ENDED}, "within": silent, **never, **each},
        ),
        "a hung run": (
            [CancelFlowRun()],
            {"after": {"prefect.flow-run.Running"}, "expect": set(ENDED), "within": hung, **never, **each},
        ),
    }
    for deployed in targets.deployments:
        if deployed.alarmed_by:
            run = start(deployed.identity, {"reason": "{{ event.payload.reason }}"}, schedule_after=BURST)
            system = {"prefect.resource.id": f"pliant.{deployed.alarmed_by}"}
            trigger = {"expect": {ALARM, PROMISE_BROKEN}, "match": system, "threshold": 1, "within": BURST}
            wanted[f"an alarm of {deployed.alarmed_by}"] = [run], trigger
        within = missing + deployed.period - DAY
        sentence = f"{deployed.flow}: no run has completed for {within.total_seconds() / 3600:.3g} hours."
        trigger = {"expect": {"prefect.flow-run.Completed"}, "within": within, **never, **runs(deployed)}
        wanted[f"no run of {deployed.flow}"] = notify(sentence, deployed.flow), trigger
    result = [
        AutomationCore(
            name=f"{PREFIX}{name}", description=_said(name), trigger=EventTrigger(**trigger), actions=actions
        )
        for name, (actions, trigger) in wanted.items()
    ]
    # With every field set: Prefect's client leaves out of an update what has its default, and the server wants it.
    return [AutomationCore.model_validate(automation.model_dump(exclude={"owner_resource"})) for automation in result]


def _said(name: str) -> str:
    """Return what an automation is there for: what Prefect's pages call a custom trigger, in a sentence."""
    what = next(part for part in SAID if name.startswith(part))
    return SAID[what].format(name.removeprefix(what))


def install(missing: timedelta = MISSING, silent: timedelta = SILENT, prefix: str = PREFIX) -> list[str]:
    """Make Prefect's automations what `automations` says, and return their names. Raises `PliantError`.

    `prefix`: of the names of those that are to be there, where they are not all.
    """
    with get_client(sync_client=True) as client:
        every = automations(_targets(client), 3600 * FlowSettings.read().flow_hours, missing, silent)
        wanted = [automation for automation in every if automation.name.startswith(prefix)]
        present = [each for each in client.read_automations() if each.name.startswith(PREFIX)]
        for automation in wanted:
            same = [each for each in present if each.name == automation.name]
            if not same:
                client.create_automation(automation)
            elif _plain(same[0], automation) != _plain(automation, automation):
                client.update_automation(same[0].id, automation.model_copy(update={"enabled": same[0].enabled}))
            for double in same[1:]:
                client.delete_automation(double.id)
        names = [automation.name for automation in wanted]
        for each in present:
            if each.name not in names:  # of a deployment that is no more
                client.delete_automation(each.id)
    return names


def _targets(client: Any) -> Targets:
    try:
        notify = client.read_deployment_by_name(NOTIFY)
        pool = client.read_work_pool(POOL)
    except ObjectNotFound as error:
        raise PliantError(
            f"Prefect's server lacks what tells people of failures ({error}): run `python -m pliant.flows.watch.automations`"
        ) from None
    flows = {flow.id: flow.name for flow in client.read_flows()}
    by = {
        flow.flow: name for name in systems.names() for flow in deployments.nightly_flows(name).values() if flow.alarmed
    }
    named = [(flows[each.flow_id], each) for each in client.read_deployments() if each.name.endswith(f"-{NIGHTLY}")]
    nightly = []
    for flow, each in named:
        periods = [period(getattr(schedule.schedule, "cron", "* * * * *")) for schedule in each.schedules]
        nightly.append(Deployed(flow, each.id, by.get(flow, ""), max(periods, default=DAY)))
    blocks = [each for each in client.read_block_documents(include_secrets=False) if each.name == BLOCK]
    block = (blocks[0].id, blocks[0].block_type.slug == "webhook") if blocks else None
    return Targets(sorted(nightly, key=lambda deployed: deployed.flow), notify.id, pool.id, block)


def period(cron: str) -> timedelta:
    """Return the longest time between two moments of a cron expression: a day, a week, a month or a year."""
    cron = {"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}.get(
        cron, cron
    )
    day, month, weekday = (cron.split() + ["*"] * 5)[2:5]
    if month != "*":
        return 366 * DAY
    return DAY if day == weekday == "*" else 7 * DAY if day == "*" else 31 * DAY


def _plain(automation: Any, wanted: Any) -> Any:
    """Return what decides whether an automation is the one that is wanted: updating one forgets what it has counted, such as
    25 hours. Whoever switched one off has a reason. What Prefect keeps as sets, lists of words, is in its order."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ordered(each) for key, each in value.items() if key != "id"}
        if isinstance(value, list):
            values = [ordered(each) for each in value]
            return sorted(values) if all(isinstance(each, str) for each in values) else values
        return value

    fields = set(type(wanted).model_fields) - {"owner_resource", "enabled"}
    return ordered(automation.model_dump(mode="json", include=fields))


def schedule(project: Settings, system: str, config: Path | None, cron: str | None, zone: str) -> list[str]:
    """Make or update work pools, deployments and automations of a system, and return sentences on what there is now.

    `cron`: of the system's first flow, in the time zone `zone`; others follow an hour later each. Raises `PliantError`
    where nothing says what is to be trained, or no Prefect server answers.
    """
    if config is not None:
        config = file_of(config)
        systems.system(system).part("flows", "config").read(config)
        of = f"the configuration of {config.absolute()}"
    else:
        registry = open_registry(project, system)
        live = registry.release(system) if registry.exists() else None
        configuration.kept_by(live, system)
        of = f"the configuration of the release that is served then (now release {live.number if live else 0})"
    flows = list(deployments.nightly_flows(system).values())
    times = [flow.cron if cron is None else later(cron, hours) for hours, flow in enumerate(flows)]
    address = deployments.check_server()
    deployments.prepare()
    parameters: dict[str, Any] = {"nightly": True} | ({"config": str(config.absolute())} if config else {})
    lines = []
    for flow, time in zip(flows, times, strict=True):
        active = deployments.deploy(flow, parameters, time, zone)
        paused = (
            "" if active else f" Its schedule is paused; `prefect deployment schedule ls {flow.deployment}` shows it."
        )
        lines.append(f"{flow.deployment} runs at {time} ({zone}) with {of}.{paused}")
    install()
    folder = Path(FlowSettings.read().project or Path.cwd())  # the workers'
    if folder.is_dir() and not (folder / PREFECT.name).exists():
        shutil.copyfile(PREFECT, folder / PREFECT.name)
        lines.append(f"{folder / PREFECT.name} is new: workers that are started there outlast an outage of Prefect.")
    lines.append(
        f"Prefect's server at {address} keeps it; `prefect worker start --pool {deployments.POOL}` carries it out, and "
        f"`prefect worker start --pool {deployments.NOTIFY_POOL}` tells people what failed."
    )
    return lines


def later(cron: str, hours: int) -> str:
    """Return a cron expression some hours later. Raises `InputError` where it names no single hour."""
    fields = cron.split()
    if hours == 0:
        return cron
    if len(fields) < 2 or not fields[1].isdecimal():
        raise InputError("--cron", repr(cron), "one with a single hour: a second flow of the system runs an hour later")
    return " ".join([fields[0], str((int(fields[1]) + hours) % 24), *fields[2:]])


def main() -> int:
    """Install, and print what there is. Returns the exit status."""
    settings.prepare()
    try:
        deployments.check_server()
        deployments.prepare()
        names = install()
    except PliantError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print("\n".join(names))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
