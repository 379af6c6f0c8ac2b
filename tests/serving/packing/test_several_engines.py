"""One model on two devices over real HTTP: two engines in two processes write the texts that one would."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.fixtures.clients import wait_for
from tests.fixtures.live import running
from tests.fixtures.packing.published import MlflowPublisher, publish_tiny, settings_for
from tests.serving.packing.test_service import asking, engines, status_of, whole

pytestmark = pytest.mark.slow

COUNT = 6
LIMIT = 60  # tokens


def test_two_engines_share_the_texts_and_the_death_of_one_changes_none(tmp_path):
    publish_tiny(MlflowPublisher(tmp_path))
    settings = settings_for(tmp_path, device="cpu,cpu", launch_limit=30.0, predict_limit=60.0)
    with running(settings, tmp_path) as service, asking(service) as client, ThreadPoolExecutor(COUNT) as threads:
        texts = [whole(client, seed=seed, max_tokens=LIMIT) for seed in range(COUNT)]
        assert list(threads.map(lambda seed: whole(client, seed=seed, max_tokens=LIMIT), range(COUNT))) == texts
        (model,) = status_of(service)["models"]
        assert [engine["device"] for engine in model["engines"]] == ["cpu", "cpu"]
        assert all(engine["iterations"] > 0 and engine["books"] == "balanced" for engine in model["engines"])
        assert model["engine"]["tokens"] == sum(engine["tokens"] for engine in model["engines"])
        first = engines(service)[0]
        first.send_signal(signal.SIGSTOP)  # so that its texts are in flight, however fast it is
        pending = [threads.submit(partial(whole, client, seed=seed, max_tokens=LIMIT)) for seed in range(COUNT)]
        wait_for(lambda: sum(each.done() for each in pending) >= 1)
        assert not all(each.done() for each in pending)
        first.send_signal(signal.SIGKILL)
        assert [each.result() for each in pending] == texts
        wait_for(lambda: len([each for each in engines(service) if each != first]) == 2)
        assert status_of(service)["ready"]
