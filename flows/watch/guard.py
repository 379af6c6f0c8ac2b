"""A process that ends a flow run which hangs: the flow's process and its children, once the run's time is over.

Prefect's `timeout_seconds` raises an error in the main thread. A call into C that never returns, or that keeps the
interpreter's lock, never gets there, and a thread of the same process would not run either, so this is a process of its own.
It first reports the run's end to Prefect's server, which frees the deployment's slot for the next run, and then kills.
Children count that were started by the flow's process or by one of those, also after their parent has ended.

Run as a script by the flow's process: `guard.py PID SECONDS [API RUN]`; it ends when its standard input is closed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import select
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

logger = logging.getLogger("pliant")

GRACE_SHARE, GRACE_SECONDS = 0.02, 300.0
REPORT_SECONDS = 10.0  # that Prefect's server has to answer, before the processes are killed regardless
LOOK_SECONDS = (
    10.0  # between two looks at the children, so that those of a parent that ends are known; one takes some ms
)


@dataclass(frozen=True, slots=True)
class PrefectRun:
    """A flow run in Prefect: the server's API address, the run's identifier, and what the server wants of its clients."""

    api: str
    run: str
    key: str | None = None
    auth: str | None = None


def with_grace(seconds: float) -> float:
    """Return after how long the process of a flow with this limit is ended: by then Prefect's own timeout has passed."""
    return seconds + min(max(GRACE_SHARE * seconds, 1.0), GRACE_SECONDS)


@contextmanager
def guarded(seconds: float, run: PrefectRun | None = None) -> Iterator[None]:
    """End this process and its children if the context lasts longer than `seconds`; report that of `run` first.

    An error that leaves the context, such as Prefect's own timeout, ends the children alone.
    Where no process can be started the context is not guarded, which is logged.
    """
    command = [sys.executable, str(Path(__file__).resolve()), str(os.getpid()), str(seconds)]
    environment = dict(os.environ)
    if run is not None:
        command += [run.api, run.run]
        secrets = {"PREFECT_API_KEY": run.key, "PREFECT_API_AUTH_STRING": run.auth}
        environment |= {name: value for name, value in secrets.items() if value}
    try:
        guard = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError as error:
        logger.warning("nothing ends this run if it hangs, as no process could be started: %s", error)
        yield
        return
    try:
        yield
    except BaseException:  # a child that hangs would keep what its parent shares with the worker, which then waits on
        _kill([child for pid, child in _children(psutil.Process()).items() if pid != guard.pid])
        raise
    finally:
        if guard.stdin is not None:
            guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(5.0)


def watch(pid: int, seconds: float, run: PrefectRun | None) -> bool:
    """Wait until standard input is closed or process `pid` is gone; after `seconds` end it. Return whether it was ended."""
    until = time.monotonic() + seconds
    try:
        target = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return False
    children: dict[int, psutil.Process] = {}
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], min(left, LOOK_SECONDS))[0] or not target.is_running():
            return False
        children |= _children(target)
    sentence = f"The run hung: it was ended after {seconds / 3600:.3g} h (see PLIANT_FLOW_HOURS)."
    if run is not None:
        report(run, sentence)
    _kill([target, *(children | _children(target)).values()])
    return True


def report(run: PrefectRun, sentence: str, seconds: float = REPORT_SECONDS) -> bool:
    """Set the run's state to TimedOut with this message, whatever it was; return whether the server took it."""
    state = {"type": "FAILED", "name": "TimedOut", "message": sentence}
    body = json.dumps({"state": state, "force": True}).encode()
    address = f"{run.api.rstrip('/')}/flow_runs/{run.run}/set_state"
    headers = {"content-type": "application/json"}
    if run.auth:  # Prefect's own client prefers it, too
        headers["authorization"] = f"Basic {base64.b64encode(run.auth.encode()).decode()}"
    elif run.key:
        headers["authorization"] = f"Bearer {run.key}"
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds):
            return True
    except (OSError, ValueError) as error:  # whoever cannot be told of it: the worker reports the end of its process
        print(f"Prefect's server was not told that a run hung: {error}", file=sys.stderr)  # noqa: T201
        return False


def _children(target: psutil.Process) -> dict[int, psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return {child.pid: child for child in target.children(recursive=True) if child.pid != os.getpid()}
    return {}


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()  # refuses a process that took the number of one that has ended


if __name__ == "__main__":
    _pid, _seconds, *_rest = sys.argv[1:]
    _secrets = os.environ.get("PREFECT_API_KEY"), os.environ.get("PREFECT_API_AUTH_STRING")
    watch(int(_pid), float(_seconds), PrefectRun(_rest[0], _rest[1], *_secrets) if _rest else None)
