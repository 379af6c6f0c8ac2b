"""Settings of the packing service have documented defaults, and are refused by name outside their bounds."""

from __future__ import annotations

from dataclasses import fields

import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.policy import SERVED
from pliant.serving.packing.settings import SETTINGS, PackingSettings
from pliant.serving.settings import Settings


def test_who_sets_nothing_gets_the_documented_defaults():
    own = [field.name for field in fields(PackingSettings)][len(fields(Settings)) :]
    assert {name: getattr(SETTINGS(), name) for name in ("experiment", *own)} == {
        "experiment": "pliant-packing",
        "engine": "pliant",
        "policy": "default",
        "processes": 1,
        "predict_device": "",
        "max_texts": 256,
        "slo_ttft_ms": 0.0,
        "slo_tpot_ms": 0.0,
        "strict_fields": False,
        "predict_limit": 0.05,
        "stream_limit": 30.0,
        "observe": False,
        "observed_bytes": 67_108_864,
    }
    assert SETTINGS().system == "packing"


@pytest.mark.parametrize(
    "name", ["max_texts", "predict_limit", "stream_limit", "observed_bytes", "processes", "threads"]
)
def test_numbers_must_be_above_zero_and_finite(name):
    assert getattr(PackingSettings(**{name: 1}), name) == 1
    for value in (0, -1, float("inf")):
        with pytest.raises(InputError, match=f"PLIANT_{name.upper()} is {value}, but must be positive and finite"):
            PackingSettings(**{name: value})


def test_the_policy_is_one_of_those_that_are_known():
    for policy in SERVED:
        assert PackingSettings(policy=policy).policy == policy
    with pytest.raises(InputError, match="PLIANT_POLICY is 'other', but must be one of default"):
        PackingSettings(policy="other")


@pytest.mark.parametrize("more", [{}, {"engine": "vllm", "device": "cuda:0,cuda:1"}])
def test_vllm_alone_shares_a_model_and_on_one_kind_of_device(more):
    assert PackingSettings(processes=2, engine="vllm", device="cuda").processes == 2
    with pytest.raises(InputError, match="PLIANT_PROCESSES is 2, but must be 1"):
        PackingSettings(processes=2, **more)


def test_no_process_stands_by_for_packing():
    assert PackingSettings(spare=0).spare == 0
    with pytest.raises(InputError) as refused:
        PackingSettings(spare=1)
    assert str(refused.value) == (
        "PLIANT_SPARE is 1, but must be 0 for packing: pages fill an engine's memory, so a second one has no room, and "
        "texts go on after a restart"
    )
