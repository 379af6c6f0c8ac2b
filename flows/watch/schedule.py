"""`pliant schedule`: a system's flows run at night, with the configuration of the live release or of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pliant import systems
from pliant.errors import InputError
from pliant.flows import configuration
from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.flows.watch import automations, deployments
from pliant.registry.releases import RegistryRelease


def schedule(project: Settings, system: str, config: Path | None, cron: str | None, zone: str) -> list[str]:
    """Make or update work pools, deployments and automations of a system, and return sentences on what there is now.

    `cron`: of the system's first flow, in the time zone `zone`; others follow an hour later each. Raises `PliantError`
    where nothing says what is to be trained, or no Prefect server answers.
    """
    of = _source(project, system, config)
    flows = list(deployments.nightly_flows(system).values())
    times = [flow.cron if cron is None else _later(cron, hours) for hours, flow in enumerate(flows)]
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
    automations.install(deployments.read_limits().flow)
    lines.append(
        f"Prefect's server at {address} keeps it; `prefect worker start --pool {deployments.POOL}` carries it out, and "
        f"`prefect worker start --pool {deployments.NOTIFY_POOL}` tells people what failed."
    )
    return lines


def _source(project: Settings, system: str, config: Path | None) -> str:
    """Return in words what is trained with. Raises `PliantError` for a file that is none, or where nothing says it."""
    if config is not None:
        systems.system(system).part("flows", "config").read(config)
        return f"the configuration of {config.absolute()}"
    registry = open_registry(project, system)
    live: RegistryRelease | None = registry.release(system) if registry.exists() else None
    configuration.kept_by(live, system)
    return f"the configuration of the release that is served then (now release {live.number if live else 0})"


def _later(cron: str, hours: int) -> str:
    """Return a cron expression some hours later. Raises `InputError` where it names no single hour."""
    fields = cron.split()
    if hours == 0:
        return cron
    if len(fields) < 2 or not fields[1].isdecimal():
        raise InputError("--cron", repr(cron), "one with a single hour: a second flow of the system runs an hour later")
    return " ".join([fields[0], str((int(fields[1]) + hours) % 24), *fields[2:]])
