"""The predictor is read as it was published, warmed up, and predicts in a process of its own, as its device is fastest."""

from __future__ import annotations

import asyncio
import os
import signal
from types import SimpleNamespace

import pytest
import torch

from pliant.errors import DigestError
from pliant.registry import codec
from pliant.serving.packing.engine import device as predictor_device
from pliant.serving.packing.engine.engine_process import PredictorBuild
from pliant.serving.packing.engine.forecaster import MAX_TEXTS, Forecaster, ForecastLimits
from pliant.serving.workers.device_plan import DevicePlan
from pliant.serving.workers.worker import ProcessWorker
from tests.fixtures.packing.published import predictor

TEXTS = ["a text", "a text", "quite another text of several words"]


@pytest.fixture
def published(tmp_path):
    before, kept = torch.get_num_threads(), torch.backends.mkldnn.enabled
    digest = codec.save(predictor("g"), tmp_path / "predictor")
    yield PredictorBuild(tmp_path / "predictor", digest, DevicePlan("cpu", 1, None, ()))
    torch.set_num_threads(before)
    torch.backends.mkldnn.set_flags(kept)


def test_it_predicts_quantiles_and_a_class_for_each_text_in_one_thread(published):
    torch.set_num_threads(2)
    device = published()
    assert torch.get_num_threads() == 1
    ((tokens, bucket), same, other), seconds = device.run(0, TEXTS)
    assert len(tokens) == 8 and list(tokens) == sorted(tokens) and isinstance(bucket, int)
    assert same == (pytest.approx(tokens), bucket) and other[0] != tokens
    assert seconds > 0


def test_it_has_run_before_its_first_request(published, monkeypatch):
    seen = []

    def predict(texts):
        seen.append(len(texts))
        return [SimpleNamespace(tokens=[1.0, 2.0], bucket=3) for _ in texts]

    monkeypatch.setattr(
        predictor_device, "load", lambda artifact, device: seen.append(device) or SimpleNamespace(predict=predict)
    )
    device = published()
    assert seen == ["cpu", MAX_TEXTS, 2]
    assert device.run(0, ["a"])[0] == [((1.0, 2.0), 3)]


def test_another_predictor_than_was_published_is_refused(published):
    with pytest.raises(DigestError):
        PredictorBuild(published.folder, "0" * 64, published.plan)()


@pytest.mark.slow
def test_a_killed_process_is_restarted_and_predicts_the_same(published):
    class Counter:
        deaths = 0

        def forecast(self, *_):
            pass

        def predictor_died(self, _task):
            self.deaths += 1

    async def run():
        counter, worker = Counter(), ProcessWorker(published)
        forecaster = Forecaster("tales", worker, (1.0,) * 8, ForecastLimits(60.0), counter)
        await forecaster.start()
        try:
            before = await forecaster.forecast(TEXTS)
            os.kill(worker.pid, signal.SIGKILL)
            while forecaster.alive:
                await asyncio.sleep(0.01)
            meanwhile = await forecaster.forecast(TEXTS)
            while not forecaster.alive:
                await asyncio.sleep(0.01)
            return before, meanwhile, await forecaster.forecast(TEXTS), counter.deaths
        finally:
            await forecaster.stop()

    before, meanwhile, after, deaths = asyncio.run(run())
    assert {forecast.origin for forecast in before} == {"predicted"} and after == before
    assert {forecast.origin for forecast in meanwhile} == {"failed"} and deaths == 1
