"""What the tokens device process is built with follows from settings and catalog."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError
from pliant.protocol import Arrived, Changed, Request
from pliant.serving.tokens.assembly import TokensSystem, build_plan
from pliant.serving.tokens.catalog import load_catalog
from pliant.serving.tokens.settings import TokensSettings
from pliant.tokens.policies import make
from tests.fixtures.tokens.samples import POINTS, profile_with_points, tiny_task, with_points

SETTINGS = TokensSettings(device="cpu", threads=2)


def test_the_device_must_be_of_the_class_that_was_profiled_unless_any_will_do(registry):
    catalog = load_catalog(registry, "champion")
    build = build_plan(SETTINGS, catalog, "cpu")
    assert (build.plan.device, build.plan.threads, build.plan.profiled_on) == ("cpu", 2, "a device")
    assert build_plan(SETTINGS.replace(any_profile=True), catalog, "cpu").plan.profiled_on is None


def test_it_holds_the_backbone_all_tasks_and_the_gammas_that_the_policy_uses(registry):
    catalog = load_catalog(registry, "champion")
    build = build_plan(SETTINGS, catalog, "cpu")
    assert (build.folder, build.digest) == (catalog.backbone.folder, catalog.backbone.digest)
    assert [served.task.name for served in build.tasks] == ["digits"]
    assert build.gammas == tuple(catalog.profile.latency.settings)
    assert build_plan(SETTINGS.replace(gamma=2), catalog, "cpu").gammas == (2,)
    with pytest.raises(InputError, match="PLIANT_GAMMA is 3, but must be one of the profiled"):
        build_plan(SETTINGS.replace(gamma=3), catalog, "cpu")


def test_points_of_the_profile_reach_the_device_and_a_task_that_lacks_them_is_refused(registry):
    digest = load_catalog(registry, "champion").backbone.digest
    registry.publish("pliant-tokens-profile", profile_with_points(digest, "a device"))
    with pytest.raises(InputError, match=r"accuracy of task digits is without gammas \[101, 102\]"):
        load_catalog(registry, "champion")
    registry.publish("pliant-tokens-task-digits", with_points(tiny_task("digits", ["zero", "one", "two"], digest)))
    catalog = load_catalog(registry, "champion")
    build = build_plan(SETTINGS, catalog, "cpu")
    assert (build.gammas, build.points) == ((0, 2, 4, 8, 101, 102), POINTS)
    assert build_plan(SETTINGS.replace(policy="otas"), catalog, "cpu").points == {}
    assert build_plan(SETTINGS.replace(gamma=101), catalog, "cpu").points == {101: POINTS[101]}
    assert catalog.tasks_described()["digits"]["accuracy"]["101"] == 0.75
    moved = replace(catalog.tasks["digits"].task, points={**POINTS, 102: POINTS[101]})
    with pytest.raises(InputError, match=r"operating points of task digits is \[102\]"):
        catalog.with_task(replace(catalog.tasks["digits"], task=moved))


def test_every_device_has_a_process_of_its_own_and_the_scheduler_counts_them_all(registry):
    settings = SETTINGS.replace(device="cuda:0, cuda:1", policy="otas", max_waiting=5)
    catalog = load_catalog(registry, "champion")
    plan = TokensSystem(settings).blueprint(catalog)
    assert [build.plan.device for build in plan.builds] == ["cuda:0", "cuda:1"]
    assert plan.facts["devices"] == ["cuda:0", "cuda:1"], "the journal says which device a launch's worker is"
    scheduler = plan.make_scheduler()
    scheduler.handle(Changed(plan.facts), 0.0)
    launches = [
        action for number in range(2) for action in scheduler.handle(Arrived(Request(number, 0.0, 9.0, "digits")), 0.0)
    ]
    assert [launch.worker for launch in launches] == [0, 1]
    with pytest.raises(InputError, match="devices is cuda:0, cuda:1, but must be as many as the scheduler has, 1"):
        make("default", catalog.knowledge()).handle(Changed(plan.facts), 0.0)
