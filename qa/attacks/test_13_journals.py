"""Journals and observed files over restarts and kills, with a second service on the same journal, and with torn lines."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from pliant.errors import WorkerError
from pliant.flows.bins.config import EdgesConfig, StreamConfig
from pliant.flows.bins.stages import observe
from pliant.flows.packing.learn import read as read_observed
from pliant.progress import silent
from pliant.serving.journal import read
from pliant.serving.launch import Service, launch
from pliant.serving.packing.engine.observed import observed_path
from pliant.serving.settings import Settings
from qa.grounds import GROUNDS
from qa.targets import Targets, say, under_attack
from tests.fixtures.bins.published import encoder, settings_for
from tests.fixtures.clients import PATIENCE, call, free_port
from tests.fixtures.live import running
from tests.fixtures.packing.published import NAME

BINS, PACKING = GROUNDS["bins"], GROUNDS["packing"]
STREAM = "colours"
COUNT = 20  # requests of each run of a service
WRITTEN = 3.0  # seconds after which all that happened is in the file: a killed process may lose the last second
REFUSED = "must be a file that no other service writes"


@contextmanager
def until_killed(settings: Settings, folder: Path) -> Iterator[Service]:
    """A service that ends without a word, with all of its processes, as by a power cut of its machine."""
    service = launch(settings, folder / "state", free_port(), folder / "serve.log")
    try:
        service.wait_until_ready(PATIENCE)
        yield service
    finally:
        kill(service.process.pid)
        service.process.wait(PATIENCE)


def kill(pid: int) -> None:
    """Kill a service and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, PATIENCE)


def ask(service: Service, ground, count: int = COUNT) -> None:
    for _ in range(count):
        assert call(service, "POST", ground.path, ground.body)[0] == 200


def journals(folder: Path) -> list[Path]:
    """Return the journal and all files that it has gone on in, or that were kept of it."""
    return sorted(folder.glob("journal*.jsonl*"))


def arrivals(file: Path) -> int:
    """Return how many requests a journal's file holds; its last line may lack its end."""
    lines = file.read_bytes().split(b"\n")[:-1]
    entries = [json.loads(line) for line in lines]
    return sum(
        entry["event"]["type"] == "arrived" if "event" in entry else len(entry.get("arrived", ())) for entry in entries
    )


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("system", GROUNDS)
def test_what_was_written_before_a_restart_is_still_there(system, end, tmp_path):
    ground, targets = GROUNDS[system], Targets(f"13 {system}, {end}")
    ground.publish(tmp_path)
    settings = ground.settings(tmp_path, journal=tmp_path / "journal.jsonl")
    for run in range(3):
        with (until_killed if end == "SIGKILL" else running)(settings, tmp_path) as service:
            ask(service, ground)
            if end == "SIGKILL":
                time.sleep(WRITTEN)
        counts = {file.name: arrivals(file) for file in journals(tmp_path)}
        say(f"after run {run + 1}: {counts}")
        targets.at_most(f"requests lost after run {run + 1}", (run + 1) * COUNT - sum(counts.values()), 0)
    targets.at_most("NUL bytes", sum(file.read_bytes().count(0) for file in journals(tmp_path)), 0)
    targets.check()


def start_second(_url: str, folder: str) -> None:
    """Start a service on the journal of another, which must be refused with a sentence."""
    state, port = Path(folder) / "second", free_port()
    state.mkdir(exist_ok=True)
    log = state / f"serve-{port}.log"
    service = launch(settings_for(Path(folder), journal=Path(folder) / "journal.jsonl"), state, port, log)
    (state / "pid").write_text(str(service.process.pid))
    try:
        service.wait_until_ready(PATIENCE)
    except WorkerError:
        assert REFUSED in log.read_text(errors="replace")
        return
    finally:
        kill(service.process.pid)
        (state / "pid").unlink()
    raise AssertionError("two services write one journal")


