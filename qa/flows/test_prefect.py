"""Prefect on a real server and worker: hung runs, what is gone for a while, alarms, notices, and the page on schedules."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import psutil
import pytest

from pliant.flows import servers, settings
from pliant.flows.release import open_registry
from pliant.registry.mlflow_store import CHAMPION
from pliant.serving.events import ALARM, TRIAL, Event, EventOutbox, server_of
from qa.prefect_server import (
    BEGUN,
    ENDED,
    POOL,
    Server,
    await_run,
    logs,
    notices,
    prefect_of,
    python,
    schedule,
    until,
    worker,
)
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE

HANGING = "qa/flows/hanging.py:hanging"
AUTOMATIONS = "pliant.flows.watch.automations"
NO_WORKER = "The work pool pliant has no worker"
INSTALL = """
from datetime import timedelta
from pliant.flows.watch.automations import install
install({})
"""


def kill(process: psutil.Process) -> None:
    """Kill a process and all that it started."""
    for each in [*process.children(recursive=True), process]:
        each.kill()


def pooled(server: Server) -> str:
    """Make the work pool and the deployment of the flow that hangs; gives the latter."""
    server.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
    return server.deploy(HANGING, "hanging")


def test_runs_that_hang_are_ended_with_their_children_and_the_next_one_runs(tmp_path):
    markers = {how: tmp_path / how for how in ("lock", "child")}
    with prefect_of(tmp_path, PLIANT_FLOW_HOURS="0.001") as server:  # 3.6 s, and 1 s of grace
        deployment = pooled(server)
        with worker():
            locked = server.start(deployment, how="lock", marker=str(markers["lock"]))
            await_run(server, deployment, ["RUNNING"])
            waiting = server.start(deployment, how="child", marker=str(markers["child"]))
            await_run(server, deployment, ENDED)
            last = server.start(deployment, how="", marker="")
            runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 3)}
        for hung in (locked, waiting):
            assert (runs[hung]["state_name"], runs[hung]["state_type"]) == ("TimedOut", "FAILED"), logs()
        assert "The run hung: it was ended after 0.00128 h" in runs[locked]["state"]["message"]
        assert runs[last]["state_name"] == "Completed", runs[last]["state"]
        order = sorted(runs.values(), key=lambda run: run["start_time"])  # Prefect promises no first come, first served
        assert order[0]["id"] == locked
        for earlier, later in itertools.pairwise(order):  # never two beside each other
            assert earlier["end_time"] <= later["start_time"]
        children = [int(marker.read_text()) for marker in markers.values()]
        until(lambda: not any(map(psutil.pid_exists, children)))  # the guard reports the end, and then kills


def test_a_run_outlasts_the_absence_of_prefects_server_and_the_next_one_comes(tmp_path):
    marker = tmp_path / "marker"
    with prefect_of(tmp_path) as server:
        deployment = pooled(server)
        with worker():
            first = server.start(deployment, how="file", marker=str(marker))
            until(lambda: Path(f"{marker}.begun").exists())
            port = int(server.url.rpartition(":")[2])
            (process,) = [each for each in psutil.Process().children() if str(port) in each.cmdline()]
            kill(process)
            process.wait(PATIENCE)
            time.sleep(7.5)
            marker.touch()  # the run ends while nobody listens
            time.sleep(7.5)
            with servers.prefect_server(settings.read(), port):
                (run,) = await_run(server, deployment, ENDED)
                assert (run["id"], run["state_type"]) == (first, "COMPLETED"), logs()
                second = server.start(deployment, how="", marker="")
                runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 2)}
                assert runs[second]["state_type"] == "COMPLETED", logs()


def test_people_hear_of_a_worker_that_is_gone_and_a_run_whose_machine_is_gone_ends_as_crashed(tmp_path):
    soon = {
        "PREFECT_WORKER_HEARTBEAT_SECONDS": "1",
        "PREFECT_SERVER_SERVICES_FOREMAN_LOOP_SECONDS": "1",
        "PREFECT_SERVER_SERVICES_FOREMAN_INACTIVITY_HEARTBEAT_MULTIPLE": "10",
    }  # a worker is missed after 10 s, not after 90
    with prefect_of(tmp_path, **soon) as server:
        python("-m", AUTOMATIONS)
        deployment = server.deploy(HANGING, "hanging")
        python("-c", INSTALL.format("silent=timedelta(seconds=40)"))  # heartbeats come every 30 s at most often
        with worker() as process:
            run = server.start(deployment, how="file", marker=str(tmp_path / "never"))
            beat = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}
            until(lambda: server.events(**beat))
            kill(psutil.Process(process.pid))
            with worker("pliant-notify"):
                until(lambda: [each for each in notices() if each["text"].startswith(NO_WORKER)])
            (crashed,) = await_run(server, deployment, ENDED)
        assert (crashed["id"], crashed["state_type"]) == (run, "CRASHED"), logs()
        assert "no heartbeat" in crashed["state"]["message"]
        with worker():  # it no longer holds the next one
            server.start(deployment, how="", marker="")
            (last,) = await_run(server, deployment, ["COMPLETED"])
        assert last["id"] != run


def test_people_hear_of_a_decision_with_its_reason(tmp_path):
    with prefect_of(tmp_path) as server:
        python("-m", AUTOMATIONS)
        event = Event(TRIAL, "bins", {"reason": "it asks", "release": 2}).to_prefect()
        with worker("pliant-notify"):
            server.call("POST", "/events", [event])
            until(lambda: [each for each in notices() if each["text"] == "pliant.bins, pliant.trial: it asks"])


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


def page() -> list[str]:
    """The commands of the page's section, in their order."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("\n## Schedules\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def command(folder, line: str, status: int = 0) -> str:
    """What a command of the page prints, typed in a folder."""
    program, *words = shlex.split(line)
    module = {"pliant": ["pliant"], "prefect": ["prefect", "--no-prompt"]}[program]
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


