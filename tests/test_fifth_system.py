"""A fifth system, `examples/fifth`, as another distribution would bring it: commands, scheduler, flow, service, replay."""

from __future__ import annotations

import os
import subprocess
import sys

import httpx
import numpy as np
import pytest

from pliant import systems
from pliant.cli.main import main
from pliant.latency import LatencyTable
from pliant.protocol import Failed, Finished, Result, replay
from pliant.registry.names import experiment, prefix, task_of
from pliant.serving.journal import read
from pliant.serving.settings import from_environment, settings_of, to_environment
from pliant.simulator import simulate
from pliant.workload import RequestKind, poisson, requests
from tests.fixtures.live import running
from tests.fixtures.places import ROOT
from tests.fixtures.simulation import Books

EXAMPLES = ROOT / "examples"
LATENCY = LatencyTable((8, 32, 128), (1, 4, 16), ((0.001, 0.002, 0.004), (0.002, 0.004, 0.01), (0.004, 0.01, 0.03)))


@pytest.fixture(autouse=True)
def fifth(monkeypatch, tmp_path):
    """Its entry point, as an installation writes it, and a folder to work in; afterwards nothing is left of it."""
    installed = tmp_path / "installed" / "fifth-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fifth\nVersion: 0\n")
    (installed / "entry_points.txt").write_text("[pliant.systems]\nwords = fifth:SYSTEM\n")
    places = [str(installed.parent), str(EXAMPLES)]
    for place in places:
        monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*places, str(ROOT)]))
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    systems.listed.cache_clear()
    yield
    os.environ.clear()
    os.environ.update(before)
    systems.listed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "fifth"]:
        del sys.modules[name]


def pliant(*words: str) -> str:
    """What a command prints, which ends well, in a process of its own."""
    ended = subprocess.run([sys.executable, "-m", "pliant", *words], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_it_is_at_most_350_lines_of_its_own():
    lines = [line for file in (EXAMPLES / "fifth").glob("*.py") for line in file.read_text().splitlines()]
    assert len([line for line in lines if line.strip()]) <= 350


@pytest.mark.parametrize("command", ["train", "serve", "simulate"])
def test_commands_offer_it_with_its_options(command, capsys):
    for words in ([command, "--help"], [command, "words", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
    text = " ".join(capsys.readouterr().out.split())
    assert f"words {systems.system('words').summary}" in text
    assert "--load" in text if command == "simulate" else "--device" in text


def test_what_it_lacks_is_refused_with_a_sentence(capsys):
    assert main(["profile", "words", "--device", "cpu"]) == 2
    assert "one that has the role reprofile of flows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "option", "having"),
    [
        ("serve words", "--gamma", "tokens"),
        ("train bins", "--observed", "packing"),
        ("simulate packing", "--candidate", "cascade"),
    ],
)
def test_an_option_of_another_system_is_refused_with_a_sentence(command, option, having, capsys):
    assert main([*command.split(), option, "3"]) == 2
    sentence = f"option is {option}, but must be one of `pliant {command}`; it is an option of {having}"
    assert capsys.readouterr().err == f"pliant: {sentence}\n"


def test_its_settings_and_names_in_the_registry_are_its_own():
    kind = settings_of("words")
    assert from_environment(to_environment(kind(max_waiting=7)), kind) == kind(max_waiting=7)
    assert (experiment("words"), prefix("words")) == (kind().experiment, "pliant-words-")
    assert task_of("pliant-words-task-reviews") == "reviews"


class FailingDevice:
    """Takes the profile's seconds; a run in twenty fails."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)

    def __call__(self, launch):
        if launch.kind != "run":
            return 0.1, Finished(launch.id, 0.1)
        seconds = LATENCY.at(launch.setting, len(launch.requests))
        if self._rng.random() < 0.05:
            return seconds / 2, Failed(launch.id, "planted")
        return seconds, Finished(launch.id, seconds, tuple(Result(request) for request in launch.requests))


@pytest.mark.parametrize("load", [0.1, 3.0])
def test_its_scheduler_keeps_the_contract_reads_less_under_load_and_replays_its_journal(load):
    from fifth.scheduler import WordsScheduler

    rng = np.random.default_rng(0)
    rate = load * LATENCY.throughput(128, 16)
    offered = requests(poisson(rate, 2.0, rng), [RequestKind("x", 0.1, 1.0), RequestKind("x", 0.3, 1.0)], rng)
    scheduler = WordsScheduler(LATENCY, workers=2, max_waiting=64)
    books = Books(scheduler)
    journal = simulate(scheduler, offered, FailingDevice(), books, leaving=[(0.5, 3), (1.0, 400)])
    books.close(offered)
    assert replay(WordsScheduler(LATENCY, workers=2, max_waiting=64), journal) == journal
    words = [launch.setting for launch in books.launches.values() if launch.kind == "run"]
    assert np.mean(words) > 120 if load < 1 else np.mean(words) < 80


@pytest.mark.slow
def test_it_is_trained_judged_served_and_replayed(tmp_path):
    train = ("train", "words", "--data", "docstrings:kind", "--limit", "1500")
    assert "new" in pliant(*train)
    assert "unchanged" in pliant(*train), "a second run changes nothing"
    assert "kind: 100.0% in time" in pliant("simulate", "words", "--load", "poisson:200:2")

    from fifth.model import Task
    from fifth.scheduler import WordsScheduler

    from pliant.cli.options import service_settings
    from pliant.flows import settings
    from pliant.flows.champions import champion_artifacts

    task, journal = champion_artifacts(settings.read(), Task)["kind"], tmp_path / "journal.jsonl"
    served = service_settings(settings.read(), settings_of("words"), journal=journal, device="cpu", watch_burn_in=10)
    with running(served, tmp_path) as service, httpx.Client(base_url=service.url) as client:
        body = {"task": "kind", "text": "Return the sum of all elements along an axis.", "deadline": 5.0}
        answers = [client.post("/v1/predict", json=body) for _ in range(30)]
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.json()["words"] for answer in answers} == {128}
        assert answers[0].json()["label"] in task.classes
        assert client.post("/v1/predict", json={**body, "task": "none"}).json()["error"]["code"] == "unknown_task"
        assert client.post("/v1/predict", json={**body, "deadline": 1e-6}).status_code == 503
        status = client.get("/v1/status").json()
        assert status["release"] == 1 and status["watch"] is not None
        assert 'pliant_answers_total{task="kind",task_version="1",words="128"} 30.0' in client.get("/metrics").text
    entries = read(journal)
    assert replay(WordsScheduler(task.latency), entries) == entries
