"""What the tokens device process is built with follows from settings and catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from serving.tokens.assembly import build_plan, make_scheduler
from serving.tokens.catalog import load_catalog
from serving.tokens.settings import TokensSettings

SETTINGS = TokensSettings(device="cpu", threads=2)


def test_the_device_must_be_of_the_class_that_was_profiled_unless_any_will_do(registry):
    catalog = load_catalog(registry, "champion")
    build = build_plan(SETTINGS, catalog)
    assert (build.plan.device, build.plan.threads, build.plan.profiled_on) == ("cpu", 2, "a device")
    assert build_plan(replace(SETTINGS, any_profile=True), catalog).plan.profiled_on is None


def test_it_holds_the_backbone_all_tasks_and_the_gammas_that_the_policy_uses(registry):
    catalog = load_catalog(registry, "champion")
    build = build_plan(SETTINGS, catalog)
    assert (build.folder, build.digest) == (catalog.folder, catalog.backbone_digest)
    assert [served.task.name for served in build.tasks] == ["digits"]
    assert build.gammas == tuple(catalog.profile.latency.settings)
    assert build_plan(replace(SETTINGS, policy="vpt", gamma=2), catalog).gammas == (2,)
    with pytest.raises(InputError, match="PLIANT_GAMMA is 3, but must be one of the profiled"):
        build_plan(replace(SETTINGS, policy="vpt", gamma=3), catalog)


def test_the_scheduler_drops_what_is_beyond_the_most_that_may_wait(registry):
    knowledge = load_catalog(registry, "champion").knowledge()
    scheduler = make_scheduler(replace(SETTINGS, max_waiting=5, margin=0.25), knowledge)
    assert scheduler.waiting == 0
