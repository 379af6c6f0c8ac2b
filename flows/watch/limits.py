"""How long a flow, a task and the time between two triggered runs may be. Machines differ: the environment can say.

PLIANT_FLOW_HOURS (6), PLIANT_TASK_HOURS (3) and PLIANT_ALARM_MINUTES (60) are read when a flow is loaded or begins. The
longest night that was measured on 2 cores took well below one hour; a limit is there for what hangs, not for what is slow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pliant.errors import InputError

FLOW_HOURS, TASK_HOURS, ALARM_MINUTES = "PLIANT_FLOW_HOURS", "PLIANT_TASK_HOURS", "PLIANT_ALARM_MINUTES"
GRACE_SHARE, GRACE_SECONDS = 0.02, 300.0


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds. `alarm`: between the starts of two runs of a deployment that alarms cause."""

    flow: float = 6 * 3600.0
    task: float = 3 * 3600.0
    alarm: float = 3600.0

    @property
    def guard(self) -> float:
        """Return after how long a flow's process is ended: by then Prefect's own timeout would have ended the run."""
        return self.flow + min(max(GRACE_SHARE * self.flow, 1.0), GRACE_SECONDS)


def read(environment: Mapping[str, str] = os.environ) -> TimeLimits:
    """Return the limits that the environment sets, else the defaults. Raises `InputError` for what is no positive number."""
    default = TimeLimits()
    return TimeLimits(
        _seconds(environment, FLOW_HOURS, 3600.0, default.flow),
        _seconds(environment, TASK_HOURS, 3600.0, default.task),
        _seconds(environment, ALARM_MINUTES, 60.0, default.alarm),
    )


def _seconds(environment: Mapping[str, str], name: str, unit: float, default: float) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise InputError(name, repr(text), "a number above 0, such as 6 or 0.5")
    return value * unit
