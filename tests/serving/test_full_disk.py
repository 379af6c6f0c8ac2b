"""A disk that is full while a service observes: requests are answered, nothing is half written, and later it goes on.

The disk is real: a process that the system lets write no byte more, or a few (RLIMIT_FSIZE, an error EFBIG), and then
again as much as it wants.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from pliant.outcomes.files import folder_of, read_inputs, read_labels
from pliant.serving.events import from_line
from tests.fixtures.places import ROOT

pytestmark = pytest.mark.slow

SERVICE = """
import json, logging, os, resource, sys, time
from pathlib import Path
from prometheus_client import CollectorRegistry
from pliant.flows.watch import notify
from pliant.outcomes.tracker import Answered
from pliant.outcomes.files import LABELS, folder_of
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.state_file import writings
from pliant.serving.events import ALARM, Event, EventOutbox
from pliant.serving.loop.outcome_store import open_writer
from pliant.serving.loop.outcomes import Outcomes
from pliant.serving.state_file import StateFile

home, messages = Path(sys.argv[1]), []
class Kept(logging.Handler):
    def emit(self, record):
        messages.append(record.getMessage())

logging.basicConfig(handlers=[Kept()], force=True)

def gone(batch):
    raise OSError("Prefect is gone")

folder = folder_of(home, "tokens")
writer = open_writer(folder, 1000, 1e9, True)
writer._seconds = 0.02
outcomes = Outcomes(CollectorRegistry(), 1000, writer=writer, days=1e4)
outbox, state = EventOutbox(home, "tokens", None, gone), StateFile(home / "trials" / "tokens.json")
answered, client = Answered("t", 1, "d", "l", "b", 0.8, 0.9, classes=("a", "b"), tenant="acme"), Client("acme", key="k")
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
written, refused, failing = [], [], set()

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, unlimited))

def requests(first, count):
    for number in range(first, first + count):
        outcomes.tracker.remember(str(number), answered, "b", 0.8, outcomes.clock())
        outcomes.inputs.keep(str(number), "t", "json", b"x" * 5000)
        try:
            assert outcomes.take(str(number), "b", client)["correct"]
        except ApiError as error:
            assert (error.status, error.code) == (503, "not_kept")
            refused.append(str(number))
        outbox.emit(Event(ALARM, "tokens", {"reason": str(number)}))
        outbox.attempt()
        written.append(state.write({"number": number, "filling": "x" * 500}))
        try:
            notify.write(home / "notifications.jsonl", {"text": str(number)})
        except OSError:
            written.append("no notification")
        time.sleep(0.05)
        failing.update(what for what, fails in writings().items() if fails)

def space_of(path, more):
    return path.stat().st_size + more

requests(0, 5)
limit(0)
requests(5, 5)
for path in (folder / LABELS, home / "events.jsonl", home / "notifications.jsonl", home / "outbox" / "tokens.jsonl"):
    limit(space_of(path, 10))
    requests(10 + 5 * written.count("next"), 5)
    written.append("next")
limit(unlimited)
requests(30, 5)
outcomes.close()
outbox.attempt()
lasting = [what for what, fails in writings().items() if fails]
print(json.dumps({"messages": messages, "written": written, "waiting": outbox.waiting, "refused": refused,
                  "failing": sorted(failing), "lasting": lasting}))
"""


def test_requests_are_answered_on_a_full_disk_and_all_is_there_when_there_is_space_again(tmp_path):
    command = [sys.executable, "-c", SERVICE, str(tmp_path)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    said = json.loads(child.stdout)
    numbers = [str(number) for number in range(35)]

    folder = folder_of(tmp_path, "tokens")
    taken = [number for number in numbers if number not in said["refused"]]
    assert [record.id for record in read_labels(folder)] == taken, "each label that was acknowledged once, in order"
    assert set(numbers[6:10]) & set(said["refused"]) and not {*numbers[:5]} & set(said["refused"])
    assert said["failing"] == ["events", "inputs", "outcomes", "trials"] and said["lasting"] == []
    assert [entry.id for entry in read_inputs(folder)] == numbers
    for path in (tmp_path / "events.jsonl", tmp_path / "outbox" / "tokens.jsonl"):
        assert [from_line(line).payload["reason"] for line in path.read_text().splitlines()] == numbers
    assert said["waiting"] == 35
    notices = [json.loads(line)["text"] for line in (tmp_path / "notifications.jsonl").read_text().splitlines()]
    assert notices == [number for number in numbers if number in notices], "whole lines, each once, in order"
    assert {*numbers[:5], *numbers[30:]} <= set(notices)
    assert json.loads((tmp_path / "trials" / "tokens.json").read_text())["number"] == 34
    assert False in said["written"] and "no notification" in said["written"]

    counts = Counter(message.split(":")[0].split(" (")[0] for message in said["messages"])
    assert any("outcomes cannot be kept" in message for message in said["messages"])
    assert any("inputs cannot be kept" in message for message in said["messages"])
    assert any(message.startswith("outcomes: ") for message in said["messages"])
    assert max(counts.values()) <= 6, f"a line for each time that it began: {counts}"
    assert not any("Traceback" in message or "were not kept" in message for message in said["messages"])
