"""What a service takes from the registry, and when a newer catalog needs no new generation."""

from __future__ import annotations

from pliant.registry.names import TOKENS_PREFIX
from pliant.serving.tokens.catalog import load_catalog
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

DIGITS, SHAPES = TOKENS_PREFIX + "task-digits", TOKENS_PREFIX + "task-shapes"
LABELS = ["zero", "one", "two"]


def test_the_same_versions_serve_the_same_and_need_nothing_new(registry):
    first, again = load_catalog(registry, "champion"), load_catalog(registry, "champion")
    assert first.serves_as(again) and again.extends(first)


def test_a_task_that_is_new_or_newer_extends_a_catalog_and_one_that_has_gone_does_not(registry):
    first = load_catalog(registry, "champion")
    registry.publish(SHAPES, tiny_task("shapes", LABELS, first.backbone.digest))
    more = load_catalog(registry, "champion", first)
    registry.publish(DIGITS, tiny_task("digits", LABELS, first.backbone.digest, seed=5))
    newer = load_catalog(registry, "champion", more)
    for former, later in ((first, more), (more, newer)):
        assert later.extends(former) and not later.serves_as(former)
    assert not first.extends(more)


def test_another_backbone_or_profile_extends_nothing(registry):
    first = load_catalog(registry, "champion")
    registry.publish(TOKENS_PREFIX + "profile", tiny_profile(first.backbone.digest, "another device"))
    measured = load_catalog(registry, "champion", first)
    assert not measured.extends(first) and not measured.serves_as(first)
    digest = registry.publish(TOKENS_PREFIX + "backbone", tiny_backbone(seed=3))
    registry.publish(TOKENS_PREFIX + "profile", tiny_profile(digest, "another device"))
    registry.publish(DIGITS, tiny_task("digits", LABELS, digest))
    trained = load_catalog(registry, "champion", measured)
    assert not trained.extends(measured) and not trained.serves_as(measured)
