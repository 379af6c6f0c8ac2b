"""The policies of the bins system by name: ours, and a plain queue to compare it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import InputError


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy that can be chosen by its name."""

    summary: str
    runtimes: Callable[[Sequence[Bins]], Knowledge]  # that it may use of the streams' plans
    reorders: bool  # whether a request with less work may go before an earlier one
    needs_shared: bool  # whether every device must hold every runtime


CHOICES = {
    "default": Choice(
        "every runtime of the plan, and less work first as far as the time for an answer allows",
        knowledge_of,
        reorders=True,
        needs_shared=False,
    ),
    "first-come": Choice(
        "the dynamic runtime alone, first come, first served; everything else the same",
        partial(knowledge_of, runtimes="dynamic"),
        reorders=False,
        needs_shared=True,
    ),
}

POLICIES = {name: choice.summary for name, choice in CHOICES.items()}


def make(policy: str, bins: Sequence[Bins], config: Config) -> BinsScheduler:
    """Return a new scheduler of these streams.

    Under "first-come" batches are formed where the profile says that they pay, and late requests are dropped as under
    "default". Raises `InputError` for an unknown policy, or one that the streams' placement excludes.
    """
    if policy not in CHOICES:
        raise InputError("policy", repr(policy), f"one of {', '.join(CHOICES)}")
    choice = CHOICES[policy]
    if choice.needs_shared and (placement := bins[0].placement) != "shared":
        raise InputError("policy", policy, f"default, as the streams' placement is {placement}")
    return BinsScheduler(choice.runtimes(bins), config if choice.reorders else replace(config, patience=0.0))
