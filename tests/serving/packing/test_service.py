"""The whole packing service over real HTTP: `bentoml serve`, an engine in its process, a registry, OpenAI's own client."""

from __future__ import annotations

import signal
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx2
import openai
import psutil
import pytest

from pliant.packing.scheduling.journal import replay
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.serving.lifecycle.catalog import open_registry
from pliant.serving.packing.assembly import rules
from pliant.serving.packing.catalog import load_catalog
from pliant.serving.packing.engine.engine_process import read_journal
from tests.fixtures.clients import PATIENCE, call, wait_for
from tests.fixtures.live import ConcurrentCalls, end_in_flight, go_on, processes, running
from tests.fixtures.packing.published import NAME, MlflowPublisher, publish_tiny, settings_for

pytestmark = pytest.mark.slow

LONG, SHORT = 200, 60  # tokens
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


def test_who_goes_holds_no_pages_in_the_next_moment(client, service):
    for stream in (True, False):
        engine = engines(service)[0]
        engine.send_signal(signal.SIGSTOP)
        fields = {"model": NAME, "prompt": "Once", "n": 8, "max_tokens": LONG, "temperature": 1, "stream": stream}
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).completions.create(**fields)
        go_on([engine])
        wait_for(lambda: is_idle(service))
    stream = client.completions.create(model=NAME, prompt="Once", n=8, max_tokens=LONG, temperature=1, stream=True)
    next(iter(stream))
    stream.close()
    wait_for(lambda: is_idle(service))


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


def test_a_new_champion_takes_over_while_clients_ask(folder, client, service, expected):
    before, texts, stopped = expected[1], [], threading.Event()

    def ask_on():
        while not stopped.wait(0.5):
            texts.append(whole(client))

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        publish_tiny(MlflowPublisher(folder), seed=1)
        wait_for(lambda: status_of(service)["generation"] == 2 and status_of(service)["leaving"] == 0)
        count = len(texts)
        wait_for(lambda: len(texts) > count + 1)
    finally:
        stopped.set()
        thread.join(PATIENCE)
    after = whole(client)
    assert before != after and set(texts) == {before, after}
    assert status_of(service)["models"][0]["generator"]["version"] == 2 and len(engines(service)) == 1


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
    assert len(paths) >= 4  # one killed, one hung, and the new champion's
    for path in paths:
        journal = read_journal(path)
        assert journal and replay(PackingScheduler(rules(settings, served), served.packing.memory), journal) == journal


def test_two_engines_share_the_texts_and_the_death_of_one_changes_none(tmp_path):
    publish_tiny(MlflowPublisher(tmp_path))
    settings = settings_for(tmp_path, device="cpu,cpu", launch_limit=30.0, predict_limit=60.0)
    with running(settings, tmp_path) as service, asking(service) as client, ThreadPoolExecutor(COUNT) as threads:
        texts = [whole(client, seed=seed, max_tokens=SHORT) for seed in range(COUNT)]
        assert list(threads.map(lambda seed: whole(client, seed=seed, max_tokens=SHORT), range(COUNT))) == texts
        (model,) = status_of(service)["models"]
        assert [engine["device"] for engine in model["engines"]] == ["cpu", "cpu"]
        assert all(engine["iterations"] > 0 and engine["books"] == "balanced" for engine in model["engines"])
        assert model["engine"]["tokens"] == sum(engine["tokens"] for engine in model["engines"])
        first = engines(service)[0]
        first.send_signal(signal.SIGSTOP)  # so that its texts are in flight, however fast it is
        pending = [threads.submit(partial(whole, client, seed=seed, max_tokens=SHORT)) for seed in range(COUNT)]
        wait_for(lambda: sum(each.done() for each in pending) >= 1)
        assert not all(each.done() for each in pending)
        first.send_signal(signal.SIGKILL)
        assert [each.result() for each in pending] == texts
        wait_for(lambda: len([each for each in engines(service) if each != first]) == 2)
        assert status_of(service)["ready"]
