"""The bins service without HTTP servers and processes: answers, overload, lost devices, a new champion under load."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.bins.knowledge import knowledge_of
from pliant.bins.simulated import SimulatedBins
from pliant.device import resolve_device
from pliant.errors import ArtifactError, DeviceError, DigestError, InputError, WorkerError
from pliant.fallbacks import Fallback
from pliant.protocol import Request
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.bins import assembly as bins_assembly
from pliant.serving.bins.assembly import BinsSystem, compiled, make_scheduler
from pliant.serving.bins.catalog import load_catalog
from pliant.serving.lifecycle import system
from pliant.serving.workers import ray_workers
from pliant.simulator import simulate
from tests.fixtures.bins.in_process import MANY, QUIET, serving
from tests.fixtures.bins.published import (
    DEVICE,
    LONG,
    MOST,
    SHAPES,
    SHORT,
    TEXT,
    encoder,
    plan,
    publish_compiled,
    publish_tiny,
)
from tests.fixtures.in_process import ANY
from tests.fixtures.registry import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    return FolderRegistry(tmp_path / "registry")


def embed(service, *texts: str, **headers: str):
    return service.posting("/meanings/embed", {"inputs": list(texts)}, **headers)


def test_launches_carry_lengths_to_runtimes_that_take_them(registry):
    publish_tiny(registry)
    with serving(registry) as service:
        told = service.wait(embed(service, SHORT, TEXT, LONG))
        bins, lengths = told.headers["x-pliant-bin"].split(","), told.headers["x-pliant-length"].split(",")
        shapes = service.present.catalog.shapes
    launches = service.devices[0].launches
    assert sorted(length for _, lengths in launches for length in lengths) == sorted(map(int, lengths))
    for setting, texts in launches:
        name, shape = shapes[setting]
        assert (name, max(texts) <= shape.length, len(texts) <= shape.batch) == ("meanings", True, True)
    assert len(bins) == 3
    assert service.sample("pliant_outcomes_total", task="meanings", outcome="on_time") == 3
    assert service.sample("pliant_waiting") == 0


def test_a_deadline_is_the_streams_slo_unless_the_header_or_the_body_says_otherwise(registry):
    publish_tiny(registry, "meanings", slo=7.0)
    seen = []
    with serving(registry) as service:
        submit = service.present.driver.submit

        def noted(task, left, *rest, **told):
            seen.append(left)
            return submit(task, left, *rest, **told)

        service.present.driver.submit = noted
        for fields, headers in (
            ({}, {}),
            ({}, {"x_pliant_deadline": "2.5"}),
            ({"deadline": 5}, {"x_pliant_deadline": "2"}),
        ):
            service.post("/embed", {"inputs": SHORT, **fields}, **headers)
    assert seen == pytest.approx([7.0, 2.5, 5.0], abs=0.5)
    assert all(left <= limit for left, limit in zip(seen, (7.0, 2.5, 5.0), strict=True))


def test_under_placement_single_each_device_begins_with_the_runtime_that_the_scheduler_planned(registry):
    publish_tiny(registry, placement="single")
    with serving(registry, QUIET.replace(workers=6)) as service:
        for text in (SHORT, TEXT, LONG):
            for path in ("/meanings/embed", "/colours/predict"):
                told = service.post(path, {"inputs": text})
                assert told.status_code == 200, told.text
        assert {told.headers["x-pliant-bin"]} <= {f"{MOST}x1"}
        assert not any(device.loads for device in service.devices)
        assert len({device.build.first for device in service.devices}) > 1


@pytest.mark.parametrize(("least", "used"), [(None, 3), (1, 1)])
def test_a_low_load_is_served_by_few_devices_if_the_settings_allow_it(registry, least, used):
    publish_tiny(registry)
    catalog = load_catalog(registry, "champion")
    scheduler = make_scheduler(QUIET.replace(workers=3, least_workers=least), catalog)
    stream = catalog.plans[0].name
    asked = [Request(i, float(i), i + 1.0, stream, 1.0, 8) for i in range(300)]
    simulate(scheduler, asked, SimulatedBins(knowledge_of(catalog.plans), asked))
    assert scheduler.active == used


def test_overload_is_429_with_retry_after_and_what_was_taken_is_answered(registry):
    publish_tiny(registry)
    with serving(registry, QUIET.replace(max_waiting=2)) as service:
        service.devices[0].seconds = 0.05

        async def ask():
            return await asyncio.gather(*(embed(service, SHORT) for _ in range(12)))

        answers = service.wait(ask())
        dropped = service.sample("pliant_outcomes_total", task="meanings", outcome="dropped_full")
    refused = [one for one in answers if one.status_code == 429]
    assert {one.status_code for one in answers} == {200, 429} and len(refused) == dropped
    assert {(one.json()["error_type"], one.headers["retry-after"]) for one in refused} == {("Overloaded", "1")}


def test_a_client_that_leaves_takes_all_of_its_texts_along(registry):
    publish_tiny(registry)
    with serving(registry) as service:
        service.devices[0].trouble = {ANY: "hang"}

        async def leave():
            asking = asyncio.create_task(embed(service, SHORT, TEXT, LONG))
            while service.present.driver.pending < 3:
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await asyncio.sleep(0)
            return service.present.driver.pending

        assert service.wait(leave()) == 0 and service.sample("pliant_cancelled_total") == 3


@pytest.mark.parametrize(
    "texts",
    [
        ["a dog " * 3000] * 8,  # so long that others have their turns while they are read
        [TEXT] * 200,  # so many that others have their turns while they are submitted
    ],
    ids=["long", "many"],
)
def test_a_list_is_answered_by_one_generation_though_the_next_one_comes_meanwhile(registry, texts):
    publish_tiny(registry)
    with serving(registry, MANY) as service:

        async def exchange():
            publish_tiny(registry, "meanings", seed=1)
            exchanged = asyncio.create_task(service.endpoint.refresh())
            answers = []
            while not exchanged.done():
                answers.append((await embed(service, *texts)).json())
            return answers

        answers = service.wait(exchange())
    assert answers and all(one == answer[0] for answer in answers for one in answer)


def test_a_long_list_has_no_more_texts_waiting_than_keep_the_device_busy(registry, monkeypatch):
    publish_tiny(registry)
    with serving(registry, MANY) as service:
        driver, waiting = service.present.driver, []
        submit = driver.submit

        def watched(*arguments, **options):
            waiting.append(driver.pending)
            return submit(*arguments, **options)

        monkeypatch.setattr(driver, "submit", watched)
        whole = service.wait(embed(service, *[TEXT, SHORT] * 100)).json()
        alone = [service.wait(embed(service, text)).json()[0] for text in (TEXT, SHORT)]
    assert len(waiting) == 202 and max(waiting) < 16  # two launches of the largest batch, 8 texts
    np.testing.assert_allclose(whole, alone * 100, atol=1e-5)


def test_a_long_list_of_which_one_text_is_rejected_costs_the_device_no_more(registry):
    publish_tiny(registry)
    with serving(registry, MANY) as service:
        service.devices[0].seconds = 0.2
        late = service.wait(embed(service, *[TEXT] * 200, x_pliant_deadline="0.3"))
        assert late.status_code == 429 and "deadline is 0.3 seconds" in late.json()["error"]
        assert service.sample("pliant_outcomes_total", task="meanings", outcome="dropped_late") >= 1
        assert sum(len(texts) for _, texts in service.devices[0].launches) <= 16


def test_a_stream_that_goes_is_refused_from_then_on(registry):
    publish_tiny(registry)
    with serving(registry) as service:
        del registry.champions[BINS_PREFIX + "meanings"]
        assert service.wait(service.endpoint.refresh())["outcome"] == "changed"
        answer = service.wait(embed(service, TEXT))
        assert (answer.status_code, "must be one of colours" in answer.json()["error"]) == (404, True)


def test_what_can_be_known_before_serving_is_refused_before_serving(registry, tmp_path, monkeypatch):
    monkeypatch.setattr(system, "open_registry", lambda settings: registry)
    told = QUIET.replace(home=tmp_path / "home")
    publish_compiled(registry, told.home, "meanings")
    BinsSystem(told).check()
    (served,) = load_catalog(registry, "champion").tasks.values()
    file = compiled(told, served) / next(iter(served.bins.files))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(DigestError, match="was altered or truncated"):
        BinsSystem(told).check()
    file.unlink()
    with pytest.raises(ArtifactError, match=r"is missing in .* `pliant profile bins`"):
        BinsSystem(told).check()
    file.write_bytes(content)
    registry.publish(BINS_PREFIX + "meanings", replace(served.bins, engine="graphs"))
    with pytest.raises(InputError, match="engine is graphs, but must be onnx or eager on cpu"):
        BinsSystem(told).check()
    registry.publish(BINS_PREFIX + "meanings", served.bins)
    monkeypatch.setattr(bins_assembly, "find_spec", lambda name: None)
    with pytest.raises(WorkerError, match=r"Ray is missing here: pip install -e '\.\[ray\]'"):
        BinsSystem(told.replace(pool="ray")).check()
    publish_tiny(registry, "colours", device_class="another device")
    with pytest.raises(DeviceError, match="on 2 classes of device"):
        BinsSystem(told).check()
    publish_tiny(registry, device_class="another device")
    with pytest.raises(DeviceError, match=f"measured on another device, but this device is {DEVICE}"):
        BinsSystem(told).check()


def test_the_status_says_all_of_the_service_and_its_streams(registry):
    publish_tiny(registry)
    with serving(registry, QUIET.replace(workers=2)) as service:
        service.devices[1].fallbacks = (Fallback("capture", "4 x 8 runs without a CUDA graph"),)
        status, colours = service.call("GET", "/status").json(), service.present.catalog.tasks["colours"]
    common = ("ready", "alias", "release", "generation", "leaving", "standby", "trial", "watch", "refresh_seconds")
    assert [status[name] for name in common] == [True, "champion", None, 1, 0, None, None, None, 0.0]
    assert (status["waiting"], status["pending"], status["device"]) == (0, 0, resolve_device("auto"))
    assert status["refresh"] == {"outcome": "unchanged", "message": "not polled yet", "changed": {}}
    devices = ("workers", "least_workers", "pool", "policy", "dispatch", "placement")
    assert [status[name] for name in devices] == [2, 2, "processes", "default", "completion", "shared"]
    fallback = {"kind": "capture", "reason": "4 x 8 runs without a CUDA graph"}
    assert status["devices"] == [{"name": "cpu", "up": True, "fallbacks": found} for found in ([], [fallback])]
    first, second = status["streams"]
    assert (second["name"], second["head"], second["classes"]) == ("meanings", "embedding", [])
    digests = {"digest": colours.digest, "encoder": {"version": 1, "digest": colours.encoder.digest}}
    kind = {"head": "classification", "classes": ["red", "green", "blue"], "max_length": MOST, "slo": 30.0}
    profile = {"device": DEVICE, "engine": "eager", "precision": "float32", "seconds": [1e-3, 3e-3, 4e-3]}
    bins = {"bins": ["8x1", "8x4", f"{MOST}x1", "dynamic"]}
    assert first == {"name": "colours", "version": 1, **digests, **kind, **profile, **bins}


def test_the_devices_go_to_the_workers_in_turn_and_must_be_of_the_class_of_the_profile(registry):
    publish_tiny(registry)
    catalog = load_catalog(registry, "champion")
    settings = QUIET.replace(device="cpu, cuda:1", workers=3, threads=2)
    builds = [bins_assembly.build_plan(settings, catalog, worker) for worker in range(3)]
    assert [build.plan.device for build in builds] == ["cpu", "cuda:1", "cpu"]
    for build in builds:
        assert (build.plan.threads, build.plan.profiled_on, build.plan.warm_batches) == (2, DEVICE, ())
        assert (build.placement, build.first, len(build.streams)) == ("shared", None, 2)
    (colours, _), (served, _) = builds[0].streams, catalog.tasks.values()
    assert (colours.folder, colours.digest) == (served.encoder.folder, served.encoder.digest)
    assert (colours.engine, colours.shapes, colours.files) == ("eager", SHAPES, {})
    assert bins_assembly.build_plan(settings.replace(any_profile=True), catalog, 0).plan.profiled_on is None


def test_ray_numbers_its_gpus_itself(registry, monkeypatch):
    publish_tiny(registry)
    catalog, two = load_catalog(registry, "champion"), QUIET.replace(device="cuda:0, cuda:1", workers=3)
    on_nodes = two.replace(pool="ray")
    assert {bins_assembly.build_plan(on_nodes, catalog, worker).plan.device for worker in range(3)} == {"cuda"}
    needs = []
    monkeypatch.setattr(
        ray_workers,
        "RayPool",
        lambda address, resources: needs.append(resources) or SimpleNamespace(make_worker=None, close=None),
    )
    for device in ("cuda:0, cuda:1", "cuda", "cpu"):
        BinsSystem(on_nodes.replace(device=device)).open_pool()
    assert [resources.num_gpus for resources in needs] == [1.0, 1.0, 0.0]


def test_where_ray_is_installed_devices_on_its_nodes_are_checked_there(registry, monkeypatch):
    monkeypatch.setattr(system, "open_registry", lambda settings: registry)
    monkeypatch.setattr(bins_assembly, "find_spec", lambda name: name)
    publish_tiny(registry, device_class="another device")
    BinsSystem(QUIET.replace(pool="ray")).check()


def test_a_policy_that_the_placement_excludes_and_a_broken_tokenizer_are_refused_before_serving(registry, monkeypatch):
    monkeypatch.setattr(system, "open_registry", lambda settings: registry)
    publish_tiny(registry, placement="single")
    with pytest.raises(InputError, match="policy is first-come, but must be default"):
        BinsSystem(QUIET.replace(workers=2, policy="first-come")).check()
    broken = replace(encoder("meanings"), tokenizer="{}")
    digest = registry.publish(BINS_ENCODER + "meanings", broken)
    registry.publish(BINS_PREFIX + "meanings", plan("meanings", digest, placement="single"))
    with pytest.raises(ArtifactError, match="the tokenizer cannot be used"):
        BinsSystem(QUIET.replace(workers=2)).check()


@pytest.mark.parametrize("seconds", [0.0, 1000.0])
def test_a_service_counts_its_answers_only_where_it_is_watched(registry, tmp_path, seconds):
    publish_tiny(registry, "colours")
    with serving(registry, QUIET.replace(watch_seconds=seconds, home=tmp_path / "home")) as service:
        answer = service.wait(service.posting("/colours/predict", {"inputs": "a red sign"}))
        assert answer.status_code == 200, answer.text
        counts = service.assembly.refresher.drift.take().get(-1, {})
        assert ("tokens of colours" in counts) == (seconds > 0) == bool(counts)
