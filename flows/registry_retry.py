"""Reads of the registry that are tried again where it does not answer. Knows no system."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pliant.errors import RefusedError, UnreachableError

T = TypeVar("T")

OUTAGE_WAITS = (3, 15, 60)
"""Seconds before the registry is tried once more: a database that is restarted is back by then."""

logger = logging.getLogger("pliant.flows")


def current_run() -> Any:
    """Return the flow run of Prefect that this code is in; None outside of one."""
    prefect = sys.modules.get("prefect.context")  # imported by whatever runs a flow; commands without one are spared it
    context = prefect.FlowRunContext.get() if prefect is not None else None
    return context.flow_run if context is not None else None


def retried(read: Callable[[], T]) -> T:
    """Return what `read` gives. In a deployment's run it is tried again where the registry does not answer.

    A command that a person typed fails at once. Raises what `read` raises: a `RefusedError`, and whatever else is not
    `UnreachableError`, without a second try; the latter after all `OUTAGE_WAITS`.
    """
    run = current_run()
    for seconds in OUTAGE_WAITS if run is not None and run.deployment_id is not None else ():
        try:
            return read()
        except RefusedError:
            raise
        except UnreachableError as error:
            logger.warning("%s; tried again in %d s", error, seconds)
            time.sleep(seconds)
    return read()
