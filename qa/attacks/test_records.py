"""What a service writes: labels, journals and observed prompts, over false reports, restarts, kills and full disks.

What one tenant does to trials is in tests/pliant/rollout/test_attackers.py and in
tests/serving/loop/test_faults_of_clients.py, since a trial's chance is known only from many trials.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from pliant.errors import WorkerError
from pliant.flows.bins.config import EdgesConfig, StreamConfig
from pliant.flows.bins.stages import observe
from pliant.flows.packing.learn import read as read_observed
from pliant.outcomes.files import folder_of, observed_path, read_labels
from pliant.progress import silent
from pliant.serving.journal import read
from pliant.serving.launch import Service, launch
from pliant.serving.settings import Settings
from qa.attacks.attackers import under_attack
from qa.clients import again_and_again, asking
from qa.targets import bearer, exchange, make_keys, say, send
from qa.worlds import WORLDS, World, served
from tests.fixtures.bins.published import encoder, settings_for
from tests.fixtures.cascade.published import SURE
from tests.fixtures.clients import PATIENCE, call, free_port, wait_for
from tests.fixtures.live import processes, running
from tests.fixtures.packing.published import NAME

BINS, CASCADE, PACKING = WORLDS["bins"], WORLDS["cascade"], WORLDS["packing"]
ASK = json.dumps({"task": "colours", "texts": [SURE], "deadline": 30.0}).encode()
OUTCOMES, ALARMS = "/v1/outcomes", "/v1/outcomes/alarms"
STREAM = "colours"
COUNT = 20  # requests of each run of a service
WRITTEN = 3.0  # seconds after which all that happened is in the file: a killed process may lose the last second
REFUSED = "must be a file that no other service writes"


def answered(url: str, key: str) -> str:
    """Return the id of a new answer."""
    return send(url, key, "POST", CASCADE.path, json.loads(ASK))[1]["answers"][0]["id"]


def report(url: str, key: str, id: str, label: str = "red") -> int:
    """Return the status of the answer to a label."""
    return send(url, key, "POST", OUTCOMES, {"id": id, "label": label})[0]


def guess(url: str, key: str) -> None:
    with suppress(OSError, HTTPException, ValueError):
        labels = [{"id": uuid4().hex, "label": "red"} for _ in range(100)]
        assert send(url, key, "POST", OUTCOMES, labels)[0] in (404, 429, 503)


@pytest.fixture(scope="module")
def labelled(serve):
    """A service, and the keys of two tenants and an administrator."""
    return serve("cascade", {"acme": "use", "evil": "use", "root": "admin"})


def test_07_labels_for_guessed_ids(labelled, targets):
    service, keys = labelled
    attack, mine = partial(guess, key=keys["evil"]), bearer(keys["acme"])
    under_attack(targets, service, ("POST", CASCADE.path, ASK), [attack], headers=mine)
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []


def test_07_false_labels_count_for_own_answers_alone_and_are_taken_back(labelled):
    service, keys = labelled
    url, evil, root = service.url, keys["evil"], keys["root"]
    for _ in range(20):
        assert report(url, evil, answered(url, keys["acme"])) == 404
    assert send(url, root, "GET", ALARMS)[1]["alarms"] == []
    for _ in range(80):
        assert report(url, evil, answered(url, evil)) == 800
    assert send(url, evil, "GET", ALARMS)[0] == 403
    alarms = send(url, root, "GET", ALARMS)[1]["alarms"]
    assert alarms  # one for each candidate that answered
    for alarm in alarms:
        assert list(alarm["labels_by_tenant"]) == ["evil"] and alarm["labels_by_tenant"]["evil"]["correct"] == 0
        assert send(url, evil, "DELETE", f"{ALARMS}/{alarm['id']}")[0] == 403
        assert send(url, root, "DELETE", f"{ALARMS}/{alarm['id']}")[1]["taken_back"]["tenant"] == "root"
    assert send(url, root, "GET", "/v1/status")[1]["outcomes"] == []


def kill(pid: int) -> None:
    """Kill a service and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, PATIENCE)


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


