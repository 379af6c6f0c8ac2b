"""Variants in the service: which fit together, what the scheduler knows of them, and how one is loaded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pliant.errors import ArtifactError, DigestError, InputError, RegistryError
from pliant.tokens.runtime import Payload, TokensRuntime
from serving.tokens.messages import VariantsBuild
from serving.tokens.variants import load_variants
from serving.tokens.variants_device import build
from serving.workers.device_plan import DevicePlan
from tests.fixtures.tokens.http import FolderRegistry
from tests.fixtures.tokens.samples import random_images, tiny_variant

TASKS = {"digits": ["zero", "one", "two"], "shapes": ["round", "square"]}
PLAN = DevicePlan("cpu", 1, None, (1, 2))


def variant(name: str, depth: int, **changes):
    return replace(tiny_variant(name, TASKS, "a device", depth, loading=depth / 10), **changes)


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    for name, depth in (("large", 3), ("small", 1)):
        registry.publish(f"pliant-tokens-variant-{name}", variant(name, depth))
    return registry


def test_variants_are_numbered_cheapest_first_and_that_is_what_the_scheduler_knows(registry):
    catalog = load_variants(registry, "champion")
    assert [one.name for one in catalog.variants] == ["small", "large"]
    known = catalog.knowledge()
    assert known.latency.settings == (0, 1)
    assert known.latency.at(1, 4) == 3 * known.latency.at(0, 4)
    assert known.accuracy == {task: {0: 0.61, 1: 0.63} for task in TASKS}
    assert known.loading == {0: 0.1, 1: 0.3}


def test_a_catalog_of_variants_says_what_it_serves_from_where(registry):
    catalog = load_variants(registry, "champion")
    small, large = catalog.variants
    assert catalog.folders == {small.folder, large.folder} and catalog.device == "a device"
    assert catalog.pointers == {"pliant-tokens-variant-small": 1, "pliant-tokens-variant-large": 1}
    assert catalog.planned_by == {} and catalog.image_size == small.image_size
    assert replace(catalog, variants=(replace(small, image_size=99), large)).image_size == 99
    assert catalog.described() == {
        "variants": [
            {
                "name": variant.name,
                "version": 1,
                "digest": variant.digest,
                "loading": variant.loading,
                "device": "a device",
                "precision": None,
            }
            for variant in (small, large)
        ]
    }
    assert catalog.tasks_described() == {
        name: {
            "name": name,
            "classes": classes,
            "version": None,
            "digest": None,
            "accuracy": {"small": 0.61, "large": 0.63},
        }
        for name, classes in TASKS.items()
    }
    origins = catalog.origins
    assert set(origins) == {(task, one.digest) for task in TASKS for one in (small, large)}
    origin = origins["digits", large.digest]
    assert (origin.classes, origin.versions, origin.variant) == (("zero", "one", "two"), {"variant": 1}, "large")


def test_the_same_variants_serve_the_same_and_a_newer_one_or_another_kind_does_not(registry):
    first = load_variants(registry, "champion")
    assert first.serves_as(load_variants(registry, "champion"))
    assert not first.serves_as("another kind")
    registry.publish("pliant-tokens-variant-small", variant("small", 1))
    assert not first.serves_as(load_variants(registry, "champion"))


def test_a_task_that_one_variant_lacks_is_not_served(registry):
    some = variant("small", 1)
    registry.publish("pliant-tokens-variant-small", replace(some, tasks={"digits": some.tasks["digits"]}))
    assert list(load_variants(registry, "champion").tasks_described()) == ["digits"]


def other_classes():
    return tiny_variant("small", {**TASKS, "digits": ["one", "two"]}, "a device", 1)


@pytest.mark.parametrize(
    ("odd", "error", "sentence"),
    [
        (variant("small", 1, device="another"), InputError, "must be the one that"),
        (variant("small", 1, tasks={}), InputError, "variants is without a task in common"),
        (variant("tiny", 1), ArtifactError, "holds a variant that calls itself tiny"),
        (other_classes(), InputError, "classes of task digits in variant"),
    ],
)
def test_variants_that_cannot_stand_in_for_each_other_are_refused(registry, odd, error, sentence):
    registry.publish("pliant-tokens-variant-small", odd)
    with pytest.raises(error, match=sentence):
        load_variants(registry, "champion")


def test_an_error_for_missing_variants_names_the_command_that_makes_them(tmp_path):
    with pytest.raises(RegistryError, match="run `pliant train tokens --variants` first"):
        load_variants(FolderRegistry(tmp_path), "champion")


@pytest.fixture
def model(registry):
    catalog = load_variants(registry, "champion")
    return build(VariantsBuild(tuple((one.folder, one.digest) for one in catalog.variants), PLAN))


def outputs_of(name: str, depth: int, images):
    made = variant(name, depth)
    runtime = TokensRuntime(made.backbone, name, made.adapters(name))
    return runtime.run(0, [Payload("shapes", image) for image in images]).probabilities


def test_a_load_puts_another_variant_in_the_place_of_the_first(registry, model):
    small, large = (one.digest for one in load_variants(registry, "champion").variants)
    images = random_images(2)
    for number, digest, (name, depth) in ((0, small, ("small", 1)), (1, large, ("large", 3)), (0, small, ("small", 1))):
        model.load(number)
        outputs, seconds = model.run(number, [("shapes", image) for image in images])
        assert seconds > 0
        assert [output[:2] for output in outputs] == [("shapes", digest)] * 2
        np.testing.assert_allclose([row for *_, row in outputs], outputs_of(name, depth, images), rtol=1e-5)


def test_a_launch_for_a_variant_that_is_not_loaded_is_answered_by_it_all_the_same(registry, model):
    large = load_variants(registry, "champion").variants[1].digest
    assert model.run(1, [("digits", random_images(1)[0])])[0][0][1] == large


def test_a_variant_that_is_not_there_or_was_altered_is_refused(registry, model, tmp_path):
    with pytest.raises(InputError, match="variant is 2, but must be one of 0 to 1"):
        model.load(2)
    file = tmp_path / "pliant-tokens-variant-large" / "1" / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DigestError):
        model.load(1)
    assert model.run(0, [("digits", random_images(1)[0])])[0]


def test_an_image_of_another_size_is_made_to_fit(model):
    large = random_images(1)[0].repeat(2, axis=0).repeat(2, axis=1)
    assert model.run(0, [("digits", large)])[0]
