"""The catalog of bins holds each stream with its encoder, and fetches only what the running one lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.bins.artifact import Shape
from pliant.errors import ArtifactError, DeviceError
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX
from pliant.serving.bins.catalog import load_catalog
from tests.fixtures.bins.published import DEVICE, MOST, SHAPES, encoder, plan, publish_tiny
from tests.fixtures.registry import FolderRegistry

FEW = (Shape(8, 1), Shape(32, 8, dynamic=True))


@pytest.fixture
def registry(tmp_path):
    return FolderRegistry(tmp_path)


def test_streams_come_in_order_of_their_names_with_all_that_is_known_of_them(registry):
    publish_tiny(registry, "meanings")
    publish_tiny(registry, "colours", shapes=FEW, seconds=(1e-3,))
    catalog = load_catalog(registry, "champion")
    assert list(catalog.tasks) == ["colours", "meanings"]
    assert [bins.name for bins in catalog.plans] == ["colours", "meanings"]
    assert catalog.shapes == [("colours", shape) for shape in FEW] + [("meanings", shape) for shape in SHAPES]
    assert (catalog.device, catalog.placement) == (DEVICE, "shared")
    colours, meanings = (catalog.tasks[name].encoder for name in ("colours", "meanings"))
    assert catalog.folders == {colours.folder, meanings.folder}
    for held in (colours, meanings):
        assert replace(encoder(held.artifact.name), weights={}) == held.artifact
    assert [served.max_length for served in catalog.tasks.values()] == [32, MOST]
    assert catalog.pointers == {
        name: 1 for stream in ("colours", "meanings") for name in (BINS_PREFIX + stream, BINS_ENCODER + stream)
    }


def test_of_a_new_plan_with_the_same_encoder_only_the_plan_is_fetched(registry):
    publish_tiny(registry)
    first = load_catalog(registry, "champion")
    registry.fetched.clear()
    digest = first.tasks["meanings"].encoder.digest
    registry.publish(BINS_PREFIX + "meanings", plan("meanings", digest, shapes=FEW, seconds=(1e-3,)))
    second = load_catalog(registry, "champion", first)
    assert registry.fetched == [f"{BINS_PREFIX}meanings/2"]
    assert second.tasks["colours"] is first.tasks["colours"]
    assert second.tasks["meanings"].encoder.folder == first.tasks["meanings"].encoder.folder
    assert second.tasks["meanings"].max_length == 32
    assert not second.serves_as(first) and second.serves_as(load_catalog(registry, "champion"))


def test_the_same_encoder_under_another_number_is_fetched_again(registry):
    publish_tiny(registry, "meanings")
    first = load_catalog(registry, "champion")
    registry.publish(BINS_ENCODER + "meanings", encoder("meanings"))
    second = load_catalog(registry, "champion", first)
    assert second.tasks["meanings"].encoder.version == 2
    assert not second.serves_as(first)


def test_an_encoder_that_was_not_planned_with_is_named_with_both(registry):
    publish_tiny(registry, "meanings")
    planned = load_catalog(registry, "champion").tasks["meanings"].encoder.digest
    other = registry.publish(BINS_ENCODER + "meanings", encoder("meanings", seed=1))
    with pytest.raises(ArtifactError) as raised:
        load_catalog(registry, "champion")
    assert str(raised.value) == (
        f"stream meanings was planned with encoder {planned[:12]}, but champion of {BINS_ENCODER}meanings (version 2) "
        f"is {other[:12]}: promote the plan that was made with it"
    )


def test_streams_of_two_placements_or_devices_do_not_fit_together(registry):
    publish_tiny(registry, "colours")
    publish_tiny(registry, "meanings", placement="single", device_class="a large GPU")
    catalog = load_catalog(registry, "champion")
    with pytest.raises(ArtifactError, match="some streams were planned with the placement shared, others with single"):
        _ = catalog.placement
    with pytest.raises(DeviceError, match=r"on 2 classes of device .* profile them on one \(pliant profile bins\)"):
        _ = catalog.device
