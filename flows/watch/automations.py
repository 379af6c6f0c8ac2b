"""Prefect's automations for alarms and for what goes wrong at night: `python -m pliant.flows.watch.automations`.

| automation | when | what |
|---|---|---|
| pliant: an alarm of SYSTEM | a service alarms, or its promise is broken | a run of its deployment, with the reason |
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

Running this again changes nothing but what is different. It makes the work pools and `pliant-notify` where they are missing,
and no nightly deployment: `pliant schedule SYSTEM` does (schedule.py), and then all of this.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pliant import systems
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.flows.watch import deployments
from pliant.flows.watch.deployments import NIGHTLY, NOTIFY, POOL
from pliant.flows.watch.notify import ALARM, PROMISE_BROKEN

PREFIX = "pliant: "
ALARM_PREFIX = f"{PREFIX}an alarm of "
BURST = timedelta(seconds=30)  # within which alarms are one run, and what is told of one run or pool is told once
BLOCK = "pliant-alerts"
DAY = timedelta(days=1)
MISSING = timedelta(hours=26)  # a nightly run, and two hours for the night's other ones
SILENT = timedelta(minutes=15)  # 30 heartbeats
CANCEL_AFTER = timedelta(hours=1)
FAILED = ("prefect.flow-run.Failed", "prefect.flow-run.Crashed", "prefect.flow-run.TimedOut")
ENDED = (*FAILED, *(f"prefect.flow-run.{name}" for name in ("Completed", "Skipped", "Cancelled", "Cancelling")))
RUNS: Mapping[str, Any] = {"prefect.resource.id": "prefect.flow-run.*"}


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
    from prefect.automations import AutomationCore, Posture
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import CancelFlowRun, ChangeFlowRunState, RunDeployment

    ours = _related(targets.deployments)
    each: dict[str, Any] = {"match": dict(RUNS), "match_related": ours, "for_each": {"prefect.resource.id"}}
    ended = (
        "{{ flow.name }}: the run {{ flow_run.name }} ended as {{ flow_run.state.name }}. {{ flow_run.state.message }}"
    )
    alone = f"The work pool {POOL} has no worker: nothing is trained until one is started."
    gone = ChangeFlowRunState(
        name=None, state=StateType.CRASHED, force=True, message="Its process sends no heartbeat any more."
    )
    never, heartbeat = {"posture": Posture.Proactive}, "prefect.flow-run.heartbeat"
    pool = {"prefect.resource.id": f"prefect.work-pool.{targets.pool}"}
    result = [
        _automation(
            "a run failed", _notify(targets, ended, "{{ flow.name }}"), expect=set(FAILED), within=BURST, **each
        ),
        _automation(
            "no worker", _notify(targets, alone, ""), expect={"prefect.work-pool.not-ready"}, match=pool, within=BURST
        ),
        _automation(
            "a silent run", [gone], after={heartbeat}, expect={heartbeat, *ENDED}, within=silent, **never, **each
        ),
        _automation(
            "a hung run",
            [CancelFlowRun()],
            after={"prefect.flow-run.Running"},
            expect=set(ENDED),
            within=timedelta(seconds=flow_limit) + CANCEL_AFTER,
            **never,
            **each,
        ),
    ]
    for deployed in targets.deployments:
        if deployed.alarmed_by:
            reason = {"reason": "{{ event.payload.reason }}"}
            start = RunDeployment(
                source="selected",
                deployment_id=deployed.identity,
                parameters=reason,
                job_variables=None,
                schedule_after=BURST,
            )
            system = {"prefect.resource.id": f"pliant.{deployed.alarmed_by}"}
            alarms = {ALARM, PROMISE_BROKEN}
            name = ALARM_PREFIX.removeprefix(PREFIX) + deployed.alarmed_by
            result.append(_automation(name, [start], expect=alarms, match=system, threshold=1, within=BURST))
        within = missing + deployed.period - DAY
        sentence = f"{deployed.flow}: no run has completed for {within.total_seconds() / 3600:.3g} hours."
        actions = _notify(targets, sentence, deployed.flow)
        own: dict[str, Any] = {"match": dict(RUNS), "match_related": _related([deployed])}
        completed = {"prefect.flow-run.Completed"}
        result.append(
            _automation(f"no run of {deployed.flow}", actions, expect=completed, within=within, **never, **own)
        )
    # With every field set: Prefect's client leaves out of an update what has its default, and the server wants it.
    return [AutomationCore.model_validate(automation.model_dump(exclude={"owner_resource"})) for automation in result]


def _automation(name: str, actions: list[Any], **trigger: Any) -> Any:
    from prefect.automations import AutomationCore, EventTrigger

    return AutomationCore(name=f"{PREFIX}{name}", trigger=EventTrigger(**trigger), actions=actions)


def _related(deployments: Sequence[Deployed]) -> dict[str, Any]:
    """Return by what a trigger knows the runs of these deployments."""
    resources = [f"prefect.deployment.{deployed.identity}" for deployed in deployments]
    return {"prefect.resource.role": "deployment", "prefect.resource.id": resources}


def _notify(targets: Targets, sentence: str, flow: str) -> list[Any]:
    """Return the actions of a notification. `sentence` may be a template; `flow`: what failed or is missing, or empty."""
    from prefect.events.actions import CallWebhook, RunDeployment, SendNotification

    parameters = {"sentence": sentence, "failed_flow": flow}
    actions: list[Any] = [
        RunDeployment(source="selected", deployment_id=targets.notify, parameters=parameters, job_variables=None)
    ]
    if targets.block is not None:
        block, webhook = targets.block
        if webhook:
            actions.append(CallWebhook(block_document_id=block, payload=json.dumps({"text": sentence})))
        else:
            actions.append(SendNotification(block_document_id=block, subject="Pliant", body=sentence))
    return actions


def install(
    flow_limit: float, missing: timedelta = MISSING, silent: timedelta = SILENT, prefix: str = PREFIX
) -> list[str]:
    """Make Prefect's automations what `automations` says, and return their names. Raises `PliantError`.

    `prefix`: of the names of those that are to be there, where they are not all.
    """
    from prefect import get_client

    with get_client(sync_client=True) as client:
        every = automations(_targets(client), flow_limit, missing, silent)
        wanted = [automation for automation in every if automation.name.startswith(prefix)]
        present = [each for each in client.read_automations() if each.name.startswith(PREFIX)]
        for automation in wanted:
            same = [each for each in present if each.name == automation.name]
            if not same:
                client.create_automation(automation)
            elif _differs(same[0], automation):
                client.update_automation(same[0].id, automation.model_copy(update={"enabled": same[0].enabled}))
            for double in same[1:]:
                client.delete_automation(double.id)
        names = [automation.name for automation in wanted]
        for each in present:
            if each.name not in names:  # of a deployment that is no more
                client.delete_automation(each.id)
    return names


def _targets(client: Any) -> Targets:
    from prefect.exceptions import ObjectNotFound

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
    named = [(flows[each.flow_id], each) for each in client.read_deployments() if each.name == NIGHTLY]
    nightly = [Deployed(flow, each.id, by.get(flow, ""), _period(each.schedules)) for flow, each in named]
    blocks = [each for each in client.read_block_documents(include_secrets=False) if each.name == BLOCK]
    block = (blocks[0].id, blocks[0].block_type.slug == "webhook") if blocks else None
    return Targets(sorted(nightly, key=lambda deployed: deployed.flow), notify.id, pool.id, block)


def _period(schedules: Sequence[Any]) -> timedelta:
    """Return the longest time between two runs of a deployment, to the day, month or year; a day without a schedule."""
    return max((period(getattr(each.schedule, "cron", "* * * * *")) for each in schedules), default=DAY)


def period(cron: str) -> timedelta:
    """Return the longest time between two moments of a cron expression: a day, a week, a month or a year."""
    cron = {"@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *"}.get(
        cron, cron
    )
    day, month, weekday = (cron.split() + ["*"] * 5)[2:5]
    if month != "*":
        return 366 * DAY
    return DAY if day == weekday == "*" else 7 * DAY if day == "*" else 31 * DAY


def _differs(present: Any, wanted: Any) -> bool:
    """Whether an automation is another than it should be; updating one forgets what it has counted, such as 25 hours."""
    fields = set(type(wanted).model_fields) - {"owner_resource", "enabled"}  # whoever switched one off has a reason
    return bool(_plain(present, fields) != _plain(wanted, fields))


def _plain(automation: Any, fields: set[str]) -> Any:
    return _ordered(automation.model_dump(mode="json", include=fields))


def _ordered(value: Any) -> Any:
    """Return plain values with what Prefect keeps as sets, lists of words, in their order."""
    if isinstance(value, dict):
        return {key: _ordered(each) for key, each in value.items() if key != "id"}
    if isinstance(value, list):
        values = [_ordered(each) for each in value]
        return sorted(values) if all(isinstance(each, str) for each in values) else values
    return value


def main() -> int:
    """Install, and print what there is. Returns the exit status."""
    settings.prepare(settings.read())
    try:
        deployments.check_server()
        deployments.prepare()
        names = install(deployments.read_limits().flow)
    except PliantError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print("\n".join(names))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
