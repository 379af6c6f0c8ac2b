"""`pliant ui`: MLflow and Prefect on the state of this folder, and a page of all services that run here.

What runs already is found by the file in which the command that started it has noted its addresses.
"""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from pliant import systems
from pliant.errors import InputError, PliantError

if TYPE_CHECKING:
    from pliant.flows.settings import Settings

FILE = "ui.json"  # in PLIANT_HOME
TRACED = 0.01  # share of a service's requests that MLflow gets traces of
HINT = "`pliant ui` shows MLflow, Prefect and all services."
EXPORTER = "OTEL_EXPORTER_OTLP_"
COLLECTOR, HEADERS_SENT = f"{EXPORTER}ENDPOINT", f"{EXPORTER}HEADERS"
NAMES = ("127.0.0.1", "localhost")  # by which the page is called; a page of another website has another
HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Addresses:
    mlflow: str
    prefect: str
    house: str

    def __str__(self) -> str:
        return f"MLflow    {self.mlflow}\nPrefect   {self.prefect}\nHouse     {self.house}"


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "start MLflow and Prefect on the state of this folder, and a page of all services, until Ctrl-C"
    parser: ArgumentParser = commands.add_parser("ui", help=text, description=text)
    parser.set_defaults(run=_run)


def _run(_args: Namespace) -> None:
    from pliant.flows import settings
    from pliant.flows.progress import stage
    from pliant.flows.run import with_prefect

    project = settings.prepare()
    if running := noted(project):
        print(f"{running}\nThey run already, until the command that started them ends.")
        return
    check_registry(project)
    with with_prefect(project, for_people=True) as prefect, ExitStack() as stack:
        with stage("MLflow's server"):
            addresses = stack.enter_context(pages(project, prefect))
        print(f"{addresses}\nUntil Ctrl-C, which ends what this command has started.", flush=True)
        wait()


def wait() -> None:
    """Return upon Ctrl-C."""
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)


def check_registry(project: Settings) -> None:
    """Raise `InputError` where the registry is a file that is not there: MLflow would make an empty one."""
    from pliant.registry.mlflow_client import database

    file = database(project.tracking_uri)
    if file is not None and not file.exists():
        limit = "a registry that exists: run `pliant demo` or `pliant train SYSTEM` in this folder first"
        raise InputError("MLFLOW_TRACKING_URI", project.tracking_uri, limit)


def noted(project: Settings) -> Addresses | None:
    """Return the addresses that a command has noted in this folder, if all three answer."""
    from pliant import state
    from pliant.flows import servers

    with suppress(OSError, InputError):
        addresses = state.read(Addresses, (project.home / FILE).read_text("utf-8"), "addresses")
        checked = (f"{addresses.mlflow}/health", f"{addresses.prefect}/api/health", f"{addresses.house}/health")
        return addresses if all(servers.answers(address) for address in checked) else None
    return None


def may_trace(project: Settings) -> bool:
    """Whether services send traces to MLflow: not to a server of others, nor where OpenTelemetry's variables say where."""
    from pliant.registry.mlflow_client import database

    said = any(name.startswith(EXPORTER) for name in os.environ)
    return database(project.tracking_uri) is not None and not said


def collector(project: Settings, system: str, addresses: Addresses) -> dict[str, str]:
    """Return OpenTelemetry's variables by which traces get into the system's experiment. Raises `RegistryError`."""
    from pliant.flows.release import open_registry

    experiment = open_registry(project, system).identity().partition(" ")[0]
    return {COLLECTOR: addresses.mlflow, HEADERS_SENT: f"x-mlflow-experiment-id={experiment}"}


@contextmanager
def pages(project: Settings, prefect: str) -> Iterator[Addresses]:
    """Run MLflow, unless the registry is one of its servers, and the page of all services; note and give the addresses."""
    from pliant.flows import servers
    from pliant.jsonl import write_whole
    from pliant.registry.mlflow_client import shown

    with ExitStack() as stack:
        mlflow = shown(project.tracking_uri).rstrip("/")
        if not mlflow.startswith("http"):
            mlflow = stack.enter_context(servers.mlflow_server(project, servers.usual_port("MLflow")))
        port = servers.usual_port("House")
        addresses = Addresses(mlflow, prefect, f"http://{servers.HOST}:{port}")
        stack.enter_context(house(project, addresses, port))
        path, content = project.home / FILE, json.dumps(asdict(addresses)).encode()
        write_whole(path, content)
        try:
            yield addresses
        finally:
            with suppress(FileNotFoundError):
                if path.read_bytes() == content:  # else another command has noted its own
                    path.unlink()


@contextmanager
def house(project: Settings, addresses: Addresses, port: int) -> Iterator[None]:
    """Serve the page of all services to this machine."""
    from pliant.flows import servers

    template = Path(__file__).with_name("house.html").read_text("utf-8")
    for name, address in (("mlflow", addresses.mlflow), ("prefect", addresses.prefect)):
        template = template.replace("{{" + name + "}}", escape(address))

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known_name = self.headers.get("host", "").rpartition(":")[0] in NAMES
            status = 421 if not known_name else 200 if self.path in ("/", "/health") else 404
            shown = status == 200 and self.path == "/"
            content = template.replace("{{rows}}", rows(project)).encode() if shown else b""
            self.send_response(status)
            for name, value in {**HEADERS, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            with suppress(OSError):  # the browser has gone
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_values: object) -> None:
            """Say nothing: the terminal belongs to the command."""

    with ThreadingHTTPServer((servers.HOST, port), Page) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, name="house", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def rows(project: Settings) -> str:
    """Return the rows of the page's table: a row a service, and one for a system that none serves."""
    from pliant.flows.status import live
    from pliant.serving.launch import is_ready, known

    services, lines = known(project.home), []
    for system in systems.names():
        try:
            release = live(project, system)
            since = f", since {release.since[:16].replace('T', ' ')} UTC" if release and release.since else ""
            said = f"{release.number}{since}" if release else "none"
        except PliantError as error:
            release, said = None, str(error)
        own = [each for each in services if each.system == system]
        for each in own:
            link = f'<a href="{escape(each.url)}">{escape(each.url)}</a>'
            lines.append(_row(system, escape(said), link, "ready" if is_ready(each.url) else "does not answer yet"))
        if not own:
            way = f"<code>pliant {'serve' if release else 'train'} {system}</code>"
            lines.append(
                _row(system, escape(said), "none", f"not running: {way}" if release else f"no release yet: {way}")
            )
    return "".join(lines)


def _row(system: str, *cells: str) -> str:
    names: Sequence[str] = ("Live release", "Service", "State")
    texts = "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in zip(names, cells, strict=True))
    return f'<tr><th scope="row">{system}</th>{texts}</tr>'
