"""Follows the commands of docs/deploy.md, word for word, from an empty folder to a bento behind key and TLS."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

from rich.console import Console

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.places import ROOT
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import servers
from qa.stack.page import Shell, commands
from qa.targets import exchange

PAGE = ROOT / "docs" / "deploy.md"
SECTION = "Without containers"
ADDRESS = "ADDRESS"  # the page's word for the address of the repository, which is the one thing that is filled in
PORT = 3000  # the page's
MOST = 10  # commands
SECONDS = 1800.0  # of one command: the installation on a slow machine
BODY = b'{"inputs": "Return the mean of an array."}'
NO_KEY = 401


def clean_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of somebody who has nothing of Pliant's yet: no environment of Python, no settings, no bentos."""
    ours = ("PLIANT_", "MLFLOW_", "PREFECT_", "BENTOML_", "PYTHON", "VIRTUAL_ENV")
    own = environment.get("VIRTUAL_ENV", str(ROOT / ".venv"))
    path = [place for place in environment.get("PATH", "").split(os.pathsep) if not place.startswith((own, str(ROOT)))]
    variables = {name: value for name, value in environment.items() if not name.startswith(ours)}
    return variables | {"PATH": os.pathsep.join(path), "BENTOML_HOME": str(folder / "bentoml")}


def follow(context: Context) -> Measured:
    """Run the commands in an empty folder, then ask what they have started without a key and without TLS."""
    lines = commands(PAGE.read_text(encoding="utf-8"), SECTION)
    if servers.free_port(PORT) != PORT:
        raise PliantError(f"something listens on port {PORT}, which the page's commands use: stop it first")
    # Not under .pliant: BentoML builds nothing in a folder whose path has a hidden part.
    with tempfile.TemporaryDirectory(prefix="pliant-commands-", ignore_cleanup_errors=True) as name:
        folder, begun = Path(name), time.monotonic()
        shell = Shell(clean_environment(folder, os.environ), folder)
        try:
            with context.stage("the commands") as progress:
                for number, line in enumerate(lines, start=1):
                    shell.run(line.replace(ADDRESS, str(ROOT)), SECONDS)
                    progress(number, len(lines))
            seconds = time.monotonic() - begun
            wrong = [] if any('"label"' in line for line in shell.output[-3:]) else [f"answer: {shell.output[-1:]}"]
            wrong += wide_open(folder / "pliant" / "tls.crt")
        finally:
            shell.stop()
    for fault in wrong:
        Console().print(fault, markup=False)
    targets = [
        Target(
            "faults of a bento behind key and TLS, by the page's commands from an empty folder", len(wrong), "<=", 0
        ),
        Target("commands that the page names for it", len(lines), "<=", MOST),
    ]
    return targets, {"commands": lines, "seconds": seconds, "wrong": wrong}


def wide_open(certificate: Path) -> list[str]:
    """Return what a stranger gets that he should not: an answer without a key, or without TLS."""
    wrong = list[str]()
    try:
        status, *_ = exchange(f"https://localhost:{PORT}", "POST", "/predict", BODY, timeout=30.0, trusted=certificate)
        if status != NO_KEY:
            wrong.append(f"a request without a key is answered with {status}")
    except (OSError, HTTPException) as error:
        wrong.append(f"a request without a key has no answer: {error}")
    with socket.create_connection((servers.HOST, PORT), timeout=10) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(OSError):  # a connection that is closed or reset
            if plain.recv(100).startswith(b"HTTP/"):
                wrong.append("a request without TLS is answered")
    return wrong
