"""A disk that is full while a service runs, with all that is its own on it: requests, restarts, labels, and what it says."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from pliant.outcomes.files import folder_of, read_labels
from qa.grounds import GROUNDS
from qa.targets import Targets, bearer, exchange, honest, make_keys, say
from tests.fixtures.clients import PATIENCE, wait_for
from tests.fixtures.live import processes, running

SIZE_MB = 96
SECONDS = 12.0  # that the disk is full
LABELLED = {
    "tokens": lambda answer: (answer["id"], answer["label"]),
    "cascade": lambda answer: (answer["answers"][0]["id"], "red"),
}
"""Id and label of an answer, of the systems that take labels."""
TENANTS = 200  # that ask for the first time while the disk is full: each makes new series of counters


@contextmanager
def mounted(kind: str, folder: Path) -> Iterator[Path]:
    """A small file system of its own in this folder; the test is skipped where this machine lets nobody mount one."""
    folder.mkdir()
    image, options = "none", ["-t", "tmpfs", "-o", f"size={SIZE_MB}m"]
    try:
        if kind == "ext4":
            image, options = str(folder.with_suffix(".img")), ["-o", "loop"]
            with Path(image).open("wb") as file:
                file.truncate(SIZE_MB << 20)
            subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
        subprocess.run(["mount", *options, image, str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no {kind} can be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Keep the file system of this folder full to its last byte; what is freed meanwhile is taken at once."""
    ballast, ended = folder / "ballast", threading.Event()

    def fill() -> None:
        while not ended.is_set():
            for size in (1 << 20, 4096, 1):
                with suppress(OSError), ballast.open("ab", buffering=0) as file:
                    while file.write(b"x" * size):
                        pass
            ended.wait(0.02)

    thread = threading.Thread(target=fill)
    thread.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        ended.set()
        thread.join()
        ballast.unlink()


def ask(service, key: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    status, _, content = exchange(service.url, method, path, body, bearer(key))
    return status, content


@dataclass
class Labels:
    """A client that asks and reports a label for each answer, until it is stopped."""

    service: object
    system: str
    key: str
    taken: list[str] = field(default_factory=list)  # ids whose label was acknowledged
    refused: list[int] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def report_on(self) -> None:
        ground = GROUNDS[self.system]
        while not self.stopped.wait(0.1):
            status, answer = ask(self.service, self.key, "POST", ground.path, patient(ground.body))
            if status != 200:
                continue
            id, label = LABELLED[self.system](json.loads(answer))
            report = json.dumps({"id": id, "label": label}).encode()
            status, _ = ask(self.service, self.key, "POST", "/v1/outcomes", report)
            (self.taken.append(id) if status == 200 else self.refused.append(status))


def patient(body: bytes) -> bytes:
    """Return a body whose deadline leaves the time that a new device process takes to start."""
    value = json.loads(body)
    return json.dumps({**value, "deadline": 60.0} if "deadline" in value else value).encode()


@contextmanager
def reporting(service, system: str, key: str) -> Iterator[Labels]:
    labels = Labels(service, system, key)
    thread = threading.Thread(target=labels.report_on if system in LABELLED else bool)
    thread.start()
    try:
        yield labels
    finally:
        labels.stopped.set()
        thread.join(PATIENCE)


def failing(service, key: str) -> set[str]:
    """Return what the service says that it cannot write."""
    text = ask(service, key, "GET", "/metrics")[1].decode()
    return set(re.findall(r'^pliant_write_failing\{what="(\w+)"\} 1', text, re.MULTILINE))


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("system", GROUNDS)
def test_a_full_disk_is_a_degraded_service(system, kind, tmp_path, monkeypatch):
    ground, targets = GROUNDS[system], Targets(f"17 {system}, {kind}")
    more = {"observe": True} if system == "packing" else {"keep_inputs": True} if system in LABELLED else {}
    with mounted(kind, tmp_path / "disk") as disk:
        (disk / "tmp").mkdir()
        ground.publish(disk)
        monkeypatch.setenv("TMPDIR", str(disk / "tmp"))
        keys = list(make_keys(tmp_path / "keys.json", {f"t{n}": "admin" for n in range(TENANTS)}).values())
        more |= {"journal": disk / "journal.jsonl", "keys_file": tmp_path / "keys.json"}
        settings = ground.settings(disk, refresh_seconds=0.5, watch_seconds=0.5, **more)
        request, mine = ("POST", ground.path, patient(ground.body)), bearer(keys[0])
        mine |= {"x-pliant-deadline": "60"} if system == "bins" else {}
        with running(settings, disk) as service:
            before = psutil.Process(service.process.pid).children()
            with reporting(service, system, keys[0]) as labels:
                time.sleep(2)
                with full(disk), honest(service, request, headers=mine) as asking:
                    unheard = [key for key in keys if ask(service, key, "GET", "/v1/status")[0] not in (200, 404)]
                    time.sleep(SECONDS / 2)
                    for device in processes(service):
                        device.send_signal(signal.SIGKILL)  # its successor starts without a byte of disk
                    time.sleep(SECONDS / 2)
                    said = failing(service, keys[0])
                wait_for(lambda: failing(service, keys[0]) <= {"journal", "observed"})
                time.sleep(2)
            after = psutil.Process(service.process.pid).children()
            log = (disk / "serve.log").read_text(errors="replace")
        kept = {record.id for record in read_labels(folder_of(settings.home, system))}
        say(
            f"{len(asking.seconds)} requests on the full disk; failures: {asking.reasons[:3]}; cannot write: {sorted(said)}"
        )
        say(f"{len(labels.taken)} labels acknowledged, {len(labels.refused)} refused: {sorted(set(labels.refused))}")
        said = [line for line in log.splitlines() if re.search(r"WARNING|ERROR|serving goes on", line)]
        say("\n".join([f"longest answer: {max(filter(None, asking.seconds), default=0):.1f} s", *said]))
        say("".join(log.partition("Traceback")[1:])[:2000])
        targets.at_least("requests on the full disk", len(asking.seconds), 20)
        targets.at_most("requests lost", len(asking.reasons) + len(unheard), 0)
        targets.at_most("restarts", len(set(before) ^ set(after)), 0)
        targets.at_most("labels acknowledged and lost", len(set(labels.taken) - kept), 0)
        faults = log.count("Traceback") - log.count("--- Logging error ---")  # of a line for which the log had no room
        targets.at_most("exceptions in the log", faults, 0)
        targets.check()
