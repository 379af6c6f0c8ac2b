"""A build plan names the function that makes its model, and imports it only when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from pliant.serving.workers.devices import BuildPlan, DevicePlan, alone


@dataclass(frozen=True, slots=True)
class Plan(BuildPlan):
    BUILDER: ClassVar[str] = f"{__name__}:make"

    plan: DevicePlan


def on(device: str, named: str = "") -> Plan:
    return Plan(DevicePlan(device, 2, "a GPU", (1,), named))


@pytest.mark.parametrize(
    ("device", "inherited", "seen_as", "visible"),
    [
        ("cuda:1", {}, "cuda:0", "1"),
        ("cuda", {}, "cuda", "0"),
        ("cuda:1", {"CUDA_VISIBLE_DEVICES": "6, 7"}, "cuda:0", "7"),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}, "cuda", "GPU-a"),
        ("cpu", {"CUDA_VISIBLE_DEVICES": "0"}, "cpu", ""),
    ],
)
def test_a_process_sees_its_own_device_alone_and_people_read_the_name_that_they_gave(
    device, inherited, seen_as, visible
):
    build, variables = alone(on(device), inherited)
    assert variables == {"CUDA_VISIBLE_DEVICES": visible}
    assert (build.plan.device, build.plan.name) == (seen_as, device)
