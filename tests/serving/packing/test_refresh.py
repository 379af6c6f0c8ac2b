"""A new champion takes over without losing an output; artifacts that do not fit together change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pliant.errors import DeviceError, InputError, WorkerError
from pliant.registry.names import PACKING_GENERATOR
from pliant.serving.lifecycle.assembly import Builder
from pliant.serving.packing.assembly import rules
from pliant.serving.packing.catalog import load_catalog
from pliant.serving.workers.devices import SameDevice
from tests.fixtures.packing.fakes import TALE, FakePredictor, FakeWorker
from tests.fixtures.packing.in_process import QUIET, generator, publish, serving
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish(registry)
    return registry


def test_outputs_on_their_way_end_where_they_began(registry):
    with serving(registry) as service:
        former = service.worker
        former.held = True

        async def taking_over():
            asking = asyncio.create_task(service.posting("/completions", {"prompt": "a", "temperature": 0}))
            await service.until(lambda: service.engine.pending == 1)
            publish(registry, seed=1)
            assert (await service.posting("/refresh", {})).json()["outcome"] == "changed"
            told = (await service.posting("/completions", {"prompt": "a", "temperature": 0})).json()
            assert told["choices"][0]["text"] == TALE and service.worker is not former
            assert service.status_now()["leaving"] == 1
            former.held = False
            assert (await asking).json()["choices"][0]["text"] == TALE
            await service.until(lambda: former.stopped)
            return told

        service.status_now = lambda: {"leaving": service.assembly.generations.draining}
        service.wait(taking_over())
        assert service.status()["models"][0]["generator"]["version"] == 2
        assert registry.discarded  # the former's files


def test_nothing_new_is_unchanged_and_costs_no_process(registry):
    with serving(registry) as service:
        assert service.post("/refresh", {}).json()["outcome"] == "unchanged"
        assert len(service.workers) == 1


def test_a_generator_without_its_plan_is_held_and_the_present_one_serves_on(registry):
    with serving(registry) as service:
        registry.publish(PACKING_GENERATOR + "tales", generator(seed=2))
        told = service.post("/refresh", {}).json()
        assert told["outcome"] == "held" and "promote the plan that was made with it" in told["message"]
        assert service.complete().status_code == 200


def test_a_new_engine_that_cannot_start_leaves_the_present_one(registry):
    with serving(registry) as service:
        publish(registry, seed=3)
        service.trouble = "no room for the model"
        response = service.post("/refresh", {})
        assert response.status_code == 503 and "no room" in response.text
        assert service.complete().status_code == 200


def test_another_class_of_device_is_an_error_unless_any_profile_is_allowed(registry):
    catalog = load_catalog(registry, "champion")
    (served,) = catalog.models.values()
    other = replace(catalog, models={"tales": replace(served, packing=replace(served.packing, device_class="other"))})

    same = SameDevice("models", any_profile=False)
    same.check(catalog)
    with pytest.raises(DeviceError, match="profiled on other, but this device is a-device"):
        asyncio.run(Builder(lambda *_: pytest.fail("nothing is made"), same).start(other))


def test_a_policy_that_needs_exact_lengths_is_not_served_with(registry):
    (served,) = load_catalog(registry, "champion").models.values()
    assert rules(replace(QUIET, policy="s3"), served).policy == "s3"
    with pytest.raises(InputError, match="PLIANT_POLICY is 'oracle', but must be one of default, paged, s3"):
        replace(QUIET, policy="oracle")


def test_an_engine_that_does_not_start_is_no_service(registry):
    def worker_factory(next_build):
        return FakeWorker(next_build, trouble="the device has no room")

    from pliant.serving.packing.assembly import PackingSystem

    with pytest.raises(WorkerError, match="no room"):
        asyncio.run(
            PackingSystem(QUIET, lambda _build: FakePredictor(lambda texts: [])).assemble(
                registry, worker_factory, None
            )
        )


def test_each_engine_process_has_a_journal_of_its_own(registry, tmp_path):
    with serving(registry, replace(QUIET, journal=tmp_path / "j.jsonl")) as service:
        publish(registry, seed=1)
        assert service.post("/refresh", {}).json()["outcome"] == "changed"
        journals = [build.journal.name for worker in service.workers for build in worker.builds]
    assert journals == ["j.jsonl", "j-2.jsonl"]
