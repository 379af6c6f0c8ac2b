"""A service whose model two processes share: the texts of one, also when any of the processes is killed."""

from __future__ import annotations

import signal

import httpx2
import openai
import psutil
import pytest

from tests.serving.clients import PATIENCE, wait_for
from tests.serving.live import Asked, running
from tests.serving.packing_published import NAME, MlflowPublisher, publish_tiny, settings_for
from tests.serving.test_packing_service import LONG, engines, is_idle, whole

pytestmark = pytest.mark.slow

COUNT = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registry")
    publish_tiny(MlflowPublisher(folder))
    return folder


def started(folder, processes: int):
    return running(settings_for(folder, processes=processes, predict_limit=60.0), folder)


def client_of(service, http):
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0, http_client=http)


@pytest.fixture(scope="module")
def expected(folder):
    """What one process writes."""
    with started(folder, 1) as service, httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        client = client_of(service, http)
        return [whole(client, seed=seed) for seed in range(COUNT)]


@pytest.fixture(scope="module")
def service(folder, expected):
    with started(folder, 2) as service:
        yield service


@pytest.fixture
def client(service):
    with httpx2.Client(trust_env=False, timeout=PATIENCE) as http:
        yield client_of(service, http)


def others(service) -> list[psutil.Process]:
    """Those that follow the engine's process."""
    (engine,) = engines(service)
    return [one for one in engine.children() if any("spawn_main" in word for word in one.cmdline())]


def test_two_processes_serve_what_one_serves(client, service, expected):
    assert Asked(lambda place: whole(client, seed=place), COUNT).answers() == expected
    assert len(others(service)) == 1
    wait_for(lambda: is_idle(service))


@pytest.mark.parametrize("victim", ["other", "first"])
def test_a_killed_process_is_replaced_with_its_group_and_every_text_goes_on(client, service, expected, victim):
    (engine,), (other,) = engines(service), others(service)
    told = {"model": NAME, "prompt": "Once there", "temperature": 1, "max_tokens": LONG}
    stream = client.completions.create(**told, seed=0, stream=True)
    first = next(iter(stream)).choices[0].text
    asked = Asked(lambda place: whole(client, seed=place), COUNT)
    (other if victim == "other" else engine).send_signal(signal.SIGKILL)
    text = first + "".join(piece.choices[0].text for piece in stream)
    assert text == expected[0] and asked.answers() == expected
    wait_for(lambda: not engine.is_running() and not other.is_running())
    assert len(engines(service)) == len(others(service)) == 1
    wait_for(lambda: is_idle(service))


def test_an_idle_process_that_is_killed_costs_no_text(client, service, expected):
    (other,) = others(service)
    other.kill()
    assert whole(client, seed=1) == expected[1]
    assert [one.pid for one in others(service)] != [other.pid]


def test_sigterm_ends_what_is_on_its_way_and_the_whole_family(client, service, expected):
    """Last of the tests that share the service."""
    family = psutil.Process(service.process.pid).children(recursive=True)
    assert len(family) > 2
    stream = client.completions.create(
        model=NAME, prompt="Once there", temperature=1, seed=2, max_tokens=LONG, stream=True
    )
    first = next(iter(stream)).choices[0].text
    service.process.send_signal(signal.SIGTERM)
    for one in family:  # as a supervisor does
        if one.is_running():
            one.send_signal(signal.SIGTERM)
    assert first + "".join(piece.choices[0].text for piece in stream) == expected[2]
    assert service.process.wait(PATIENCE) == 0
    assert not psutil.wait_procs(family, timeout=PATIENCE)[1]
