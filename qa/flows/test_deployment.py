"""The commands of docs/operations.md, "Schedules", on a real server and worker: the nightly run trains what is served."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pliant.flows import settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_store import CHAMPION
from qa.prefect_server import BEGUN, ENDED, POOL, Server, await_run, logs, prefect_of, worker
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE

OFTEN = "* * * * *"
MINE = """
data = ["digits:digit"]
[foundation]
images = 128
options = {img_size = 16, patch_size = 4, embed_dim = 24, depth = 2, num_heads = 2}
[task]
epochs = 0.05
head_steps = 5
[latency]
batches = [1, 2]
timer = {warmup = 0, least = 1, most = 1}
[arithmetic]
precision = "float32"
[reference]
seconds = 0.2
[gate]
seeds = 1
tolerance = 1.0
"""
SERVERS = ("export PREFECT_API_URL=", "prefect server start", "prefect worker start")
"""What the lines begin with that the test does by its own, with other ports and logs."""


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    with prefect_of(tmp_path, PYTHONPATH=str(ROOT)) as server:
        (tmp_path / "mine.toml").write_text(MINE)
        yield server


def page() -> list[str]:
    """The commands of the page's section, in their order."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("\n## Schedules\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def command(folder, line: str, status: int = 0) -> str:
    """What a command of the page prints, typed in a folder."""
    program, *words = shlex.split(line)
    module = {"pliant": ["pliant.cli"], "prefect": ["prefect", "--no-prompt"]}[program]
    process = subprocess.run(
        [sys.executable, "-m", *module, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert process.returncode == status, (line, process.stdout + process.stderr, logs())
    return process.stdout + process.stderr


def test_the_commands_of_the_page_run_and_the_night_trains_what_is_served_and_nothing_of_the_demo(
    server, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLIANT_PROJECT", str(tmp_path))  # as if the project's folder were not the checkout
    lines = page()
    assert [start for start in SERVERS if any(line.startswith(start) for line in lines)] == list(SERVERS)
    typed = [line for line in lines if not line.startswith(SERVERS)]
    assert "pliant schedule tokens" in typed
    assert "has no release whose configuration could be trained with" in command(tmp_path, "pliant schedule tokens", 2)
    assert server.call("POST", "/deployments/filter", {}) == []
    command(tmp_path, "pliant train tokens --config mine.toml")
    for line in typed:
        if " ID" in line:
            (shown,) = server.call("GET", "/deployments/name/tokens/nightly")["schedules"]
            line = line.replace(" ID", f" {shown['id']}")
        command(tmp_path, line)

    deployment = server.call("GET", "/deployments/name/tokens/nightly")
    (paused,) = deployment["schedules"]
    assert (deployment["work_pool_name"], deployment["parameters"]) == (POOL, {"nightly": True})
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert not paused["active"], "the page's last command"
    assert "Its schedule is paused" in command(tmp_path, f"pliant schedule tokens --cron '{OFTEN}'")
    (often,) = server.call("GET", "/deployments/name/tokens/nightly")["schedules"]
    assert (often["schedule"]["cron"], often["active"]) == (OFTEN, False), "who paused it has a reason"
    command(tmp_path, f"prefect deployment schedule resume tokens/nightly {often['id']}")
    with worker():
        await_run(server, deployment["id"], BEGUN)
        command(tmp_path, "prefect deployment schedule pause --all")  # one is enough, however long it takes
        run, *_ = await_run(server, deployment["id"], ENDED)
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], logs())
    assert (run["auto_scheduled"], run["parameters"]) == (True, {"nightly": True})
    registry = open_registry(settings.read(), "tokens")
    names = ["pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit"]
    assert registry.names() == ["pliant-release-tokens", *names], "no task of the demo"
    assert [registry.version(name, CHAMPION).version for name in names] == [1, 1, 1]
    kept = registry.release("tokens").configurations["pliant-tokens-task-digit"]
    assert '"images": 128' in kept and "outcomes" not in kept
    assert "task 'loops' is not in the live release" in command(tmp_path, "pliant train tokens --data digits:loops", 2)
    assert registry.names() == ["pliant-release-tokens", *names]
