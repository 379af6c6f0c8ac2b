"""A flow whose runs hang in two ways, wait for a file, or end at once. For tests of what ends or holds up a run."""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path
from typing import Any

from pliant.flows.pipeline import limited_task, system_flow


@limited_task("wait")
def wait(marker: str) -> None:
    """Write a file `<marker>.begun`, and wait until there is a file `marker`."""
    Path(f"{marker}.begun").touch()
    while not Path(marker).exists():
        time.sleep(0.2)


@limited_task("hang")
def hang(how: str, marker: str) -> None:
    """Leave a child that never ends, and wait for it (`child`), or for a lock in C that keeps the interpreter's (`lock`)."""
    child = subprocess.Popen(["sleep", "1000"])
    Path(marker).write_text(str(child.pid))
    if how == "child":
        child.wait()
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # no signal interrupts this, and no other thread of Python runs meanwhile


@system_flow("hanging", "tokens")
def hanging(how: str, marker: str, reason: str | None = None) -> dict[str, Any]:
    """Hang, wait for the file `marker` (`file`), or end at once if `how` is empty.

    A child's number is written into `marker`.
    """
    del reason
    if how == "file":
        wait(marker)
    elif how:
        hang(how, marker)
    return {"promoted": False, "reason": "nothing to do", "versions": {}, "new": (), "run": ""}
