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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from qa.grounds import GROUNDS
from qa.targets import Targets, bearer, exchange, honest, make_keys, say, send, under_attack
from tests.fixtures.bins.published import encoder, settings_for
from tests.fixtures.cascade.published import SURE
from tests.fixtures.clients import PATIENCE, call, free_port, wait_for
from tests.fixtures.live import processes, running
from tests.fixtures.packing.published import NAME

BINS, CASCADE, PACKING = GROUNDS["bins"], GROUNDS["cascade"], GROUNDS["packing"]
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


def test_07_labels_for_guessed_ids(labelled):
    service, keys = labelled
    attack, mine = partial(guess, key=keys["evil"]), bearer(keys["acme"])
    under_attack(service, ("POST", CASCADE.path, ASK), [attack], "07 labels for guessed ids", headers=mine)
    assert send(service.url, keys["root"], "GET", "/v1/status")[1]["outcomes"] == []


def test_07_false_labels_count_for_own_answers_alone_and_are_taken_back(labelled):
    service, keys = labelled
    url, evil, root = service.url, keys["evil"], keys["root"]
    for _ in range(20):
        assert report(url, evil, answered(url, keys["acme"])) == 404
    assert send(url, root, "GET", ALARMS)[1]["alarms"] == []
    for _ in range(20):
        assert report(url, evil, answered(url, evil)) == 200
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


def ask(service: Service, ground, count: int = COUNT) -> None:
    for _ in range(count):
        assert call(service, "POST", ground.path, ground.body)[0] == 200


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
@pytest.mark.parametrize("system", GROUNDS)
def test_13_what_was_written_before_a_restart_is_still_there(system, end, tmp_path):
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
    targets.at_most("NUL bytes", zeros(tmp_path), 0)
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


def test_13_a_second_service_on_the_same_journal(tmp_path):
    BINS.publish(tmp_path)
    file, second, targets = tmp_path / "journal.jsonl", tmp_path / "second", Targets("13 two services on one journal")
    with running(settings_for(tmp_path, journal=file), tmp_path) as service:
        try:
            attack = partial(start_second, folder=str(tmp_path))
            under_attack(service, ("POST", BINS.path, BINS.body), [attack], targets.subject, seconds=20.0)
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


def test_13_torn_lines_of_a_journal_stop_no_flow(tmp_path, caplog):
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


def test_13_torn_lines_of_observed_prompts_stop_no_flow(tmp_path, caplog):
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


ROUNDS, CLIENTS, FALSE = 3, 4, 60


@pytest.fixture
def evidence(tmp_path):
    """The settings of a service of cascade, and keys of its tenants."""
    CASCADE.publish(tmp_path)
    roles = {"acme": "use", "evil": "use", "root": "admin"}
    return CASCADE.settings(tmp_path, keys_file=tmp_path / "keys.json"), make_keys(tmp_path / "keys.json", roles)


def test_19_a_strangers_false_labels_start_nothing_and_two_tenants_that_agree_do(evidence, tmp_path):
    (settings, keys), targets = evidence, Targets("19 a stranger's labels")

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
    targets.check()


def test_19_no_label_that_was_acknowledged_is_lost_with_a_kill(evidence, tmp_path):
    (settings, keys), targets, acknowledged = evidence, Targets("19 labels and a kill"), set[str]()

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
    targets.check()


SIZE_MB = 96
FULL = 12.0  # seconds that the disk is full
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
def beside(act, pause: float) -> Iterator[None]:
    """Act again and again in a thread, with a pause between."""
    ended = threading.Event()

    def act_on() -> None:
        while not ended.is_set():
            act()
            ended.wait(pause)

    thread = threading.Thread(target=act_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(PATIENCE)


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
        with beside(fill, 0.02):
            time.sleep(1.0)
            yield
    finally:
        ballast.unlink()


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("system", GROUNDS)
def test_21_a_full_disk_is_a_degraded_service(system, kind, tmp_path, monkeypatch):
    """A disk that is full while a service runs, with all that is its own on it."""
    ground, targets, taken, refused = GROUNDS[system], Targets(f"17 {system}, {kind}"), list[str](), list[int]()
    more = {"observe": True} if system == "packing" else {"keep_inputs": True} if system in LABELLED else {}
    body = json.loads(ground.body)
    if "deadline" in body:  # which leaves the time that a new device process takes to start
        body["deadline"] = 60.0
    request = ("POST", ground.path, json.dumps(body).encode())
    with mounted(kind, tmp_path / "disk") as disk:
        (disk / "tmp").mkdir()
        ground.publish(disk)
        monkeypatch.setenv("TMPDIR", str(disk / "tmp"))
        keys = list(make_keys(tmp_path / "keys.json", {f"t{n}": "admin" for n in range(TENANTS)}).values())
        more |= {"journal": disk / "journal.jsonl", "keys_file": tmp_path / "keys.json"}
        settings = ground.settings(disk, refresh_seconds=0.5, watch_seconds=0.5, **more)
        mine = bearer(keys[0]) | ({"x-pliant-deadline": "60"} if system == "bins" else {})
        with running(settings, disk) as service:

            def label() -> None:
                """Ask, and report a label for the answer."""
                status, _, answer = exchange(service.url, "POST", ground.path, request[2], bearer(keys[0]))
                if status == 200:
                    id, label = LABELLED[system](json.loads(answer))
                    status = report(service.url, keys[0], id, label)
                    (taken.append(id) if status == 200 else refused.append(status))

            def failing() -> set[str]:
                """Return what the service says that it cannot write."""
                text = exchange(service.url, "GET", "/metrics", headers=bearer(keys[0]))[2].decode()
                return set(re.findall(r'^pliant_write_failing\{what="(\w+)"\} 1', text, re.MULTILINE))

            def unknown(key: str) -> bool:
                return exchange(service.url, "GET", "/v1/status", headers=bearer(key))[0] not in (200, 404)

            before = psutil.Process(service.process.pid).children()
            with beside(label if system in LABELLED else bool, 0.1):
                time.sleep(2)
                with full(disk), honest(service, request, headers=mine) as asking:
                    unheard = sum(map(unknown, keys))
                    time.sleep(FULL / 2)
                    for device in processes(service):
                        device.send_signal(signal.SIGKILL)  # its successor starts without a byte of disk
                    time.sleep(FULL / 2)
                    said = sorted(failing())
                wait_for(lambda: failing() <= {"journal", "observed"})
                time.sleep(2)
            after = psutil.Process(service.process.pid).children()
            log = (disk / "serve.log").read_text(errors="replace")
        kept = {record.id for record in read_labels(folder_of(settings.home, system))}
        say(f"{len(asking.seconds)} requests on the full disk; failures: {asking.reasons[:3]}; cannot write: {said}")
        say(f"{len(taken)} labels acknowledged, {len(refused)} refused: {sorted(set(refused))}")
        lines = [line for line in log.splitlines() if re.search(r"WARNING|ERROR|serving goes on", line)]
        say("\n".join([f"longest answer: {max(filter(None, asking.seconds), default=0):.1f} s", *lines]))
        say("".join(log.partition("Traceback")[1:])[:2000])
        targets.at_least("requests on the full disk", len(asking.seconds), 20)
        targets.at_most("requests lost", len(asking.reasons) + unheard, 0)
        targets.at_most("restarts", len(set(before) ^ set(after)), 0)
        targets.at_most("labels acknowledged and lost", len(set(taken) - kept), 0)
        faults = log.count("Traceback") - log.count("--- Logging error ---")  # of a line for which the log had no room
        targets.at_most("exceptions in the log", faults, 0)
        targets.check()
