"""nginx as the stack's containers run it, by deploy/proxy/nginx.conf with ports and files of this machine; and before one
server, with a certificate or a password or both: a registry as many have it.
"""

from __future__ import annotations

import os
import re
import signal
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

SECONDS = 20.0  # within which it listens, or follows a change
GUARDED = """
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ }}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxied;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen {host}:{port} {secure};
    {certificate}
    {password}
    location / {{ proxy_pass {upstream}; proxy_set_header Host $host; proxy_set_header Authorization ""; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """A proxy whose certificate and passwords can be changed while it runs."""

    host: str
    port: int
    secure: bool
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}"

    def address(self, user: str, password: str) -> str:
        """Return the address with a name and a password in it."""
        return self.url.replace("://", f"://{user}:{password}@")

    def change(self, passwords: Mapping[str, str]) -> None:
        """Let these users in from now on, and nobody else."""
        _write(self.folder, passwords)
        self.reload()

    def reload(self) -> None:
        """Have nginx read its files again, and return when it has."""
        before = _children(self.process.pid)
        self.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + SECONDS
        while before & _children(self.process.pid):
            if time.monotonic() > until:
                raise PliantError(f"nginx did not read its files again; its log is {self.folder / 'error.log'}")
            time.sleep(0.05)


@contextmanager
def guarded(
    upstream: str, folder: Path, passwords: Mapping[str, str] | None = None, certificate: Certificate | None = None
) -> Iterator[Guard]:
    """Run nginx before the server at `upstream`. `passwords`: user -> password; None: everybody may.

    Raises `Skipped` without nginx, `PliantError` where it does not start.
    """
    port = servers.free_port()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    lines = {"certificate": "", "password": "", "secure": "ssl" if certificate else ""}
    if certificate is not None:
        lines["certificate"] = f"ssl_certificate {certificate.path}; ssl_certificate_key {certificate.key};"
    if passwords is not None:
        _write(folder, passwords)
        lines["password"] = f'auth_basic "registry"; auth_basic_user_file {folder / "users"};'
    text = GUARDED.format(folder=folder, host=servers.HOST, port=port, upstream=upstream, **lines)
    with nginx(folder, text, port) as process:
        yield Guard(servers.HOST, port, certificate is not None, folder, process)


def _write(folder: Path, passwords: Mapping[str, str]) -> None:
    """Write nginx's file of users. {PLAIN} passwords are for tests alone."""
    (folder / "users").write_text("".join(f"{user}:{{PLAIN}}{word}\n" for user, word in passwords.items()))


def _children(pid: int) -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process(pid).children()}


CONFIGURATION = ROOT / "deploy" / "proxy" / "nginx.conf"


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
