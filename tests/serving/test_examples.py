"""The examples of the pages are run as they stand there, against services with models of the demo's names and kinds."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pliant.benchmarks.bins.demo
import pliant.benchmarks.tokens.demo
import pliant.flows.bins.config
import pliant.flows.cascade.config
import pliant.flows.packing.config
import pliant.flows.tokens.config
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.launch import Service
from tests.fixtures.bins import published as bins
from tests.fixtures.cascade import published as cascade
from tests.fixtures.clients import PATIENCE
from tests.fixtures.live import running
from tests.fixtures.packing import published as packing
from tests.fixtures.tokens import published as tokens
from tests.fixtures.tokens.http import png

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"docs/{name}.md" for name in ("tokens", "bins", "cascade", "packing", "interfaces")))
ADDRESS = "http://127.0.0.1:3000"
CODE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^curl (?:.*\\\n)*.*$", re.MULTILINE)
LATE = 429  # a slow machine may say that the example's deadline cannot be kept
NEEDS_ALARM = "/v1/outcomes/alarms/1"  # of an example that takes back what must have happened first


def examples(language: str) -> list[tuple[str, str]]:
    """Return every command of curl, or every program in Python, that the pages send to a service, with its page."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        for kind, code in CODE.findall((ROOT / page).read_text()):
            if language == "curl":
                found += [(page, command) for command in COMMAND.findall(code) if ADDRESS in command]
            elif kind == language and ADDRESS in code:
                found.append((page, code))
    return [(page, code) for page, code in found if NEEDS_ALARM not in code]


def served(page: str, code: str) -> str:
    """Return which service an example is for."""
    if page == "docs/bins.md" and re.search(r"/(embed|v1/embeddings)\b", code):
        return "bins without a head"
    if page == "docs/bins.md" and "rerank" in code:
        return "bins that rank"
    return "bins" if page == "README.md" else Path(page).stem


def start_bins(folder: Path, name: str, kind: str) -> Any:
    publisher = bins.MlflowPublisher(folder)
    digest = publisher.publish(BINS_ENCODER + name, replace(bins.encoder(kind), name=name))
    publisher.publish(BINS_PREFIX + name, bins.plan(name, digest))
    return bins.settings_for(folder)


def start_tokens(folder: Path) -> Any:
    tokens.publish_all(folder, f"cpu-{platform.machine()}-1t", task="digit")
    return tokens.settings_for(folder)


def start_cascade(folder: Path) -> Any:
    cascade.publish_tiny(cascade.MlflowPublisher(folder), "package")
    return cascade.settings_for(folder)


def start_packing(folder: Path) -> Any:
    packing.publish_tiny(packing.MlflowPublisher(folder))
    return packing.settings_for(folder, predict_limit=60.0)


SERVICES: Mapping[str, Callable[[Path], Any]] = {
    "bins": lambda folder: start_bins(folder, "package", "colours"),
    "bins without a head": lambda folder: start_bins(folder, "minilm", "meanings"),
    "bins that rank": lambda folder: start_bins(folder, "rank", "ranks"),
    "tokens": start_tokens,
    "cascade": start_cascade,
    "packing": start_packing,
}


@contextmanager
def running_service(name: str, folder: Path) -> Iterator[Service]:
    folder.mkdir()
    with running(SERVICES[name](folder), folder) as service:
        yield service


def answer(command: str, service: Service, folder: Path) -> tuple[int, str]:
    """Run a command of curl in a shell; return the status and the body of the answer."""
    (folder / "seven.png").write_bytes(png())
    told = command.replace(ADDRESS, service.url).replace("<base64>", b64encode(png()).decode())
    told += " --silent --show-error --noproxy '*' --write-out '\\n%{http_code}'"
    run = subprocess.run(
        ["bash", "-c", told], cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    body, _, status = run.stdout.rpartition("\n")
    return int(status), body


def test_the_pages_have_examples_and_each_has_its_service():
    commands, programs = examples("curl"), examples("python")
    assert {page for page, _ in commands} >= {"README.md", "docs/tokens.md", "docs/bins.md", "docs/cascade.md"}
    assert [page for page, _ in programs] == ["docs/packing.md"]
    assert {served(page, code) for page, code in [*commands, *programs]} == set(SERVICES)


def test_the_models_of_these_services_are_called_as_the_demos_are():
    bins_config = pliant.flows.bins.config.read(overrides=pliant.benchmarks.bins.demo.OVERRIDES)
    assert [stream.data for stream in bins_config.streams] == ["docstrings:package"]
    assert [stream.encoder for stream in bins_config.streams] == ["embedded"], "which has a classification head"
    assert "digits:digit" in pliant.benchmarks.tokens.demo.OVERRIDES["data"]
    assert [task.data for task in pliant.flows.cascade.config.CascadeFlowConfig().tasks] == ["docstrings:package"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SERVICES if name != "packing"])
def test_every_command_of_the_pages_is_answered(tmp_path, name):
    commands = [code for page, code in examples("curl") if served(page, code) == name]
    assert commands
    with running_service(name, tmp_path / "state") as service:
        for command in commands:
            status, body = answer(command, service, tmp_path)
            assert status in (200, LATE), f"{command}\nis answered with {status}: {body}"


@pytest.mark.slow
def test_the_program_of_packings_page_prints_a_text(tmp_path):
    pytest.importorskip("openai")
    ((_, program),) = examples("python")
    with running_service("packing", tmp_path / "state") as service:
        told = program.replace(ADDRESS, service.url).replace('"docstrings"', f'"{packing.NAME}"')
        environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
        run = subprocess.run(
            [sys.executable, "-c", told], capture_output=True, text=True, check=False, env=environment, timeout=PATIENCE
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout
