"""Deploys flows with the parameters of a benchmark, without a schedule, and what alarms start: `... deploy FILE`.

A process of its own, which imports Prefect when its server has an address. FILE: JSON of a flow's name -> its parameters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pliant.flows import settings
from pliant.flows.watch import automations, deployments


def main(path: Path) -> None:
    """Make work pools, deployments and the automations of alarms."""
    settings.prepare(settings.read())
    parameters = json.loads(path.read_text())
    deployments.prepare()
    for name, flow in deployments.nightly_flows().items():
        if name in parameters:
            deployments.deploy(flow, parameters[name])
    automations.install(deployments.read_limits().flow, prefix=automations.ALARM_PREFIX)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
