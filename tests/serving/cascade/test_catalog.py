"""What the cascade service takes from the registry, and whether two catalogs serve the same."""

from __future__ import annotations

import pytest

from pliant.errors import ArtifactError, DeviceError, RegistryError
from pliant.registry.names import CASCADE_TASK, cascade_level
from pliant.serving.cascade.catalog import load_catalog
from tests.fixtures.cascade.published import DEVICE, LEVELS, publish_tiny, tiny_cascade, tiny_classifier


def test_a_catalog_knows_versions_digests_folders_and_tokenizers_of_all_levels(registry):
    digests = publish_tiny(registry, "shades", seed=1)
    catalog = load_catalog(registry, "champion")
    assert list(catalog.tasks) == ["colours", "shades"]
    assert [cascade.task for cascade in catalog.cascades] == ["colours", "shades"]
    served = catalog.tasks["shades"]
    assert [level.digest for level in served.levels] + [served.digest] == digests
    assert (served.version, [level.version for level in served.levels]) == (1, [1, 1])
    assert [level.artifact.tokenizer for level in served.levels] == [
        tiny_classifier("shades", level).tokenizer for level in LEVELS
    ]
    assert len(catalog.folders) == 4 and all((folder / "tensors.safetensors").is_file() for folder in catalog.folders)
    assert catalog.device == DEVICE
    names = [*(cascade_level(task, level) for task in catalog.tasks for level in LEVELS)]
    assert dict(catalog.pointers) == dict.fromkeys([*names, CASCADE_TASK + "colours", CASCADE_TASK + "shades"], 1)


def test_of_a_running_catalog_only_what_moved_is_fetched(registry):
    first = load_catalog(registry, "champion")
    fetched = len(registry.fetched)
    assert load_catalog(registry, "champion", first).tasks == first.tasks and len(registry.fetched) == fetched
    registry.publish(cascade_level("colours", "large"), tiny_classifier("colours", "large"))
    load_catalog(registry, "champion", first)
    assert registry.fetched[fetched:] == [f"{cascade_level('colours', 'large')}/2"]


def test_what_does_not_fit_together_is_refused_with_what_to_do(registry):
    former = load_catalog(registry, "champion").tasks["colours"].levels[1].digest
    with pytest.raises(RegistryError, match="under the alias nightly: train a task first"):
        load_catalog(registry, "nightly")
    large = cascade_level("colours", "large")
    version = registry.champions.pop(large)
    with pytest.raises(
        ArtifactError, match=f"task colours needs {large}, which has no version under the alias champion"
    ):
        load_catalog(registry, "champion")
    registry.champions[large] = version
    classifier = tiny_classifier("colours", "large", seed=2)
    digest = registry.publish(large, classifier)
    planned = load_catalog_error(registry)
    assert planned == (
        f"task colours was planned with classifier {former[:12]}, but champion of {large} (version 2) is "
        f"{digest[:12]}: promote the plan that was made with it"
    )


def test_tasks_of_two_classes_of_device_do_not_fit_together(registry):
    publish_tiny(registry, "shades", device="a large GPU")
    with pytest.raises(DeviceError, match="profiled on 2 classes of device"):
        _ = load_catalog(registry, "champion").device


def load_catalog_error(registry) -> str:
    with pytest.raises(ArtifactError) as caught:
        load_catalog(registry, "champion")
    return str(caught.value)


def test_a_classifier_of_other_classes_than_its_task_is_refused(registry):
    digests = [
        registry.publish(cascade_level("warm", level), tiny_classifier("warm", level, classes=("yes", "no")))
        for level in LEVELS
    ]
    registry.publish(CASCADE_TASK + "warm", tiny_cascade("warm", digests))
    name = cascade_level("warm", "small")
    assert load_catalog_error(registry) == f"{name} has other classes than task warm: train them on the same data"
