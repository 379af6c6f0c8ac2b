"""The servers of the stack, each by its configuration in deploy/ with ports and folders of this machine.

Postgres, MLflow's server, nginx in front of the endpoints (or before one server, with a certificate or a password or both:
a registry as many have it), and Prometheus. Without a program each raises `Skipped`, which names Debian's package.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from pliant.benchmarks.harness import Skipped
from pliant.errors import PliantError
from pliant.flows import servers
from pliant.jsonl import open_log
from qa.prefect_server import until
from qa.targets import bearer
from tests.fixtures.certificate import Certificate
from tests.fixtures.places import ROOT

PACKAGES = {
    "postgres": "postgresql",
    "initdb": "postgresql",
    "psql": "postgresql-client",
    "nginx": "nginx-light",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
"""Program -> Debian's package."""
FOLDERS = ("usr/sbin", "usr/lib/postgresql/*/bin")
"""Where Debian puts programs that are not on everybody's PATH."""
SECONDS = 60.0  # within which a server is up, or follows a change
MONITORING, NGINX = ROOT / "deploy" / "monitoring", ROOT / "deploy" / "proxy" / "nginx.conf"


def program(name: str) -> str:
    """Return the path of a program: <NAME> in capitals, on the PATH, or where Debian puts it. Raises `Skipped`."""
    places = [os.environ.get(name.upper(), ""), shutil.which(name) or ""]
    places += [str(path) for folder in FOLDERS for path in sorted(Path("/").glob(f"{folder}/{name}"), reverse=True)]
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    raise Skipped(
        f"{name} is not installed here (Debian's package {PACKAGES[name]}; the variable {name.upper()} may name it)"
    )


def installed(*names: str) -> None:
    """Skip the test unless these programs are installed."""
    try:
        for name in names:
            program(name)
    except Skipped as error:
        pytest.skip(str(error))


def connect(url: str, key: str = "", trusted: Path | None = None) -> httpx.Client:
    """Return a client of a server. `trusted`: file of the certificate of one with TLS. Each request has its connection."""
    return httpx.Client(
        base_url=url,
        headers=bearer(key),
        verify=ssl.create_default_context(cafile=trusted),
        timeout=60.0,
        limits=httpx.Limits(max_keepalive_connections=0),
        trust_env=False,
    )


