"""Prometheus as the stack runs it: deploy/monitoring, with the services of this machine for targets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.benchmarks.places import ROOT
from pliant.errors import PliantError
from pliant.flows import servers
from pliant.flows.settings import Settings
from qa.stack.programs import program

FOLDER = ROOT / "deploy" / "monitoring"
SCRAPE = "1s"  # in place of the configuration's seconds: a test waits for few


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series that an expression has now. Raises `PliantError` for one that is not understood."""
        address = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            raise PliantError(f"Prometheus refuses {expression!r}: {error.read()[:300]!r}") from None
        return result

    def await_data(self, expression: str, seconds: float) -> bool:
        """Return whether an expression has a series within so many seconds."""
        until = time.monotonic() + seconds
        while not self.query(expression):
            if time.monotonic() > until:
                return False
            time.sleep(0.5)
        return True


@contextmanager
def prometheus(
    project: Settings, folder: Path, targets: Mapping[str, str], key: str = "", authority: Path | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus. `targets`: system -> host:port of its service; `key` opens /metrics; `authority`: file of the
    certificate that services are trusted by, where they speak TLS. Raises `Skipped`."""
    command, port = [program("prometheus")], servers.free_port()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("prometheus.yaml", "alerts.yaml"):
        shutil.copy(FOLDER / name, folder / name)
    path = folder / "prometheus.yaml"
    text = re.sub(r"(scrape_interval|evaluation_interval): \w+", rf"\1: {SCRAPE}", path.read_text())
    text = text.replace("#key ", "") if key else text
    path.write_text(text.replace("#tls ", "") if authority else text)
    if authority is not None:
        shutil.copy(authority, folder / "ca.pem")
    if key:
        secret = folder / "monitor.key"
        secret.touch(mode=0o600)
        secret.write_text(key)
    rows = [{"targets": [address], "labels": {"system": system}} for system, address in targets.items()]
    (folder / "targets.yaml").write_text(json.dumps(rows))  # which is YAML, too
    command += ["--config.file", str(path), "--storage.tsdb.path", str(folder / "data")]
    command += ["--web.listen-address", f"{servers.HOST}:{port}"]
    with servers.running("Prometheus", command, {}, f"http://{servers.HOST}:{port}/-/ready", project.home):
        yield Prometheus(f"http://{servers.HOST}:{port}")


def check_rules() -> str:
    """Return what promtool says against rules, configuration and their tests; empty: nothing. Raises `Skipped`."""
    promtool, said = program("promtool"), []
    for words in (
        ("check", "config", "prometheus.yaml"),
        ("check", "rules", "alerts.yaml"),
        ("test", "rules", "alerts_test.yaml"),
    ):
        done = subprocess.run([promtool, *words], cwd=FOLDER, capture_output=True, text=True, check=False)
        if done.returncode:
            said.append((done.stdout + done.stderr).strip())
    return "\n".join(said)