def ask(service: Service, world: World) -> None:
    for _ in range(COUNT):
        assert call(service, *world.request)[0] == 200


def journals(folder: Path) -> list[Path]:
    """Return the journal and all files that it has gone on in, or that were kept of it."""
    return sorted(folder.glob("journal*.jsonl*"))


def arrivals(file: Path) -> int:
    """Return how many requests a journal's file holds; its last line may lack its end."""
    entries = [json.loads(line) for line in file.read_bytes().split(b"\n")[:-1]]
    return sum(
        entry["event"]["type"] == "arrived" if "event" in entry else len(entry.get("arrived", ())) for entry in entries
    )


def zeros(folder: Path) -> int:
    return sum(file.read_bytes().count(0) for file in journals(folder))


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
@pytest.mark.parametrize("system", WORLDS)
def test_13_what_was_written_before_a_restart_is_still_there(system, end, tmp_path, targets):
    world = WORLDS[system]
    world.publish(tmp_path)
    settings = world.settings(tmp_path, journal=tmp_path / "journal.jsonl")
    for run in range(3):
        with (until_killed if end == "SIGKILL" else running)(settings, tmp_path) as service:
            ask(service, world)
            if end == "SIGKILL":
                time.sleep(WRITTEN)
        counts = {file.name: arrivals(file) for file in journals(tmp_path)}
        say(f"after run {run + 1}: {counts}")
        targets.at_most(f"requests lost after run {run + 1}", (run + 1) * COUNT - sum(counts.values()), 0)
    targets.at_most("NUL bytes", zeros(tmp_path), 0)


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


def test_13_a_second_service_on_the_same_journal(tmp_path, targets):
    BINS.publish(tmp_path)
    file, second = tmp_path / "journal.jsonl", tmp_path / "second"
    with running(settings_for(tmp_path, journal=file), tmp_path) as service:
        try:
            attack = partial(start_second, folder=str(tmp_path))
            under_attack(targets, service, BINS.request, [attack], seconds=20.0)
        finally:
            if (second / "pid").exists():  # of an attack that was given up
                kill(int((second / "pid").read_text()))
        before = sum(map(arrivals, journals(tmp_path)))
        ask(service, BINS)
    logs = list(second.glob("*.log"))
    refused = sum(REFUSED in log.read_text(errors="replace") for log in logs)
    say(f"{len(logs)} services were started on the journal of another, {refused} were refused with a sentence so far")
    targets.at_least("services that were refused", refused, 1)
    targets.at_least("entries of the first service's journal, all of them readable", len(read(file)), COUNT)
    targets.at_least("of later requests, written", sum(map(arrivals, journals(tmp_path))) - before, COUNT)
    targets.at_most("NUL bytes", zeros(tmp_path), 0)
    targets.at_most("files of the journal", len(journals(tmp_path)), 1)


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


def lengths_of(file: Path) -> int:
    """Return how many requests the bins flow reads from a journal."""
    stream = StreamConfig(name=STREAM, lengths=(f"journal:{file}",))
    return int(observe(stream, STREAM, encoder(STREAM), None, EdgesConfig(least=1), silent).requests.sum())


def keep_arrivals(file: Path) -> None:
    arrived = [line for line in file.read_bytes().splitlines(keepends=True) if b'"arrived"' in line]
    file.write_bytes(b"".join(arrived))


TORN = {
    # What a flow reads, what is done to the file before it is torn, how the flow reads it, and the lines it must tell of.
    "journal": ("bins", keep_arrivals, lengths_of, 3),
    "observed prompts": ("packing", lambda _file: None, lambda file: len(read_observed(file, 1000)), 4),
}


