"""What a system says of its nightly runs (NIGHTLY in flows/SYSTEM/flow.py); flows/watch/schedule.py deploys them."""

from __future__ import annotations

from dataclasses import dataclass

NIGHTLY = "nightly"
"""Name of the deployment of every flow that runs at night, and of the parameter that says so to the flow."""


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
        return f"{self.flow}/{NIGHTLY}"
