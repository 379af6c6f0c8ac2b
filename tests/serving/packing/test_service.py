"""The whole packing service over real HTTP: `bentoml serve`, an engine in its process, a registry, OpenAI's own client."""

from __future__ import annotations

import signal
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import httpx2
import openai
import psutil
import pytest

from pliant.packing.scheduling.journal import decode, replay
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.serving.journal import entries
from pliant.serving.lifecycle.catalog import open_registry
from pliant.serving.packing.assembly import rules
from pliant.serving.packing.catalog import load_catalog
from tests.fixtures.clients import PATIENCE, call, wait_for
from tests.fixtures.live import ConcurrentCalls, end_in_flight, processes, running
from tests.fixtures.packing.published import NAME, MlflowPublisher, publish_tiny, settings_for

pytestmark = pytest.mark.slow

LONG = 200  # tokens
COUNT = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder))
    return folder


@pytest.fixture(scope="module")
def settings(folder):
    told = {"launch_limit": 4.0, "max_waiting": 64, "observe": True, "predict_limit": 60.0, "refresh_seconds": 1.0}
    return settings_for(folder, journal=folder / "journal.jsonl", **told)


@pytest.fixture(scope="module")
def service(folder, settings):
    with running(settings, folder) as service:
        yield service


@contextmanager
def asking(service):
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        yield openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, http_client=http)


@pytest.fixture
def client(service):
    with asking(service) as client:
        yield client


@pytest.fixture(scope="module")
def expected(service):
    """Return the texts of the first champion, by seed, when no process is killed."""
    with asking(service) as client:
        return [whole(client, seed=seed) for seed in range(COUNT)]


def status_of(service) -> dict:
    return call(service, "GET", "/v1/status")[1]


def is_idle(service) -> bool:
    told = status_of(service)
    engine = told["models"][0]["engine"]
    return (told["pending"], engine["pages_used"], engine["books"]) == (0, 0, "balanced")


def engines(service) -> list[psutil.Process]:
    return processes(service, "engine_process")


def journals(folder) -> list[Path]:
    return sorted(folder.glob("journal*.jsonl"))


def whole(client, prompt: str = "Once there", **told) -> str:
    fields = {"temperature": 1, "seed": 1, "max_tokens": LONG, **told}
    return client.completions.create(model=NAME, prompt=prompt, **fields).choices[0].text


def test_torch_is_in_the_processes_of_engine_and_predictor_alone(client, service):
    def has_torch(process: psutil.Process) -> bool:
        return any("libtorch" in region.path for region in process.memory_maps())

    (engine,), (predictor,) = engines(service), processes(service)
    assert has_torch(engine) and has_torch(predictor)
    family = {psutil.Process(service.process.pid), *psutil.Process(service.process.pid).children(recursive=True)}
    assert not [process.cmdline() for process in family - {engine, predictor} if has_torch(process)]


def test_a_killed_predictor_is_replaced_and_no_text_waits_for_it(client, service, expected):
    def forecasts() -> dict:
        return status_of(service)["models"][0]["forecasts"]

    (predictor,) = processes(service)
    predictor.kill()
    assert whole(client, seed=1) == expected[1]
    wait_for(lambda: forecasts()["alive"] and not predictor.is_running())
    answer = client.completions.create(model=NAME, prompt="Once", max_tokens=2)
    assert answer.choices[0].pliant["prediction"] == "predicted"
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE) as response:
        content = response.read().decode()
    assert f'pliant_predictor_failures_total{{task="{NAME}"}} 1.0' in content
    assert f'pliant_forecast_seconds_bucket{{le="0.05",task="{NAME}"}}' in content


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_hung_engine_is_replaced_and_every_text_goes_on(folder, client, service, expected, how):
    """A stream that has begun and whole answers give the same texts as without the kill."""
    (victim,) = engines(service)
    stream = client.completions.create(
        model=NAME, prompt="Once there", temperature=1, seed=0, max_tokens=LONG, stream=True
    )
    first = next(iter(stream)).choices[0].text
    requests = ConcurrentCalls(lambda place: whole(client, seed=place), COUNT)
    victim.send_signal(how)
    text = first + "".join(piece.choices[0].text for piece in stream)
    answers = requests.answers()
    assert text == expected[0]
    assert answers == expected
    wait_for(lambda: not victim.is_running() and len(engines(service)) == 1)
    wait_for(lambda: is_idle(service))
    # A killed process loses the last second of its journal, and the next signal may come before this one is a second old.
    wait_for(lambda: all(path.stat().st_size for path in journals(folder)))


def test_sigterm_with_outputs_on_their_way_ends_them_all_and_exits_with_status_0(client, service):
    """Last of the tests that share the service."""
    expected = [whole(client, seed=seed) for seed in range(5)]
    (engine,) = engines(service)
    engine.send_signal(signal.SIGSTOP)
    requests = ConcurrentCalls(lambda place: whole(client, seed=place), 5)
    wait_for(lambda: status_of(service)["pending"] == 5)
    assert end_in_flight(service, [engine], requests) == expected


def test_the_live_journals_replay_to_themselves(folder, settings):
    """Each process has a journal of its own, from its start; the last is complete, as the service stopped cleanly."""
    (served,) = load_catalog(open_registry(settings), "champion").tasks.values()
    paths = journals(folder)
    assert len(paths) >= 3  # one killed, one hung
    for path in paths:
        journal = list(entries(path, decode))
        assert journal and replay(PackingScheduler(rules(settings, served), served.packing.memory), journal) == journal
