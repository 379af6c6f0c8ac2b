"""What the bins service is built from: its status, build plans, limits and pool, and what is refused before serving."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pliant.device import resolve_device
from pliant.errors import ArtifactError, InputError
from pliant.fallbacks import Fallback
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.bins import assembly as bins_assembly
from pliant.serving.bins.assembly import BinsSystem
from pliant.serving.bins.catalog import load_catalog
from pliant.serving.lifecycle import system
from pliant.serving.workers import ray_workers
from tests.fixtures.bins.in_process import QUIET, serving
from tests.fixtures.bins.published import (
    DEVICE,
    MOST,
    SHAPES,
    encoder,
    plan,
    publish_tiny,
)
from tests.fixtures.tokens.http import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    return FolderRegistry(tmp_path / "registry")


def test_the_status_says_all_of_the_service_and_its_streams(registry):
    publish_tiny(registry)
    with serving(registry, QUIET.replace(workers=2)) as service:
        service.devices[1].fallbacks = (Fallback("capture", "4 x 8 runs without a CUDA graph"),)
        status = service.call("GET", "/status").json()
        streams = service.present.catalog.streams
    common = ("ready", "alias", "release", "generation", "leaving", "standby", "trial", "watch", "refresh_seconds")
    assert [status.pop(name) for name in common] == [True, "champion", None, 1, 0, None, None, None, 0.0]
    assert (status.pop("waiting"), status.pop("pending")) == (0, 0)
    assert status.pop("device") == resolve_device("auto")
    assert status.pop("refresh") == {"outcome": "unchanged", "message": "not polled yet", "changed": {}}
    heads = {"colours": ("classification", ["red", "green", "blue"]), "meanings": ("embedding", [])}
    assert status == {
        "workers": 2,
        "devices": [
            {"name": "cpu", "up": True, "fallbacks": []},
            {
                "name": "cpu",
                "up": True,
                "fallbacks": [{"kind": "capture", "reason": "4 x 8 runs without a CUDA graph"}],
            },
        ],
        "least_workers": 2,
        "pool": "processes",
        "policy": "default",
        "dispatch": "completion",
        "placement": "shared",
        "streams": [
            {
                "name": name,
                "version": 1,
                "digest": streams[name].digest,
                "encoder": {"version": 1, "digest": streams[name].encoder.digest},
                "head": head,
                "classes": classes,
                "max_length": MOST,
                "slo": 30.0,
                "device": DEVICE,
                "engine": "eager",
                "precision": "float32",
                "bins": ["8x1", "8x4", f"{MOST}x1", "dynamic"],
                "seconds": [1e-3, 3e-3, 4e-3],
            }
            for name, (head, classes) in heads.items()
        ],
    }


def test_the_devices_go_to_the_workers_in_turn_and_must_be_of_the_class_of_the_profile(registry):
    publish_tiny(registry)
    catalog = load_catalog(registry, "champion")
    settings = QUIET.replace(device="cpu, cuda:1", workers=3, threads=2)
    builds = [bins_assembly.build_plan(settings, catalog, worker) for worker in range(3)]
    assert [build.plan.device for build in builds] == ["cpu", "cuda:1", "cpu"]
    for build in builds:
        assert (build.plan.threads, build.plan.profiled_on, build.plan.warm_batches) == (2, DEVICE, ())
        assert (build.placement, build.first, len(build.streams)) == ("shared", None, 2)
    (colours, _), (served, _) = builds[0].streams, catalog.streams.values()
    assert (colours.folder, colours.digest) == (served.encoder.folder, served.encoder.digest)
    assert (colours.engine, colours.shapes, colours.files) == ("eager", SHAPES, {})
    assert bins_assembly.build_plan(settings.replace(any_profile=True), catalog, 0).plan.profiled_on is None


def test_workers_take_the_devices_in_turn_but_ray_numbers_its_gpus_itself(registry, monkeypatch):
    publish_tiny(registry)
    catalog, two = load_catalog(registry, "champion"), QUIET.replace(device="cuda:0, cuda:1", workers=3)
    built = [bins_assembly.build_plan(two, catalog, worker).plan.device for worker in range(3)]
    assert built == ["cuda:0", "cuda:1", "cuda:0"]
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
