"""What the benchmark of planted changes deploys, and how it judges what became of a change; nothing is started."""

from __future__ import annotations

from math import nan

import pytest
import yaml

from benchmarks.demo.story_load import Mix, Speech
from benchmarks.places import ROOT
from benchmarks.watch import changes
from benchmarks.watch.changes import Course, Plan
from benchmarks.watch.night import deployments
from pliant import systems

PREFECT = ROOT / "prefect.yaml"
BINS = "flows/bins/flow.py:bins"


def test_a_deployment_keeps_its_triggers_and_loses_its_schedule():
    (entry,) = deployments(PREFECT, {BINS: {"overrides": {"streams": ({"data": "docstrings:package"},)}}})[
        "deployments"
    ]
    (shipped,) = [each for each in yaml.safe_load(PREFECT.read_text())["deployments"] if each["entrypoint"] == BINS]
    assert entry["triggers"] == shipped["triggers"] and entry["concurrency_limit"] == shipped["concurrency_limit"]
    assert "schedules" in shipped and "schedules" not in entry
    assert entry["parameters"] == {"overrides": {"streams": [{"data": "docstrings:package"}]}}  # as YAML writes it


@pytest.mark.parametrize("system", systems.names())
def test_each_system_plants_two_changes_and_deploys_what_its_alarms_start(system, tmp_path):
    plan: Plan = systems.system(system).part("benchmarks", "watch.changes").plan(tmp_path)
    assert sum(not planted.known for planted in plan.planted) == 2 and all(each.mix.examples for each in plan.planted)
    kept = deployments(PREFECT, plan.parameters)["deployments"]
    assert len(kept) == len(plan.parameters)
    assert any(entry["name"] == "nightly" and entry["entrypoint"].endswith(plan.first.split("/")[0]) for entry in kept)
    assert any(trigger["name"] == f"{system}-alarm" for entry in kept for trigger in entry.get("triggers", ()))


def test_a_change_that_nothing_answers_is_missed_and_one_that_is_late_too():
    speech = Speech("/", lambda _example, _deadline: {}, lambda _answer, _example: None)
    plan = Plan(speech, Mix("", ()), (), 1.0, {}, "")
    in_time, late, missing = Course("a", served=100.0), Course("b", served=changes.LIMIT + 1), Course("c", served=nan)
    (done, worst, failed), details = changes._targets("bins", [in_time, late], 100, 0, plan)
    assert (done.measured, done.met, worst.met, failed.met) == (1, False, False, True)
    (done, worst, failed), _ = changes._targets("bins", [in_time, missing], 100, 2, plan)
    assert (done.measured, done.met, worst.met, failed.met) == (1, False, False, False)
    (done, worst, _), _ = changes._targets("bins", [in_time], 100, 0, plan)
    assert done.met and worst.met
    assert [course["change"] for course in details["courses"]] == ["a", "b"]


def test_a_change_that_was_known_before_counts_among_all_but_not_among_the_new_ones():
    speech = Speech("/", lambda _example, _deadline: {}, lambda _answer, _example: None)
    plan = Plan(speech, Mix("", ()), (), 1.0, {}, "")
    courses = [Course("a", served=100.0), Course("b", known=True)]
    (done, new, worst, failed), _ = changes._targets("packing", courses, 100, 0, plan)
    assert (done.measured, done.limit, done.met) == (1, 2, False)
    assert (new.measured, new.limit, new.met, worst.met, failed.met) == (1, 1, True, True, True)
