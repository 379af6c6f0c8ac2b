"""Follows the commands of docs/deploy.md, word for word, from an empty folder to a bento behind key and TLS."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
from rich.console import Console

from benchmarks.harness import Context, Measured
from benchmarks.places import ROOT
from benchmarks.results import Target
from flows import servers
from pliant.errors import PliantError

PAGE = ROOT / "docs" / "deploy.md"
SECTION = "Without containers"
ADDRESS = "ADDRESS"  # the page's word for the address of the repository, which is the one thing that is filled in
PORT = 3000  # the page's
MOST = 10  # commands
SECONDS = 2400.0  # within which all have ended; half of it is the installation on a slow machine
STOPPED = 30.0  # seconds in which what the commands have started may end by itself
BODY = b'{"inputs": "Return the mean of an array."}'
NO_KEY = 401
_MARK = "--- command "


def commands(page: str, section: str = SECTION) -> list[str]:
    """Return the lines of the first block of code in a section of a page in Markdown. Raises `PliantError`."""
    block = re.search(rf"^## {re.escape(section)}\n.*?^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    if block is None:
        raise PliantError(f"the page has no commands under the heading {section!r}")
    return block[1].strip().splitlines()


def script(lines: Sequence[str], repository: Path) -> str:
    """Return a program of bash that says each command's number, ends with the first that fails, and waits at its end."""
    steps = ["set -e"]
    for number, line in enumerate(lines, start=1):
        steps += [_mark(number), line.replace(ADDRESS, str(repository))]
    return "\n".join([*steps, _mark(len(lines) + 1), "wait", ""])


def _mark(number: int) -> str:
    """Return the command that says which one begins, in a line of its own: an answer of curl ends without a new line."""
    return f"printf '\\n{_MARK}{number}\\n'"


def clean_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of somebody who has nothing of Pliant's yet: no environment of Python, no settings, no bentos."""
    ours = ("PLIANT_", "MLFLOW_", "PREFECT_", "BENTOML_", "PYTHON", "VIRTUAL_ENV")
    own = environment.get("VIRTUAL_ENV", str(ROOT / ".venv"))
    path = [place for place in environment.get("PATH", "").split(os.pathsep) if not place.startswith((own, str(ROOT)))]
    variables = {name: value for name, value in environment.items() if not name.startswith(ours)}
    return variables | {"PATH": os.pathsep.join(path), "BENTOML_HOME": str(folder / "bentoml")}


class Run:
    """A bash that runs the commands in a folder; `output` is what it and they have printed."""

    def __init__(self, lines: Sequence[str], folder: Path, repository: Path, environment: Mapping[str, str]) -> None:
        self._lines, self._reached = lines, 0
        self.output: list[str] = []
        path = folder / "commands.sh"
        path.write_text(script(lines, repository), encoding="utf-8")
        self._process = subprocess.Popen(
            ["bash", str(path)],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="reader of commands", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for data in self._process.stdout:
            line = data.decode(errors="replace")
            if line.startswith(_MARK):
                self._reached = int(line.removeprefix(_MARK))
            elif line.strip():
                self.output.append(line.rstrip())

    def finish(self, seconds: float, progress: Callable[[int, int], None]) -> None:
        """Return once all commands have ended; what they left in the background runs on. Raises `PliantError`."""
        until, count = time.monotonic() + seconds, len(self._lines)
        while self._reached <= count:
            progress(max(self._reached - 1, 0), count)
            if self._process.poll() is not None:
                self._reader.join(5.0)
                if self._reached > count:
                    return  # nothing in the background to wait for
                raise PliantError(f"{self._command()} failed: {self._last()}")
            if time.monotonic() > until:
                raise PliantError(
                    f"{self._command()} has not ended within {seconds:.0f} s of the first: {self._last()}"
                )
            time.sleep(0.2)

    def _command(self) -> str:
        return f"command {self._reached}, {self._lines[max(self._reached, 1) - 1]!r},"

    def _last(self) -> str:
        return " | ".join(line[-300:] for line in self.output[-3:]) or "it printed nothing"

    def stop(self) -> None:
        """End bash and all that it has started, which has some seconds to end by itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            started = psutil.Process(self._process.pid).children(recursive=True)
            for process in started:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()
            for process in psutil.wait_procs(started, STOPPED)[1]:
                process.kill()
        servers.stop(self._process)
        self._reader.join(5.0)


def follow(context: Context) -> Measured:
    """Run the commands in an empty folder, then ask what they have started without a key and without TLS."""
    lines = commands(PAGE.read_text(encoding="utf-8"))
    need_port()
    # Not under .pliant: BentoML builds nothing in a folder whose path has a hidden part.
    with tempfile.TemporaryDirectory(prefix="pliant-commands-", ignore_cleanup_errors=True) as name:
        folder, begun = Path(name), time.monotonic()
        run = Run(lines, folder, ROOT, clean_environment(folder, os.environ))
        try:
            with context.stage("the commands") as progress:
                run.finish(SECONDS, progress)
            seconds = time.monotonic() - begun
            wrong = [] if any('"label"' in line for line in run.output[-3:]) else [f"the answer is {run.output[-1:]}"]
            wrong += wide_open(folder / "pliant" / "tls.crt")
        finally:
            run.stop()
    for fault in wrong:
        Console().print(fault, markup=False)
    targets = [
        Target(
            "faults of a bento behind key and TLS, by the page's commands from an empty folder", len(wrong), "<=", 0
        ),
        Target("commands that the page names for it", len(lines), "<=", MOST),
    ]
    return targets, {"commands": lines, "seconds": seconds, "wrong": wrong}


def need_port() -> None:
    """Raise `PliantError` where something listens on the page's port."""
    if servers.free_port(PORT) != PORT:
        raise PliantError(f"something listens on port {PORT}, which the page's commands use: stop it first")


def wide_open(certificate: Path) -> list[str]:
    """Return what a stranger gets that he should not: an answer without a key, or without TLS."""
    wrong = list[str]()
    request = urllib.request.Request(f"https://localhost:{PORT}/predict", BODY, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(
            request, timeout=30, context=ssl.create_default_context(cafile=certificate)
        ) as answer:
            wrong.append(f"a request without a key is answered with {answer.status}")
    except urllib.error.HTTPError as error:
        if error.code != NO_KEY:
            wrong.append(f"a request without a key is answered with {error.code}")
    except OSError as error:
        wrong.append(f"a request without a key has no answer: {error}")
    with socket.create_connection((servers.HOST, PORT), timeout=10) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if _received(plain).startswith(b"HTTP/"):
            wrong.append("a request without TLS is answered")
    return wrong


def _received(connection: socket.socket) -> bytes:
    """Return the first bytes that come; a connection that is closed or reset has none."""
    try:
        return connection.recv(100)
    except OSError:
        return b""
