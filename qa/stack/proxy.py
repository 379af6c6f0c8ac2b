"""nginx as the stack's containers run it, by deploy/proxy/nginx.conf with ports and files of this machine."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pliant.benchmarks.places import ROOT
from pliant.errors import PliantError
from pliant.flows import servers
from pliant.jsonl import open_log
from qa.stack.programs import program
from tests.fixtures.certificate import Certificate

CONFIGURATION = ROOT / "deploy" / "proxy" / "nginx.conf"
SECONDS = 20.0  # within which it listens


@dataclass(frozen=True, slots=True)
class Proxy:
    """`url`: what clients call. `ports`: those of the configuration -> those that it listens on here."""

    url: str
    ports: Mapping[int, int]


def configuration(text: str, upstreams: Mapping[str, str], ports: Mapping[int, int], files: Mapping[str, Path]) -> str:
    """Return nginx's configuration for this machine. `upstreams`: name of a container -> address here; `files`: of secrets.

    Raises `PliantError` where the configuration has nothing to replace, as it has changed then.
    """
    folder = next(iter(files.values())).parent
    text = _replaced(text, r"(?<![\w/])/tmp/", f"{folder}/")  # first: the other paths may lie there
    for name, address in upstreams.items():
        text = _replaced(text, rf"set \$upstream {re.escape(name)}:\d+;", f"set $upstream {address};")
    for port, here in ports.items():
        text = _replaced(text, rf"listen (?:127\.0\.0\.1:)?{port}\b", f"listen {servers.HOST}:{here}")
    for name, path in files.items():
        text = _replaced(text, rf"/run/secrets/{name}\b", str(path))
    text = _replaced(text, r"/dev/stdout", str(folder / "access.log"))
    return _replaced(text, r"/dev/stderr", str(folder / "error.log"))


def _replaced(text: str, pattern: str, by: str) -> str:
    result, count = re.subn(pattern, lambda _match: by, text)
    if not count:
        raise PliantError(f"{CONFIGURATION} has nothing like {pattern}: the stack's test must follow it")
    return result


@contextmanager
def proxy(
    folder: Path, upstreams: Mapping[str, str], certificate: Certificate, password: str = "nobody:!"
) -> Iterator[Proxy]:
    """Run nginx in front of the upstreams. `password`: of operators, by default one that none fits.

    Raises `Skipped` without nginx, `PliantError` where it does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = {port: servers.free_port() for port in (8443, 8444, 4280, 8080)}
    operators = folder / "operators"
    operators.write_text(f"{password}\n")
    files = {"tls_certificate": certificate.path, "tls_key": certificate.key, "operators": operators}
    names = set(re.findall(r"set \$upstream ([\w-]+):", CONFIGURATION.read_text()))
    addresses = {name: upstreams.get(name, f"{servers.HOST}:9") for name in names}  # 9: nobody answers
    text = configuration(CONFIGURATION.read_text(), addresses, ports, files)
    with nginx(folder, text, ports[8443]):
        yield Proxy(f"https://{certificate.host}:{ports[8443]}", ports)


@contextmanager
def nginx(folder: Path, text: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with a configuration that has it listen on a port of this machine, and give its process.

    Raises `Skipped` without nginx, `PliantError` where it does not start.
    """
    command, path = [program("nginx"), "-p", str(folder)], folder / "nginx.conf"
    path.write_text(text)
    user = "user root; " if os.geteuid() == 0 else ""  # or its workers could not read a folder of the user's own
    command += ["-c", str(path), "-e", str(folder / "error.log"), "-g", f"{user}daemon off;"]
    with open_log(folder / "nginx.log") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        _await_port(port, process, folder)
        yield process
    finally:
        servers.stop(process)


def _await_port(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection((servers.HOST, port), timeout=2).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    logs = [folder / name for name in ("nginx.log", "error.log")]
    raise PliantError(f"nginx does not listen: {' '.join(log.read_text()[-300:] for log in logs if log.exists())}")
