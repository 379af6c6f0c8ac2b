"""An engine is built in its process on the device that it was profiled on, or not at all."""

from __future__ import annotations

import pytest

from pliant.errors import DeviceError, DigestError
from pliant.packing.scheduling.plan import rules_of
from registry import codec
from serving.packing.engine.device import build
from serving.packing.messages import EngineBuild
from serving.workers.device_plan import DevicePlan
from tests.fixtures.packing.published import generator, packing


@pytest.fixture
def spec(tmp_path):
    def spec(profiled_on: str | None = None, digest: str = "") -> EngineBuild:
        actual, planned = codec.save(generator(), tmp_path / "generator"), packing("g", "p")
        rules = rules_of(planned, 64)
        plan = DevicePlan("cpu", 1, profiled_on, ())
        return EngineBuild(tmp_path / "generator", digest or actual, planned.memory, rules, plan, None)

    return spec


def test_another_class_of_device_than_the_profiles_is_refused(spec):
    with pytest.raises(DeviceError, match="the profile was measured on a large GPU, but this device is"):
        build(spec("a large GPU"), lambda _news: None)


def test_another_generator_than_was_published_is_refused(spec):
    with pytest.raises(DigestError):
        build(spec(digest="0" * 64), lambda _news: None)
