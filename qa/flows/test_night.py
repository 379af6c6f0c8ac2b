"""Alarms, failures and missing runs on a real server: what a service posts starts a run, and people hear of what failed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from pliant.flows import settings
from pliant.serving.events import ALARM, Event, EventOutbox, server_of
from qa.prefect_server import ENDED, Server, await_run, logs, notices, prefect_of, python, schedule, until, worker
from tests.fixtures.runs import PATIENCE

REASON = "tokens: the share of class 3 of digit rose from 0.1 to 0.31"


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Server]:
    with prefect_of(tmp_path_factory.mktemp("night")) as server:
        schedule("tokens", "bins", "cascade")
        yield server


def test_alarms_that_a_service_posts_are_one_run_with_the_reason_and_none_is_counted_twice(server: Server):
    deployment = server.call("GET", "/deployments/name/tokens/nightly")["id"]
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
    deployment = server.deploy("qa/flows/hanging.py:hanging", "alarmed")
    with worker():
        first = server.start(deployment, how="", marker="", reason=REASON)
        await_run(server, deployment, ENDED)
        second = server.start(deployment, how="", marker="", reason=REASON)
        runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 2)}
    assert runs[first]["state_name"] == "Completed", logs()
    assert "alarm" in runs[first]["tags"]
    assert runs[second]["state_name"] == "Skipped", logs()
    assert "less than 60 minutes ago" in runs[second]["state"]["message"]
    (later,) = server.runs(deployment, ["SCHEDULED"])
    assert later["parameters"] == runs[second]["parameters"]
    waited = datetime.fromisoformat(later["expected_start_time"]) - datetime.fromisoformat(runs[first]["start_time"])
    assert abs(waited - timedelta(hours=1)) < timedelta(seconds=1)
    wanted = {"artifacts": {"key": {"any_": ["tokens-drift"]}}}
    (report,) = server.call("POST", "/artifacts/filter", wanted)
    assert REASON in report["data"]
    assert report["flow_run_id"] == first


def test_people_hear_of_runs_that_failed_or_never_came_and_of_a_pool_without_a_worker(server: Server):
    names = python("-m", "pliant.flows.watch.automations").splitlines()
    before = _automations(server)
    assert sorted(each["name"] for each in before) == sorted(names)
    python("-m", "pliant.flows.watch.automations")
    assert _automations(server) == before  # nothing was written again, or what they had counted would be lost

    deployment = server.call("GET", "/deployments/name/bins/nightly")["id"]
    run = server.start(deployment)
    crash = {"state": {"type": "CRASHED", "name": "Crashed", "message": "The machine is gone."}, "force": True}
    for _ in range(2):  # as where the answer to the first was lost: two events of the same run
        server.call("POST", f"/flow_runs/{run}/set_state", crash)
    pool = server.call("GET", "/work_pools/pliant")["id"]
    resource = {"prefect.resource.id": f"prefect.work-pool.{pool}", "prefect.resource.name": "pliant"}
    not_ready = Event("prefect.work-pool.not-ready", "", {}).to_prefect() | {"resource": resource}
    server.call("POST", "/events", [not_ready])
    python("-c", _INSTALL_IMPATIENT)
    wanted = ["bins: the run", "The work pool pliant has no worker", "cascade: no run has completed for"]
    with worker("pliant-notify"):
        told = until(lambda: notices() if _all_start(wanted, notices()) else [])
        crashed = {"name": ["pliant.flow-failed"]}  # sent after the notice, by the flow that the worker runs
        (event,) = until(lambda: [each for each in server.events(event=crashed, order="ASC") if "Crashed" in str(each)])
        python("-m", "pliant.flows.watch.automations")  # patient again
    failed = next(notice for notice in told if notice["text"].startswith("bins: the run"))
    assert failed["text"].endswith("ended as Crashed. The machine is gone.")
    assert failed["flow"] == "bins"
    assert [notice["text"] for notice in told].count(failed["text"]) == 1
    assert event["resource"]["prefect.resource.id"] == "pliant.bins"


_INSTALL_IMPATIENT = """
from datetime import timedelta
from pliant.flows.watch.automations import install
install(3600.0, missing=timedelta(seconds=10))
"""


def _automations(server: Server) -> list[dict[str, Any]]:
    present = server.call("POST", "/automations/filter", {})
    return sorted((each for each in present if each["name"].startswith("pliant: ")), key=lambda each: str(each["name"]))


def _all_start(sentences: list[str], notices: list[dict[str, str]]) -> bool:
    return all(any(notice["text"].startswith(sentence) for notice in notices) for sentence in sentences)
