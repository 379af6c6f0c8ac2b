"""Waits for a system's first release, so that a service may be started before there is anything to serve.

It runs in a process of its own (`wait_for_release` of serving/bento/supervisor.py), which ends, with the memory that MLflow
takes, before the service listens.
"""

from __future__ import annotations

import math
import os
import sys
import time

from pliant.errors import PliantError, RefusedError, UnreachableError
from pliant.registry.mlflow_client import has_all_tables, registry_errors
from pliant.registry.names import prefix
from pliant.serving.lifecycle.catalog import open_registry, released
from pliant.serving.settings import Settings, from_environment, settings_of

POLL_SECONDS = 5.0
FAILED = 2  # exit status


def main(system: str, parent: int) -> int:
    """Wait as the environment's settings say, and return the exit status. Sentences go to standard output."""
    try:
        settings = from_environment(os.environ, settings_of(system))
        wait(settings, parent)
    except PliantError as error:
        _say(str(error))
        return FAILED
    return 0


def wait(settings: Settings, parent: int) -> None:
    """Return as soon as there is something to serve, after the seconds of the settings, or once `parent` has ended.

    Raises `PliantError` for what another look does not mend.
    """
    until, former = time.monotonic() + settings.wait_for_release, ""
    while (reason := lacking(settings)) and (left := until - time.monotonic()) > 0 and os.getppid() == parent:
        if reason != former:
            _say(f"nothing to serve yet ({reason}): the service waits, at most {math.ceil(left)} s")
            former = reason
        time.sleep(min(POLL_SECONDS, left))


def lacking(settings: Settings) -> str:
    """Return why there is nothing to serve yet; empty if there is something.

    A registry that is not there, is being made, or does not answer, is one without a release so far. Nothing is made here.
    Raises `PliantError` for a registry or settings of which no release can be had: `RefusedError` where it lets nobody in.
    """
    registry, models = open_registry(settings), prefix(settings.system)
    try:
        with registry_errors(settings.registry_uri, "the registry could not be looked at"):
            complete = has_all_tables(settings.registry_uri)
        if not complete:
            return "the registry's tables are incomplete, or of another version of MLflow"
        if released(registry, settings.alias, models) is not None or registry.aliases(models, settings.alias):
            return ""
    except RefusedError:
        raise
    except UnreachableError as error:
        return str(error)
    return f"no model {models}* has a version under the alias {settings.alias}"


def _say(sentence: str) -> None:
    """Write a sentence for the log of the process that started this one."""
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()
