"""How BentoML's supervising process starts a service by its settings, where `bentoml serve` is called directly.

`pliant serve` passes BentoML absolute paths, an address and the libraries' variables. A bento is served without it, and its
service process works in the folder of its code: in there a relative path would be another file, and the service would
write into the bento.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, get_type_hints

from pliant.errors import InputError
from pliant.serving.launch import QUIET, absolute
from pliant.serving.settings import Settings
from pliant.settings import variable

THREADS = "1"  # as under `pliant serve`: flows measure champions with one thread unless they are given another number
LOCALHOST = "127.0.0.1"
PATHS = (
    "registry_uri",
    "artifact_root",
    *(name for name, kind in get_type_hints(Settings).items() if kind in (Path, Path | None)),
)
"""Settings that name a file or a folder."""
WAIT = """import sys
sys.path[:] = {path!r}
from pliant.serving.lifecycle.first_release import main
sys.exit(main({system!r}, {parent}))"""
NONE_LEFT = "No active process found for watcher."
"""What BentoML's supervising process ends with where the service process has ended."""

logger = logging.getLogger("pliant.serving")


def listening(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the options by which BentoML listens as the settings say, unless its own command names something else.

    Raises `InputError` for a relative path of a certificate: BentoML would look for it beside the service's code.
    """
    host = environment.get("PLIANT_HOST", LOCALHOST)
    options: dict[str, Any] = {"http": {"host": LOCALHOST if host == "localhost" else host}}
    files = {name: environment[name] for name in ("PLIANT_TLS_CERT", "PLIANT_TLS_KEY") if environment.get(name)}
    for name, file in files.items():
        if not Path(file).is_absolute():
            raise InputError(name, repr(file), "an absolute path where `bentoml serve` is called directly")
    if files:
        names = {"certfile": files.get("PLIANT_TLS_CERT"), "keyfile": files.get("PLIANT_TLS_KEY")}
        options["ssl"] = {"enabled": True, **names}
    return options


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set the variables that the service process inherits, where they are not set. Relative paths count from the present
    working folder. The registry is that of MLFLOW_TRACKING_URI, as under `pliant serve`, unless PLIANT_REGISTRY_URI is set.
    """
    if tracking := environment.get("MLFLOW_TRACKING_URI"):
        environment.setdefault("PLIANT_REGISTRY_URI", tracking)
    for name, value in {**QUIET, "PLIANT_THREADS": THREADS}.items():
        environment.setdefault(name, value)
    given = Settings.given(environment)
    settings = absolute(Settings(**{name: given[name] for name in PATHS if name in given}))
    values = {variable(name): getattr(settings, name) for name in PATHS}
    environment.update({name: str(value) for name, value in values.items() if value is not None})


def wait_for_release(system: str, environment: Mapping[str, str]) -> None:
    """Wait for something to serve as the settings say, without listening; a signal then ends this process.

    Another process looks into the registry, by libraries whose memory this one would keep. Raises `SystemExit` where there
    is nothing to wait for.
    """
    try:
        waits = float(environment.get("PLIANT_WAIT_FOR_RELEASE", "0")) > 0
    except ValueError:  # the settings refuse it later
        waits = False
    if not waits:
        return
    code = WAIT.format(path=sys.path, system=system, parent=os.getpid())
    with _ended_by_signals():
        waiting = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(environment),
            start_new_session=True,  # Ctrl-C in a terminal reaches this process alone
        )
        try:
            for line in waiting.stdout or ():
                logger.warning("%s", line.rstrip())
            status = waiting.wait()
        finally:
            waiting.kill()  # without effect on one that has ended
            waiting.communicate()
    if status:
        raise SystemExit(status)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals end this process by `SystemExit`, for as long as the context lasts."""

    def end(_number: int, _frame: FrameType | None) -> None:
        logger.warning("the service ends before there was anything to serve")
        raise SystemExit(0)

    previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def report_end_shortly() -> None:
    """Have this process say in a sentence, not by a traceback, that its service process has ended; that one said why."""
    former = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, RuntimeError) and str(error) == NONE_LEFT:
            logger.error("the service process has ended; its last lines say why, unless it was killed")
        else:
            former(kind, error, traceback)

    sys.excepthook = hook