@pytest.fixture
def empty(tmp_path):
    """A server of which nothing was asked so far."""
    with prefect_of(tmp_path, PYTHONPATH=str(ROOT)) as server:
        (tmp_path / "mine.toml").write_text(MINE)
        yield server


def test_the_commands_of_the_page_run_and_the_night_trains_what_is_served_and_nothing_of_the_demo(
    empty, tmp_path, monkeypatch
):
    monkeypatch.setenv("PLIANT_PROJECT", str(tmp_path))  # as if the project's folder were not the checkout
    lines = page()
    assert [start for start in SERVERS if any(line.startswith(start) for line in lines)] == list(SERVERS)
    typed = [line for line in lines if not line.startswith(SERVERS)]
    assert "pliant schedule tokens" in typed
    assert "has no release whose configuration could be trained with" in command(tmp_path, "pliant schedule tokens", 2)
    assert empty.call("POST", "/deployments/filter", {}) == []
    command(tmp_path, "pliant train tokens --config mine.toml")
    for line in typed:
        if " ID" in line:
            (shown,) = empty.call("GET", "/deployments/name/tokens/tokens-nightly")["schedules"]
            line = line.replace(" ID", f" {shown['id']}")
        command(tmp_path, line)

    deployment = empty.call("GET", "/deployments/name/tokens/tokens-nightly")
    (paused,) = deployment["schedules"]
    assert (deployment["work_pool_name"], deployment["parameters"]) == (POOL, {"nightly": True})
    assert deployment["global_concurrency_limit"]["limit"] == 1
    assert deployment["concurrency_options"]["collision_strategy"] == "ENQUEUE"
    assert not paused["active"], "the page's last command"
    assert "Its schedule is paused" in command(tmp_path, f"pliant schedule tokens --cron '{OFTEN}'")
    (often,) = empty.call("GET", "/deployments/name/tokens/tokens-nightly")["schedules"]
    assert (often["schedule"]["cron"], often["active"]) == (OFTEN, False), "who paused it has a reason"
    command(tmp_path, f"prefect deployment schedule resume tokens/tokens-nightly {often['id']}")
    with worker():
        await_run(empty, deployment["id"], BEGUN)
        command(tmp_path, "prefect deployment schedule pause --all")  # one is enough, however long it takes
        run, *_ = await_run(empty, deployment["id"], ENDED)
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], logs())
    assert (run["auto_scheduled"], run["parameters"]) == (True, {"nightly": True})
    stages = empty.call("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
    kept = {each["name"].partition("-")[0] for each in stages if each["state_name"] == "Cached"}
    assert kept == {"foundation", "task", "profile"}, "what the command has trained and measured is in the store"
    registry = open_registry(settings.read(), "tokens")
    names = ["pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit"]
    assert registry.names() == ["pliant-release-tokens", *names], "no task of the demo"
    assert [registry.version(name, CHAMPION).version for name in names] == [1, 1, 1]
    kept = registry.release("tokens").configurations["pliant-tokens-task-digit"]
    assert '"images": 128' in kept and "outcomes" not in kept
    assert "task 'loops' is not in the live release" in command(tmp_path, "pliant train tokens --data digits:loops", 2)
    assert registry.names() == ["pliant-release-tokens", *names]


REASON = "tokens: the share of class 3 of digit rose from 0.1 to 0.31"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with prefect_of(tmp_path_factory.mktemp("night")) as server:
        schedule("tokens", "bins", "cascade")
        yield server


def test_alarms_that_a_service_posts_are_one_run_with_the_reason_and_none_is_counted_twice(server: Server):
    deployment = server.call("GET", "/deployments/name/tokens/tokens-nightly")["id"]
    prefect = server_of({"PREFECT_API_URL": f"{server.url}/api"})
    assert prefect is not None
    box = EventOutbox(settings.read().home, "tokens", prefect)
    sent = [Event(ALARM, "tokens", {"reason": REASON, "stream": "digit"}) for _ in range(3)]
    for event in sent:
        box.emit(event)
    assert box.deliver(PATIENCE)
    prefect.post(sent)  # as after an answer that was lost
    (run,) = until(lambda: [each for each in server.runs(deployment) if each["parameters"].get("reason")])
    assert run["parameters"]["reason"] == REASON
    assert run["created_by"]["type"] == "AUTOMATION"
    begin, event_time = datetime.fromisoformat(run["expected_start_time"]), datetime.fromisoformat(sent[0].occurred)
    assert begin - event_time >= timedelta(seconds=30)  # when no other alarm is swallowed any more
    stored = until(lambda: server.events(event={"name": [ALARM]}))
    assert sorted(event["id"] for event in stored) == sorted(event.identity for event in sent)
    server.call("DELETE", f"/flow_runs/{run['id']}")  # or the worker of another test would begin to train


def test_a_triggered_run_has_its_report_and_another_one_soon_after_is_put_off_but_not_lost(server: Server):
    deployment = server.deploy(HANGING, "alarmed")
    with worker():
        first = server.start(deployment, how="", marker="", reason=REASON)
        await_run(server, deployment, ENDED)
        second = server.start(deployment, how="", marker="", reason=REASON)
        runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 2)}
    assert runs[first]["state_name"] == "Completed", logs()
    assert "alarm" in runs[first]["tags"]
    assert runs[second]["state_name"] == "Skipped", logs()
    assert "less than 60 minutes ago" in runs[second]["state"]["message"]
    again, later = sorted(server.runs(deployment, ["SCHEDULED"]), key=lambda each: "try-2" not in each["tags"])
    assert "try-2" in again["tags"] and later["parameters"] == again["parameters"] == runs[second]["parameters"]
    waited = datetime.fromisoformat(later["expected_start_time"]) - datetime.fromisoformat(runs[first]["start_time"])
    assert abs(waited - timedelta(hours=1)) < timedelta(seconds=1)
    wanted = {"artifacts": {"key": {"any_": ["tokens-drift"]}}}
    (report,) = server.call("POST", "/artifacts/filter", wanted)
    assert REASON in report["data"]
    assert report["flow_run_id"] == first


