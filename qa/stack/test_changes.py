"""What the benchmark of planted changes deploys, and how it judges what became of a change; nothing is started."""

from __future__ import annotations

import json
from importlib import import_module
from math import nan

import pytest

from pliant import systems
from pliant.benchmarks.demo.story_load import Mix, Speech
from pliant.flows.watch.deployments import nightly_flows
from qa.stack import changes
from qa.stack.changes import Course, Plan


@pytest.mark.parametrize("system", systems.names())
def test_each_system_plants_two_changes_and_deploys_what_its_alarms_start(system, tmp_path):
    plan: Plan = import_module(f"qa.stack.plans.{system}").plan(tmp_path)
    assert sum(not planted.known for planted in plan.planted) == 2 and all(each.mix.examples for each in plan.planted)
    flows = nightly_flows(system)
    assert set(plan.parameters) == set(flows)
    assert plan.first in [flow.deployment for flow in flows.values()] and any(flow.alarmed for flow in flows.values())
    json.dumps(plan.parameters)  # as they are handed over


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
