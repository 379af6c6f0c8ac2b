"""Follows the commands of pages, word for word; `deployed` those of docs/deploy.md, to a bento behind key and TLS."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import servers
from qa.stack.servers import connect
from qa.targets import say
from tests.fixtures.places import ROOT

SECTION = "Without containers"
PORT = 3000  # the page's
MOST = 10  # commands
SECONDS = 1800.0  # of one command: the installation on a slow machine
STOPPED = 30.0  # seconds in which what the commands have started may end by itself
DONE = "-- this command is done --"
BODY = {"inputs": "Return the mean of an array."}
NO_KEY = 401


def follow(
    page: str,
    heading: str,
    variables: Mapping[str, str],
    folder: Path | None = None,
    between: Callable[[], object] = lambda: None,
    atlast: Callable[[list[str]], object] = lambda _output: None,
    order: int = 1,
) -> dict[str, float]:
    """Run the commands below a heading of a page, each a line, in one shell; return the seconds of each.

    ADDRESS, a page's word for that of the repository, is filled in.
    `between` is called after each command, and `atlast` with what they have printed while what they started still runs.
    `order`: -1 for the last one first. Raises `PliantError` with what a failed command has printed.
    """
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.search(
        rf"^#+ {re.escape(heading)}\n(?:(?!#+ )[^\n]*\n)*?```\n(.*?)^```$", text, re.DOTALL | re.MULTILINE
    )
    if block is None:
        raise PliantError(f"{page} has no commands below the heading {heading!r}")
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        env=dict(variables),
        start_new_session=True,
    )
    assert shell.stdin is not None and shell.stdout is not None, "pipes"
    seconds, printed = dict[str, float](), list[str]()
    try:
        for command in block[1].replace("ADDRESS", str(ROOT)).splitlines()[::order]:
            begun, limit = time.monotonic(), threading.Timer(SECONDS, end, (shell,))
            limit.start()
            with suppress(BrokenPipeError):
                # In a line of its own: an answer of curl ends without a new line.
                shell.stdin.write(f"{command}\nprintf '\\n{DONE}\\n'\n")
                shell.stdin.flush()
            for line in map(str.rstrip, shell.stdout):
                if line == DONE:
                    break
                printed += [line] if line else []
            else:
                last = " | ".join(line[-300:] for line in printed[-3:]) or "it printed nothing"
                raise PliantError(f"{command} fails or has not ended within {SECONDS:g} s: {last}")
            limit.cancel()
            seconds[command] = time.monotonic() - begun
            between()
        atlast(printed)
    finally:
        limit.cancel()
        end(shell)
    return seconds


def end(shell: subprocess.Popen[str]) -> None:
    """End a shell and all that it has started, which has some seconds to end by itself."""
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(shell.pid).children(recursive=True)
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(started, STOPPED)[1]:
            process.kill()
    servers.stop(shell)


def clean_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of somebody who has nothing of Pliant's yet: no environment of Python, no settings, no bentos."""
    ours = ("PLIANT_", "MLFLOW_", "PREFECT_", "BENTOML_", "PYTHON", "VIRTUAL_ENV")
    own = environment.get("VIRTUAL_ENV", str(ROOT / ".venv"))
    path = [place for place in environment.get("PATH", "").split(os.pathsep) if not place.startswith((own, str(ROOT)))]
    variables = {name: value for name, value in environment.items() if not name.startswith(ours)}
    return variables | {"PATH": os.pathsep.join(path), "BENTOML_HOME": str(folder / "bentoml")}


def deployed(context: Context) -> Measured:
    """Run the commands in an empty folder, then ask what they have started without a key and without TLS."""
    if servers.free_port(PORT) != PORT:
        raise PliantError(f"something listens on port {PORT}, which the page's commands use: stop it first")
    wrong = list[str]()

    def wide_open(printed: list[str]) -> None:
        """Note where the last command was not answered, and what a stranger gets: an answer without a key, or TLS."""
        if not any('"label"' in line for line in printed[-3:]):
            wrong.append(f"answer: {printed[-1:]}")
        try:
            with connect(f"https://localhost:{PORT}", trusted=folder / "pliant" / "tls.crt") as client:
                status = client.post("/predict", json=BODY).status_code
            wrong.extend([] if status == NO_KEY else [f"a request without a key is answered with {status}"])
        except httpx.HTTPError as error:
            wrong.append(f"a request without a key has no answer: {error}")
        with socket.create_connection((servers.HOST, PORT), timeout=10) as plain:
            plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(OSError):  # a connection that is closed or reset
                if plain.recv(100).startswith(b"HTTP/"):
                    wrong.append("a request without TLS is answered")

    # Not under .pliant: BentoML builds nothing in a folder whose path has a hidden part.
    with (
        tempfile.TemporaryDirectory(prefix="pliant-commands-", ignore_cleanup_errors=True) as name,
        context.stage("the commands"),
    ):
        folder = Path(name)
        seconds = follow("deploy.md", SECTION, clean_environment(folder, os.environ), folder, atlast=wide_open)
    say(*wrong)
    name = "faults of a bento behind key and TLS, by the page's commands from an empty folder"
    targets = [
        Target(name, len(wrong), "<=", 0),
        Target("commands that the page names for it", len(seconds), "<=", MOST),
    ]
    return targets, {"commands": list(seconds), "seconds": sum(seconds.values()), "wrong": wrong}
