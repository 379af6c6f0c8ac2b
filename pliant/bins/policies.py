"""The ways to serve streams by name: ours, and what one would otherwise run, so that one word picks one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import InputError

POLICIES = {
    "default": "every runtime of the plan, and less work first as far as the time for an answer allows",
    "first-come": "the dynamic runtime alone, first come, first served; everything else the same",
}


def make(policy: str, bins: Sequence[Bins], config: Config) -> BinsScheduler:
    """A fresh scheduler of these streams. Raises `InputError` for an unknown policy, or one that their placement excludes.

    Under "first-come" batches are made where the profile says that they pay, and requests that would be late are dropped
    on the same conditions as under "default".
    """
    if policy not in POLICIES:
        raise InputError("policy", repr(policy), f"one of {', '.join(POLICIES)}")
    if policy == "default":
        return BinsScheduler(knowledge_of(bins), config)
    if (placement := bins[0].placement) != "shared":
        raise InputError("policy", policy, f"default, as the streams' placement is {placement}")
    return BinsScheduler(knowledge_of(bins, "dynamic"), replace(config, patience=0.0))
