"""The policies of the bins system by name: ours, and a plain queue to compare it with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import InputError


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy that can be chosen by its name."""

    summary: str
    runtimes: str  # that it may use of the streams' plans: see `RUNTIMES`
    needs_shared: bool  # whether every device must hold every runtime
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the scheduler's configuration


CHOICES = {
    "default": Choice(
        "every runtime of the plan, and less work first as far as the time for an answer allows",
        "all",
        needs_shared=False,
    ),
    "first-come": Choice(
        "the dynamic runtime alone, first come, first served; everything else the same",
        "dynamic",
        needs_shared=True,
        changes={"patience": 0.0},
    ),
}

POLICIES = {name: choice.summary for name, choice in CHOICES.items()}


def choice_of(policy: str, placement: str) -> Choice:
    """Return the policy of this name. Raises `InputError` for an unknown one, or one that the placement excludes."""
    if policy not in CHOICES:
        raise InputError("policy", repr(policy), f"one of {', '.join(CHOICES)}")
    choice = CHOICES[policy]
    if choice.needs_shared and placement != "shared":
        raise InputError("policy", policy, f"default, as the streams' placement is {placement}")
    return choice


def make(policy: str, bins: Sequence[Bins], config: Config) -> BinsScheduler:
    """Return a new scheduler of these streams.

    Under each policy batches are formed where the profile says that they pay, and late requests are put back and
    dropped as under "default". Raises `InputError` for an unknown policy, or one that the streams' placement excludes.
    """
    choice = choice_of(policy, bins[0].placement)
    return BinsScheduler(knowledge_of(bins, choice.runtimes), replace(config, **choice.changes))