@pytest.mark.parametrize("kind", TORN)
def test_13_torn_lines_stop_no_flow(kind, tmp_path, caplog, targets):
    system, prepare, read_by_flow, told = TORN[kind]
    journal, observed = tmp_path / "journal.jsonl", observed_path(tmp_path / "home", NAME)
    world, file = WORLDS[system], journal if system == "bins" else observed
    world.publish(tmp_path)
    settings = world.settings(tmp_path, **({"journal": journal} if system == "bins" else {"observe": True}))
    with until_killed(settings, tmp_path) as service:
        ask(service, world)
        time.sleep(WRITTEN)
    prepare(file)
    lines = len(file.read_bytes().splitlines())
    tear(file, torn=3)
    with running(settings, tmp_path) as service:
        ask(service, world)
    with caplog.at_level(logging.WARNING):
        usable = read_by_flow(file)
    say(f"{lines} and {COUNT} lines; of the first 3 were torn and 1 cut off; {caplog.messages}")
    targets.at_most("usable lines that the flow lost", lines - 4 + COUNT - usable, 0)
    targets.at_most("torn lines that it did not tell of", told - passed_over(caplog.messages), 0)


ROUNDS, CLIENTS, FALSE = 3, 4, 120


@pytest.fixture
def evidence(tmp_path):
    """The settings of a service of cascade, and keys of its tenants."""
    CASCADE.publish(tmp_path)
    roles = {"acme": "use", "evil": "use", "root": "admin"}
    return CASCADE.settings(tmp_path, keys_file=tmp_path / "keys.json"), make_keys(tmp_path / "keys.json", roles)


def test_19_a_strangers_false_labels_start_nothing_and_two_tenants_that_agree_do(evidence, tmp_path, targets):
    settings, keys = evidence

    def starts() -> int:
        """Return the events that start a run."""
        time.sleep(3.0)
        path = tmp_path / "events.jsonl"
        return path.read_text().count("pliant.promise-broken") if path.is_file() else 0

    with until_killed(settings, tmp_path) as service:
        for _ in range(FALSE):
            assert report(service.url, keys["evil"], answered(service.url, keys["evil"])) == 200
        alarms = send(service.url, keys["root"], "GET", ALARMS)[1]["alarms"]
        assert {tuple(alarm["labels_by_tenant"]) for alarm in alarms} == {("evil",)}, "shown, with whose labels"
        targets.at_most("events that start a run", starts(), 0)
        for _ in range(FALSE):
            report(service.url, keys["acme"], answered(service.url, keys["acme"]))
        targets.at_least("events once a second tenant reports the same", starts(), 1)


def test_19_no_label_that_was_acknowledged_is_lost_with_a_kill(evidence, tmp_path, targets):
    (settings, keys), acknowledged = evidence, set[str]()

    def report_on(url: str) -> None:
        with suppress(OSError, HTTPException, ValueError, KeyError):  # it is killed
            while True:
                id = answered(url, keys["acme"])
                if report(url, keys["acme"], id) == 200:
                    acknowledged.add(id)

    for _ in range(ROUNDS):
        with until_killed(settings, tmp_path) as service, ThreadPoolExecutor(CLIENTS) as pool:
            for _ in range(CLIENTS):
                pool.submit(report_on, service.url)
            time.sleep(4.0)
            kill(service.process.pid)
    kept = {record.id for record in read_labels(folder_of(tmp_path, "cascade"))}
    targets.at_least("labels acknowledged", len(acknowledged), 50)
    targets.at_most(f"labels acknowledged and lost, of {len(acknowledged)}", len(acknowledged - kept), 0)
    with until_killed(settings, tmp_path) as service:
        figures = send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"]
        counted = sum(level["labels"] for each in figures for level in each["levels"])
        name = "labels that the figures count after the kills, over those acknowledged"
        targets.at_least(name, counted / len(acknowledged), 1)


SIZE_MB = 96
FULL = 12.0  # seconds that the disk is full
TENANTS = 200  # that ask for the first time while the disk is full: each makes new series of counters
LABELLED = {
    "tokens": lambda answer: (answer["id"], answer["label"]),
    "cascade": lambda answer: (answer["answers"][0]["id"], "red"),
}
"""Id and label of an answer, of the systems that take labels."""
MORE = {"packing": {"observe": True}, **{system: {"keep_inputs": True} for system in LABELLED}}


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
    ballast = folder / "ballast"

    def fill() -> None:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError), ballast.open("ab", buffering=0) as file:
                while file.write(b"x" * size):
                    pass

    try:
        with again_and_again(fill, 0.02):
            time.sleep(1.0)
            yield
    finally:
        ballast.unlink()