def test_a_second_service_on_the_same_journal(tmp_path):
    BINS.publish(tmp_path)
    file, targets = tmp_path / "journal.jsonl", Targets("13 two services on one journal")
    with running(settings_for(tmp_path, journal=file), tmp_path) as service:
        try:
            attack = partial(start_second, folder=str(tmp_path))
            under_attack(service, ("POST", BINS.path, BINS.body), [attack], targets.subject, seconds=20.0)
        finally:
            if (tmp_path / "second" / "pid").exists():  # of an attack that was given up
                kill(int((tmp_path / "second" / "pid").read_text()))
        before = sum(map(arrivals, journals(tmp_path)))
        ask(service, BINS)
    logs = list((tmp_path / "second").glob("*.log"))
    refused = sum(REFUSED in log.read_text(errors="replace") for log in logs)
    say(f"{len(logs)} services were started on the journal of another, {refused} were refused with a sentence so far")
    targets.at_least("services that were refused", refused, 1)
    targets.at_least("entries of the first service's journal, all of them readable", len(read(file)), COUNT)
    targets.at_least("of later requests, written", sum(map(arrivals, journals(tmp_path))) - before, COUNT)
    targets.at_most("NUL bytes", sum(kept.read_bytes().count(0) for kept in journals(tmp_path)), 0)
    targets.at_most("files of the journal", len(journals(tmp_path)), 1)
    targets.check()


def tear(file: Path, torn: int) -> None:
    """Spoil so many lines in the middle of a file: half of each is zeros, as after a power cut; cut the last one off."""
    lines = file.read_bytes().splitlines(keepends=True)
    for number in range(1, torn + 1):
        half = len(lines[number]) // 2
        lines[number] = lines[number][:half] + b"\0" * (len(lines[number]) - half - 1) + b"\n"
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    file.write_bytes(b"".join(lines))


def passed_over(messages: list[str]) -> int:
    """Return how many lines were passed over, by the log."""
    return sum(int(re.findall(r"passed over in .*: (\d+) \(", text)[0]) for text in messages if "passed over" in text)


def test_torn_lines_of_a_journal_stop_no_flow(tmp_path, caplog):
    BINS.publish(tmp_path)
    file, targets = tmp_path / "journal.jsonl", Targets("13 torn lines of a journal")
    settings = settings_for(tmp_path, journal=file)
    with until_killed(settings, tmp_path) as service:
        ask(service, BINS)
        time.sleep(WRITTEN)
    arrived = [line for line in file.read_bytes().splitlines(keepends=True) if b'"arrived"' in line]
    file.write_bytes(b"".join(arrived))
    tear(file, torn=3)
    with running(settings, tmp_path) as service:
        ask(service, BINS)
    with caplog.at_level(logging.WARNING):
        stream = StreamConfig(name=STREAM, lengths=(f"journal:{file}",))
        lengths = observe(stream, STREAM, encoder(STREAM), None, EdgesConfig(least=1), silent)
    usable = len(arrived) - 4 + COUNT
    say(f"{len(arrived)} and {COUNT} requests; of the first 3 were torn and 1 cut off; {caplog.messages}")
    targets.at_most("usable requests that the flow lost", usable - int(lengths.requests.sum()), 0)
    targets.at_most("torn lines that it did not tell of", 3 - passed_over(caplog.messages), 0)
    targets.check()


def test_torn_lines_of_observed_prompts_stop_no_flow(tmp_path, caplog):
    PACKING.publish(tmp_path)
    file, targets = observed_path(tmp_path / "home", NAME), Targets("13 torn lines of observed prompts")
    settings = PACKING.settings(tmp_path, observe=True)
    with until_killed(settings, tmp_path) as service:
        ask(service, PACKING)
    tear(file, torn=3)
    with running(settings, tmp_path) as service:
        ask(service, PACKING)
    with caplog.at_level(logging.WARNING):
        outputs = read_observed(file, 1000)
    say(f"twice {COUNT} outputs; of the first 3 were torn and 1 cut off; {caplog.messages}")
    targets.at_most("usable outputs that the flow lost", 2 * COUNT - 4 - len(outputs), 0)
    targets.at_most("torn lines that it did not tell of", 4 - passed_over(caplog.messages), 0)
    targets.check()
