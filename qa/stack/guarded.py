"""nginx before one server, with a certificate or a password or both: a registry as many have it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pliant.errors import PliantError
from pliant.flows import servers
from qa.stack.proxy import nginx
from tests.fixtures.certificate import Certificate

SECONDS = 20.0  # within which it listens, or follows a change
TEXT = """
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
    text = TEXT.format(folder=folder, host=servers.HOST, port=port, upstream=upstream, **lines)
    with nginx(folder, text, port) as process:
        yield Guard(servers.HOST, port, certificate is not None, folder, process)


def _write(folder: Path, passwords: Mapping[str, str]) -> None:
    """Write nginx's file of users. {PLAIN} passwords are for tests alone."""
    (folder / "users").write_text("".join(f"{user}:{{PLAIN}}{word}\n" for user, word in passwords.items()))


def _children(pid: int) -> set[int]:
    import psutil

    return {child.pid for child in psutil.Process(pid).children()}
