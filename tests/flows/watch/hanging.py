"""A flow whose runs hang in two ways, or end at once. For tests of the time limit."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

from flows.tasks import limited_task, system_flow


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
    """Hang, or not if `how` is empty; the child's number is written into `marker`."""
    del reason
    if how:
        hang(how, marker)
    return {"promoted": False, "reason": "nothing to do", "versions": {}, "new": (), "run": ""}
