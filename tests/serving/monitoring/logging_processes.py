"""Processes that write a log, for test_logs.py."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

from pliant import redaction
from pliant.serving.monitoring import logs


def write_all() -> None:
    """Write what a service's process may write, and end by an exception."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    redaction.install()
    logs.install()
    library = logging.getLogger("a.library")
    library.addHandler(logging.StreamHandler())
    library.propagate = False
    logs.install()
    logging.getLogger("pliant.serving").warning("refresh: %s", "http://ann:mother@here/")
    library.error("two\nlines")
    try:
        raise ValueError("token=geheim")
    except ValueError:
        library.exception("it failed")
    warnings.warn("that is old", DeprecationWarning, stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    raise RuntimeError("password=geheim")


def child(_channel: object, _incoming: object) -> None:
    """Run as a device process does, of a service that installed nothing for it."""
    logging.getLogger("pliant.device").error("the engine's process ends: %s", "token=geheim")


if __name__ == "__main__":
    write_all()
