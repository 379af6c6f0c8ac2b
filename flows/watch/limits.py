"""How long a flow, a task and the time between two triggered runs may be. Machines differ: the environment can say.

PLIANT_FLOW_HOURS (6), PLIANT_TASK_HOURS (3) and PLIANT_ALARM_MINUTES (60) are read when a flow is loaded or begins. The
longest night that was measured on 2 cores took well below one hour; a limit is there for what hangs, not for what is slow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pliant.settings import FlowSettings

GRACE_SHARE, GRACE_SECONDS = 0.02, 300.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds. `alarm`: between the starts of two runs of a deployment that alarms cause."""

    flow: float
    task: float
    alarm: float

    @property
    def guard(self) -> float:
        """Return after how long a flow's process is ended: by then Prefect's own timeout would have ended the run."""
        return self.flow + min(max(GRACE_SHARE * self.flow, 1.0), GRACE_SECONDS)


def read(environment: Mapping[str, str] = os.environ) -> TimeLimits:
    """Return the limits that the environment sets, else the defaults. Raises `InputError` for what is no positive number."""
    given = FlowSettings.read(environment)
    return TimeLimits(3600 * given.flow_hours, 3600 * given.task_hours, 60 * given.alarm_minutes)