def test_people_hear_of_runs_that_failed_or_never_came_and_of_a_pool_without_a_worker(server: Server):
    def automations() -> list[dict]:
        present = server.call("POST", "/automations/filter", {})
        return sorted((each for each in present if each["name"].startswith("pliant: ")), key=lambda each: each["name"])

    def told() -> list[dict[str, str]]:
        heard = notices()
        return heard if all(any(each["text"].startswith(text) for each in heard) for text in wanted) else []

    names = python("-m", AUTOMATIONS).splitlines()
    before = automations()
    assert sorted(each["name"] for each in before) == sorted(names)
    python("-m", AUTOMATIONS)
    assert automations() == before  # nothing was written again, or what they had counted would be lost

    deployment = server.call("GET", "/deployments/name/bins/bins-nightly")["id"]
    run = server.start(deployment)
    crash = {"state": {"type": "CRASHED", "name": "Crashed", "message": "The machine is gone."}, "force": True}
    for _ in range(2):  # as where the answer to the first was lost: two events of the same run
        server.call("POST", f"/flow_runs/{run}/set_state", crash)
    pool = server.call("GET", "/work_pools/pliant")["id"]
    resource = {"prefect.resource.id": f"prefect.work-pool.{pool}", "prefect.resource.name": "pliant"}
    not_ready = Event("prefect.work-pool.not-ready", "", {}).to_prefect() | {"resource": resource}
    server.call("POST", "/events", [not_ready])
    python("-c", INSTALL.format("missing=timedelta(seconds=10)"))
    wanted = ["bins: the run", NO_WORKER, "cascade: no run has completed for"]
    with worker("pliant-notify"):
        heard = until(told)
        crashed = {"name": ["pliant.flow-failed"]}  # sent after the notice, by the flow that the worker runs
        (event,) = until(lambda: [each for each in server.events(event=crashed, order="ASC") if "Crashed" in str(each)])
        python("-m", AUTOMATIONS)  # patient again
    failed = next(notice for notice in heard if notice["text"].startswith("bins: the run"))
    assert failed["text"].endswith("ended as Crashed. The machine is gone.")
    assert failed["flow"] == "bins"
    assert [notice["text"] for notice in heard].count(failed["text"]) == 1
    assert event["resource"]["prefect.resource.id"] == "pliant.bins"
