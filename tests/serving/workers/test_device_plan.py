"""A build plan names the function that makes its model, and imports it only when it is called."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import ClassVar

from serving.workers.device_plan import BuildPlan, DevicePlan


def make(plan, *arguments):
    return plan, arguments


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    BUILDER: ClassVar[str] = f"{__name__}:make"

    plan: DevicePlan


@dataclass(frozen=True, slots=True)
class Missing(BuildPlan):
    BUILDER: ClassVar[str] = "a.module.that.is.not.here:make"


def test_a_plan_arrives_in_another_process_as_it_was_and_makes_its_model_there():
    plan = Plan(DevicePlan("cuda:1", 2, "a GPU", (1, 8)))
    arrived = pickle.loads(pickle.dumps(plan))
    assert arrived == plan
    assert arrived("deliver", 3) == (plan, ("deliver", 3)) and plan() == (plan, ())
    assert pickle.loads(pickle.dumps(Missing())) == Missing(), "nothing is imported before it is called"