@dataclass
class Writing:
    """A service with all that is its own on one disk, by an administrator's key. `taken`: labels that it acknowledged."""

    url: str
    key: str
    system: str
    request: tuple[str, str, bytes]
    taken: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def label(self) -> None:
        """Ask, and report a label for the answer, where the system takes labels."""
        if self.system not in LABELLED:
            return
        status, _, answer = exchange(self.url, *self.request, bearer(self.key))
        if status == 200:
            id, label = LABELLED[self.system](json.loads(answer))
            status = report(self.url, self.key, id, label)
            (self.taken.append(id) if status == 200 else self.refused.append(status))

    def failing(self) -> set[str]:
        """Return what the service says that it cannot write."""
        text = exchange(self.url, "GET", "/metrics", headers=bearer(self.key))[2].decode()
        return set(re.findall(r'^pliant_write_failing\{what="(\w+)"\} 1', text, re.MULTILINE))

    def unknown(self, key: str) -> bool:
        """Return whether a tenant that asks for the first time is not heard."""
        return exchange(self.url, "GET", "/v1/status", headers=bearer(key))[0] not in (200, 404)


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("system", WORLDS)
def test_21_a_full_disk_is_a_degraded_service(system, kind, tmp_path, monkeypatch, targets):
    """A disk that is full while a service runs, with all that is its own on it."""
    world = WORLDS[system]
    body = json.loads(world.body)
    if "deadline" in body:  # which leaves the time that a new device process takes to start
        body["deadline"] = 60.0
    request = ("POST", world.path, json.dumps(body).encode())
    keys = list(make_keys(tmp_path / "keys.json", {f"t{n}": "admin" for n in range(TENANTS)}).values())
    mine = bearer(keys[0]) | ({"x-pliant-deadline": "60"} if system == "bins" else {})
    with mounted(kind, tmp_path / "disk") as disk:
        (disk / "tmp").mkdir()
        monkeypatch.setenv("TMPDIR", str(disk / "tmp"))
        own = {"journal": disk / "journal.jsonl", "keys_file": tmp_path / "keys.json", **MORE.get(system, {})}
        with served(system, disk, refresh_seconds=0.5, watch_seconds=0.5, **own) as service:
            writing = Writing(service.url, keys[0], system, request)
            before = psutil.Process(service.process.pid).children()
            with again_and_again(writing.label, 0.1):
                time.sleep(2)
                with full(disk), asking(service.url, request, mine) as others:
                    unheard = sum(map(writing.unknown, keys))
                    time.sleep(FULL / 2)
                    for device in processes(service):
                        device.send_signal(signal.SIGKILL)  # its successor starts without a byte of disk
                    time.sleep(FULL / 2)
                    said = sorted(writing.failing())
                wait_for(lambda: writing.failing() <= {"journal", "observed"})
                time.sleep(2)
            after = psutil.Process(service.process.pid).children()
            log = (disk / "serve.log").read_text(errors="replace")
        kept = {record.id for record in read_labels(folder_of(world.settings(disk).home, system))}
    say(f"failures on the full disk: {others.reasons[:3]}; cannot write: {said}")
    say(f"{len(writing.taken)} labels acknowledged, {len(writing.refused)} refused: {sorted(set(writing.refused))}")
    lines = [line for line in log.splitlines() if re.search(r"WARNING|ERROR|serving goes on", line)]
    say("\n".join([f"longest answer: {max(filter(None, others.seconds), default=0):.1f} s", *lines]))
    say("".join(log.partition("Traceback")[1:])[:2000])
    targets.at_least("requests on the full disk", len(others.seconds), 20)
    targets.at_most("requests lost", len(others.reasons) + unheard, 0)
    targets.at_most("restarts", len(set(before) ^ set(after)), 0)
    targets.at_most("labels acknowledged and lost", len(set(writing.taken) - kept), 0)
    faults = log.count("Traceback") - log.count("--- Logging error ---")  # of a line for which the log had no room
    targets.at_most("exceptions in the log", faults, 0)
