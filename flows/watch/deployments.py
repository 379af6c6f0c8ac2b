"""Work pools and deployments in Prefect, made from code: nothing else says how a flow is deployed.

One run of a nightly deployment at a time: another one waits for its end (ENQUEUE), so an alarm during a night is not lost.
What hangs is ended after PLIANT_FLOW_HOURS (guard.py), and so holds no later night. An alarm starts a run at most every
PLIANT_ALARM_MINUTES (triggered.py), by an automation (automations.py). Runs begin in the folder PLIANT_PROJECT, or in that
in which they were deployed.

How long a flow, a task and the time between two triggered runs may be is in PLIANT_FLOW_HOURS (6), PLIANT_TASK_HOURS (3) and
PLIANT_ALARM_MINUTES (60), read when a flow is loaded or begins: machines differ. The longest night that was measured on 2
cores took well below one hour; a limit is there for what hangs, not for what is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, WorkPoolCreate
from prefect.client.schemas.objects import ConcurrencyLimitStrategy, ConcurrencyOptions
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.utilities.callables import parameter_schema

from pliant import systems
from pliant.errors import InputError, PliantError
from pliant.settings import FlowSettings

NIGHTLY = "nightly"
"""End of the name of the deployment of every flow that runs at night: `tokens-nightly`; earlier versions called all so."""
POOL, NOTIFY_POOL = "pliant", "pliant-notify"
NOTIFY = "pliant-notify/pliant-notify"
ADVICE = (
    "start one with `prefect server start` and name it, for this command and for the workers: "
    "export PREFECT_API_URL=http://127.0.0.1:4200/api"
)


@dataclass(frozen=True, slots=True)
class Nightly:
    """A flow that runs at night. `flow`: its name in Prefect; `entrypoint`: where it is, as a module's path.

    `cron`: when it runs by default; `alarmed`: whether an alarm of the system starts it.
    """

    flow: str
    entrypoint: str
    cron: str
    description: str
    alarmed: bool = True

    @property
    def deployment(self) -> str:
        """Return the full name of its deployment."""
        return f"{self.flow}/{self.flow}-{NIGHTLY}"


def nightly_flows(system: str = "") -> dict[str, Nightly]:
    """Return what runs at night of a system, or of all, by the flow's name."""
    chosen = [each for each in systems.listed() if each.name == (system or each.name) and each.has("flows", "flow")]
    return {flow.flow: flow for each in chosen for flow in getattr(each.part("flows", "flow"), "NIGHTLY", ())}


def check_server() -> str:
    """Return the address of Prefect's server. Raises `PliantError` where none is named, or it does not answer."""
    address = PREFECT_API_URL.value()
    if not address:
        raise PliantError(f"no Prefect server is named, which would keep the schedule: {ADVICE}")
    with get_client(sync_client=True) as client:
        error = client.api_healthcheck()
    if error is not None:
        raise PliantError(f"Prefect's server at {address} does not answer ({type(error).__name__}): {ADVICE}")
    return str(address)


def prepare() -> None:
    """Make what all nightly deployments need where it is missing: the work pools, and the deployment that tells people."""
    with get_client(sync_client=True) as client:
        for name in (POOL, NOTIFY_POOL):
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=name, type="process"))
    flow, _, name = NOTIFY.partition("/")
    about = "Tells people what failed or never came; automations start it (flows/watch/automations.py)."
    _deploy(flow, name, "pliant.flows.watch.notify.pliant_notify", about, work_pool_name=NOTIFY_POOL)


def deploy(nightly: Nightly, parameters: Mapping[str, Any], cron: str | None = None, zone: str = "UTC") -> bool:
    """Make or update the deployment of a nightly flow; without `cron` it has no schedule. Return whether it is active.

    A schedule that somebody has paused stays so. Raises `InputError` for what is no schedule.
    """
    with get_client(sync_client=True) as client:
        present = []
        with suppress(ObjectNotFound):
            present = client.read_deployment_by_name(nightly.deployment).schedules
        with suppress(ObjectNotFound):  # of an earlier version: an alarm and each night would start two runs
            former = client.read_deployment_by_name(f"{nightly.flow}/{NIGHTLY}")
            present = present or former.schedules
            client.delete_resource_owned_automations(f"prefect.deployment.{former.id}")
            client.delete_deployment(former.id)
        active = not present or any(schedule.active for schedule in present)
        schedules = []
        if cron is not None:
            try:
                schedule = CronSchedule(cron=cron, timezone=zone)
            except ValueError:
                wanted = "a cron expression such as '0 3 * * *', and a time zone such as Europe/Berlin"
                raise InputError("--cron with --timezone", f"{cron!r} with {zone!r}", wanted) from None
            schedules = [DeploymentScheduleCreate(schedule=schedule, active=active)]
        identity = _deploy(
            nightly.flow,
            nightly.deployment.partition("/")[2],
            nightly.entrypoint,
            nightly.description,
            tags=[nightly.flow.partition("-")[0], NIGHTLY],
            parameters=dict(parameters),
            schedules=schedules,
            work_pool_name=POOL,
            concurrency_limit=1,
            concurrency_options=ConcurrencyOptions(collision_strategy=ConcurrencyLimitStrategy.ENQUEUE),
        )
        # What `prefect deploy` made of an earlier version's prefect.yaml: an alarm would start two runs.
        client.delete_resource_owned_automations(f"prefect.deployment.{identity}")
    return active


def _deploy(flow: str, name: str, entrypoint: str, description: str, **more: Any) -> UUID:
    module, _, function = entrypoint.rpartition(".")
    schema = parameter_schema(getattr(import_module(module), function)).model_dump_for_openapi()
    directory = FlowSettings.read().project or str(Path.cwd())
    with get_client(sync_client=True) as client:
        return client.create_deployment(
            client.create_flow_from_name(flow),
            name,
            entrypoint=entrypoint,
            description=description,
            path=".",
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": directory}}],
            parameter_openapi_schema=schema,
            enforce_parameter_schema=True,
            **more,
        )
