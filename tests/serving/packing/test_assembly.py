"""The packing service is assembled of its settings and artifacts: an engine, a forecaster and a reader a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import ArtifactError, InputError
from pliant.packing.scheduling.request import Memory
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.lifecycle import system
from pliant.serving.packing import assembly
from pliant.serving.packing.assembly import Maker, PackingSystem, rules, spread
from pliant.serving.packing.catalog import load_catalog
from pliant.serving.packing.engine.engine_process import EngineBuild
from pliant.serving.packing.engine.metrics import PackingMetrics
from pliant.serving.workers.devices import DevicePlan
from tests.fixtures.packing.fakes import FakePredictor, FakeWorker
from tests.fixtures.packing.in_process import QUIET, generator, packing, predictor, publish, serving


@pytest.fixture
def catalog(registry):
    digest = registry.publish(PACKING_GENERATOR + "songs", generator(seed=7))
    other = registry.publish(PACKING_PREDICTOR + "songs", predictor(digest))
    registry.publish(PACKING_PREFIX + "songs", packing(digest, other, name="songs"))
    return load_catalog(registry, "champion")


class Making:
    """Makes a generation with fake workers, none of which is started."""

    def __init__(self, catalog, **settings) -> None:
        self.workers, self.counted, self.now = [], CollectorRegistry(), 5.0
        self.settings = QUIET.replace(**settings)
        metrics = PackingMetrics(self.counted)
        self.maker = Maker(self.settings, lambda: self.now, metrics, self.new_worker, self.new_predictor)
        self.predictors = []
        self.generation = self.maker.make(3, catalog)

    def new_worker(self, next_build):
        self.workers.append(FakeWorker(next_build))
        return self.workers[-1]

    def new_predictor(self, build):
        self.predictors.append((build, FakePredictor(lambda texts: [])))
        return self.predictors[-1][1]


def test_models_go_to_the_devices_in_turn_and_each_process_has_its_plan(catalog, tmp_path):
    making = Making(catalog, device="cuda:0, cuda:1", threads=3, any_profile=False, journal=tmp_path / "j.jsonl")
    builds = [worker.next_build() for worker in (*making.workers, making.workers[0])]
    expected = [("songs", "cuda:0", "j.jsonl"), ("tales", "cuda:1", "j-2.jsonl"), ("songs", "cuda:0", "j-3.jsonl")]
    for build, (name, device, journal) in zip(builds, expected, strict=True):
        served = catalog.tasks[name]
        assert build == EngineBuild(
            folder=served.generator.folder,
            digest=served.generator.digest,
            memory=served.packing.memory,
            rules=rules(making.settings, served),
            plan=DevicePlan(device, 3, "a-device", ()),
            journal=tmp_path / journal,
            precision=served.packing.precision,
            token_bytes=served.packing.kv_bytes,
        )
    assert (making.generation.number, making.generation.catalog) == (3, catalog)
    alone = Making(catalog).workers[0].next_build()
    assert (alone.plan, alone.journal) == (DevicePlan("cpu", 1, None, ()), None)


def test_a_model_alone_has_an_engine_on_each_device_and_all_take_from_one_queue(registry):
    making = Making(load_catalog(registry, "champion"), device="cuda:0,cuda:1,cuda:2")
    (handler,) = making.generation.handlers.values()
    assert [worker.next_build().plan.device for worker in making.workers] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [device for device, _ in handler.engine.on_devices] == ["cuda:0", "cuda:1", "cuda:2"]
    assert list(making.generation.driver.handlers) == [handler]


def test_models_that_would_each_need_all_gpus_are_refused(catalog):
    with pytest.raises(InputError, match=r"processes is 2, but must be 1 if 2 models are served \(songs, tales\)"):
        Making(catalog, engine="vllm", device="cuda", processes=2)


@pytest.mark.parametrize(
    ("device", "processes", "pages", "expected"),
    [
        ("cpu", 2, 10, 10),
        ("cuda", 1, 10, 10),
        ("cuda", 2, 10, 20),
        ("cuda", 4, 60, 128),  # 4 sequences of the whole context
        ("cuda", 2, 200, 200),
    ],
)
def test_gpus_hold_as_many_times_the_pages_and_main_memory_does_not(catalog, device, processes, pages, expected):
    served, memory = catalog.tasks["tales"], Memory(pages, 4, host_pages=7, sequences=4)
    planned = replace(served, packing=replace(served.packing, memory=memory))
    found = spread(QUIET.replace(engine="vllm", device=device, processes=processes), planned)
    assert found.packing.memory == replace(memory, pages=expected)


@pytest.mark.parametrize(
    ("device", "predict_device", "first"),
    [("cpu", "", False), ("cuda", "", True), ("cuda", "cpu", False), ("cpu", "cuda:1", True)],
)
def test_on_a_gpu_the_predictors_start_before_the_engines(catalog, device, predict_device, first):
    pool = Making(catalog, device=device, predict_device=predict_device).generation.driver
    assert pool.forecasters_first == first


@pytest.fixture
def checking(registry, monkeypatch):
    """`check` of settings, on this registry; the machine itself is not asked."""
    monkeypatch.setattr(system, "open_registry", lambda settings: registry)
    asked = []
    monkeypatch.setattr(assembly, "check_devices", lambda settings, catalog: asked.append("devices"))
    return lambda **settings: (PackingSystem(QUIET.replace(**settings)).check(), asked)[1]


def test_settings_artifacts_and_devices_are_checked_before_a_service_starts(checking, registry):
    assert checking() == ["devices"]
    with pytest.raises(InputError, match="PLIANT_POLICY is 'oracle', but must be one of default"):
        checking(policy="oracle")  # only simulations know the exact lengths that it needs
    publish(registry, model=generator(tokenizer="no tokenizer"))
    with pytest.raises(ArtifactError, match="the generator's tokenizer cannot be read"):
        checking()
    assert PackingSystem(QUIET).source(registry).registry is registry


def test_a_later_catalog_must_be_of_the_same_class_of_device_unless_the_settings_say_otherwise(registry):
    def other_class():
        (model,) = load_catalog(registry, "champion").tasks.values()
        plan = packing(model.generator.digest, model.predictor.digest, device_class="another")
        registry.publish(PACKING_PREFIX + "tales", plan)

    with serving(registry, QUIET.replace(any_profile=False)) as service:
        other_class()
        response = service.post("/refresh", {})
        assert "the new models were profiled on another, but this device is a-device" in response.text
    with serving(registry) as service:
        publish(registry)
        assert service.post("/refresh", {}).json()["outcome"] == "changed"