def started(command: Sequence[str], log: Path, ready: Callable[[], bool], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program, and return its process when it is ready. Raises `PliantError` with its log where it ends."""
    with open_log(log) as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, **options)
    try:
        until(lambda: process.poll() is not None or ready(), SECONDS)
    except BaseException:
        servers.stop(process)
        raise
    if process.poll() is not None:
        raise PliantError(f"{Path(command[0]).name} has ended: {log.read_text()[-300:]}")
    return process


class Postgres:
    """A server that can be stopped and started again, on the same port with the same data. Raises `PliantError`."""

    OWNER = "pliant"

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder, self.log = folder, log
        self.password, self.port = secrets.token_urlsafe(16), servers.free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self.user = "nobody" if os.geteuid() == 0 else None  # it refuses to be run by root
        secret = folder / "password"
        secret.write_text(self.password)
        if self.user is not None:
            shutil.chown(folder, self.user)
            shutil.chown(secret, self.user)
        words = ["--pgdata", str(folder / "data"), "--username", self.OWNER, "--pwfile", str(secret)]
        words += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"]
        done = subprocess.run(
            [program("initdb"), *words], capture_output=True, text=True, user=self.user, cwd=folder, check=False
        )
        secret.unlink()
        if done.returncode:
            raise PliantError(f"Postgres's data cannot be made: {(done.stderr or done.stdout).strip()[-300:]}")

    def address(self, database: str, driver: str) -> str:
        """Return SQLAlchemy's address of a database."""
        return f"postgresql+{driver}://{self.OWNER}:{self.password}@{servers.HOST}:{self.port}/{database}"

    @property
    def libpq(self) -> dict[str, str]:
        """The variables by which libpq reaches the server."""
        host, port = servers.HOST, str(self.port)
        return {"PGHOST": host, "PGPORT": port, "PGUSER": self.OWNER, "PGPASSWORD": self.password}

    def start(self) -> None:
        """Start the server, and return when it takes connections."""
        words = ["-D", str(self.folder / "data"), "-h", servers.HOST, "-p", str(self.port), "-k", str(self.folder)]
        command, ready = [program("postgres"), *words], lambda: self.run("SELECT 1")
        self.process = started(command, self.log, ready, user=self.user, cwd=self.folder)

    def stop(self) -> None:
        """Stop the server; its clients lose their connections."""
        if self.process is not None:
            servers.stop(self.process)

    def run(self, statement: str) -> bool:
        """Run a statement; False while the server does not take connections."""
        login = {"host": servers.HOST, "port": self.port, "user": self.OWNER, "password": self.password}
        try:
            with psycopg.connect(**login, dbname="postgres", autocommit=True) as connection:
                connection.execute(statement.encode())
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres(logs: Path, databases: tuple[str, ...] = ("mlflow", "prefect")) -> Iterator[Postgres]:
    """Give a server with these databases. Its data lie in a folder for temporary files, maybe another user's."""
    with tempfile.TemporaryDirectory(prefix="pliant-postgres-") as folder:
        server = Postgres(Path(folder), logs / "postgres.log")
        try:
            server.start()
            for name in databases:
                server.run(f"CREATE DATABASE {name}")
            yield server
        finally:
            server.stop()


@contextmanager
def mlflow_server(home: Path, records: str, state: Path) -> Iterator[str]:
    """Run MLflow's server as deploy/compose.yaml does: artifacts through it. `records`: address of its database."""
    port = servers.free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", servers.HOST, "--port", str(port), "--workers", "1"]
    command += ["--serve-artifacts", "--artifacts-destination", str(home / "artifacts")]
    # The address is not in the list of processes.
    environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": records, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    url = f"http://{servers.HOST}:{port}"
    with servers.running("MLflow", command, environment, f"{url}/health", state / "logs" / "mlflow.log"):
        yield url


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now. Raises `PliantError` for one that is not understood."""
        with connect(self.url) as client:
            answer = client.get("/api/v1/query", params={"query": expression})
        if answer.is_error:
            raise PliantError(f"Prometheus refuses {expression!r}: {answer.text[:300]}")
        return list(answer.json()["data"]["result"])


@contextmanager
def prometheus(home: Path, targets: Mapping[str, str], key: str, authority: Path | None = None) -> Iterator[Prometheus]:
    """Run Prometheus, with its files in `home`. `targets`: system -> host:port of its service; `key` opens /metrics;
    `authority`: file of the certificate that services are trusted by, where they speak TLS."""
    command, folder, url = [program("prometheus")], home / "prometheus", f"{servers.HOST}:{servers.free_port()}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(MONITORING, folder)
    path = folder / "prometheus.yaml"
    text = re.sub(r"(scrape_interval|evaluation_interval): \w+", r"\1: 1s", path.read_text())  # a test waits for few
    text = text.replace("#key ", "")
    path.write_text(text.replace("#tls ", "") if authority else text)
    if authority is not None:
        shutil.copy(authority, folder / "ca.pem")
    secret = folder / "monitor.key"
    secret.touch(mode=0o600)
    secret.write_text(key)
    rows = [{"targets": [address], "labels": {"system": system}} for system, address in targets.items()]
    (folder / "targets.yaml").write_text(json.dumps(rows))  # which is YAML, too
    command += ["--config.file", str(path), "--storage.tsdb.path", str(folder / "data"), "--web.listen-address", url]
    with servers.running("Prometheus", command, os.environ, f"http://{url}/-/ready", home / "logs" / "prometheus.log"):
        yield Prometheus(f"http://{url}")


@contextmanager
def nginx(folder: Path, text: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run nginx with a configuration that has it listen on a port of this machine, and give its process."""
    path, log = folder / "nginx.conf", folder / "nginx.log"
    path.write_text(text)
    user = "user root; " if os.geteuid() == 0 else ""  # or its workers could not read a folder of the user's own
    command = [program("nginx"), "-p", str(folder), "-c", str(path), "-e", str(log), "-g", f"{user}daemon off;"]

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((servers.HOST, port)) == 0

    process = started(command, log, listens)
    try:
        yield process
    finally:
        servers.stop(process)


@dataclass(frozen=True, slots=True)
class Proxy:
    """`url`: what clients call. `ports`: those of the configuration -> those that it listens on here."""

    url: str
    ports: Mapping[int, int]


@contextmanager
def proxy(
    folder: Path, upstreams: Mapping[str, str], certificate: Certificate, password: str = "nobody:!"
) -> Iterator[Proxy]:
    """Run nginx as the stack's containers do. `upstreams`: name of a container -> its address here, others are not there;
    `password`: of operators, by default one that none fits.

    Raises `PliantError` where the configuration has nothing to replace, as it has changed then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    operators, text = folder / "operators", NGINX.read_text()
    operators.write_text(f"{password}\n")
    ports = {port: servers.free_port() for port in (8443, 8444, 4280, 8080)}
    addresses = dict.fromkeys(re.findall(r"set \$upstream ([\w-]+):", text), f"{servers.HOST}:9") | dict(upstreams)
    files = {"tls_certificate": certificate.path, "tls_key": certificate.key, "operators": operators}
    here = {r"(?<![\w/])/tmp/": f"{folder}/"}  # first: the other paths may lie there
    here |= {rf"set \$upstream {re.escape(name)}:\d+;": f"set $upstream {at};" for name, at in addresses.items()}
    here |= {rf"listen (?:127\.0\.0\.1:)?{port}\b": f"listen {servers.HOST}:{own}" for port, own in ports.items()}
    here |= {rf"/run/secrets/{name}\b": str(path) for name, path in files.items()}
    here |= {"/dev/stdout": str(folder / "access.log"), "/dev/stderr": str(folder / "error.log")}
    for pattern, own in here.items():
        text, count = re.subn(pattern, own, text)
        if not count:
            raise PliantError(f"{NGINX} has nothing like {pattern}: the stack's test must follow it")
    with nginx(folder, text, ports[8443]):
        yield Proxy(f"https://{certificate.host}:{ports[8443]}", ports)


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
    listen {listen};
    {own}
    location / {{ proxy_pass {upstream}; proxy_set_header Host $host; proxy_set_header Authorization ""; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Guard:
    """A proxy whose certificate and passwords can be changed while it runs."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    def address(self, user: str, password: str) -> str:
        """Return the address with a name and a password in it."""
        return self.url.replace("://", f"://{user}:{password}@")

    def change(self, passwords: Mapping[str, str]) -> None:
        """Let these users in from now on, and nobody else."""
        _write(self.folder, passwords)
        self.reload()

    def reload(self) -> None:
        """Have nginx read its files again, and return when it has."""
        nginx = psutil.Process(self.process.pid)
        before = set(nginx.children())
        self.process.send_signal(signal.SIGHUP)
        until(lambda: not before & set(nginx.children()), SECONDS)


@contextmanager
def guarded(
    upstream: str, folder: Path, passwords: Mapping[str, str] | None = None, certificate: Certificate | None = None
) -> Iterator[Guard]:
    """Run nginx before the server at `upstream`. `passwords`: user -> password; None: everybody may."""
    listen, own = f"{servers.HOST}:{servers.free_port()}", ""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if certificate is not None:
        own += f"ssl_certificate {certificate.path}; ssl_certificate_key {certificate.key};"
    if passwords is not None:
        _write(folder, passwords)
        own += f'auth_basic "registry"; auth_basic_user_file {folder / "users"};'
    secure = "ssl" if certificate else ""
    text = GUARDED.format(folder=folder, listen=f"{listen} {secure}", upstream=upstream, own=own)
    with nginx(folder, text, int(listen.rpartition(":")[2])) as process:
        yield Guard(f"{'https' if certificate else 'http'}://{listen}", folder, process)


def _write(folder: Path, passwords: Mapping[str, str]) -> None:
    """Write nginx's file of users. {PLAIN} passwords are for tests alone."""
    (folder / "users").write_text("".join(f"{user}:{{PLAIN}}{word}\n" for user, word in passwords.items()))
