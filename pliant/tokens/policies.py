"""All policies of the tokens system by name, ours and the baselines, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pliant.errors import InputError
from pliant.tokens.adaptive import ATTAINMENT, AdaptiveConfig, AdaptivePolicy
from pliant.tokens.batched import BatchedPolicy, Chooser, FixedChooser, InfaasChooser
from pliant.tokens.otas import OtasChooser, OtasConfig
from pliant.tokens.points import FIRST_POINT
from pliant.tokens.scheduler import Knowledge, Options, Policy, TokensScheduler
from pliant.tokens.slackfit import SlackFitPolicy


def published(settings: Sequence[int]) -> Sequence[int]:
    """Return the gammas of these settings, which is what OTAS has."""
    return [setting for setting in settings if setting < FIRST_POINT]


def offered(settings: Sequence[int]) -> Sequence[int]:
    """Return the operating points, gamma 0 and the gammas above it; of an older profile, without points, all settings."""
    return settings if max(settings) < FIRST_POINT else [setting for setting in settings if setting >= 0]


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy that can be chosen by its name."""

    summary: str
    make: Callable[[Knowledge, int, int | None], Policy]  # of knowledge, workers, and the gamma to keep to, if any
    gamma: int | None = None  # that it keeps to, unless another one is given
    allows: Callable[[int], bool] = lambda _: False  # whether it can be given this gamma to keep to
    sees: Callable[[Sequence[int]], Sequence[int]] = offered  # which of a profile's settings, unless it keeps to one
    variants: bool = False  # whether it switches between models of several sizes: settings are numbers of variants
    served: bool = True  # whether a service can follow it


def _batched(chooser: Callable[[Knowledge, int], Chooser]) -> Callable[[Knowledge, int, int | None], Policy]:
    return lambda knowledge, workers, _gamma: BatchedPolicy(knowledge, chooser(knowledge, workers))


def _adaptive(config: AdaptiveConfig) -> Callable[[Knowledge, int, int | None], Policy]:
    return lambda knowledge, _workers, gamma: AdaptivePolicy(knowledge, config, None if gamma is None else (gamma,))


def _otas(config: OtasConfig) -> Callable[[Knowledge, int, int | None], Policy]:
    return _batched(lambda knowledge, workers: OtasChooser(knowledge, workers, config))


def _fixed(knowledge: Knowledge, _workers: int, gamma: int | None) -> Policy:
    assert gamma is not None, "there is always one to keep to"
    return BatchedPolicy(knowledge, FixedChooser(gamma))


CHOICES = {
    "default": Choice(
        "prices device time, plans over all that waits; with a gamma: that gamma alone, everything else the same",
        _adaptive(AdaptiveConfig()),
        allows=lambda _: True,
    ),
    "attainment": Choice(
        "the default for attainment: as many answers in time as can be, then utility x accuracy",
        _adaptive(ATTAINMENT),
        allows=lambda _: True,
    ),
    "otas": Choice("token adaptation as published (OTAS, Algorithms 1, 2 and 3)", _otas(OtasConfig()), sees=published),
    "otas-at-once": Choice(
        "the same without its two seconds of settling", _otas(OtasConfig(settling=0.0)), sees=published
    ),
    "slackfit": Choice(
        "gamma and batch size by the slack of the earliest deadline (SlackFit, SuperServe)",
        lambda knowledge, _workers, _gamma: SlackFitPolicy(knowledge),
    ),
    "pets": Choice("gamma 0 always (PetS)", _fixed, 0, lambda gamma: gamma == 0),
    "infaas": Choice(
        "several backbones, switched by load (INFaaS)", _batched(InfaasChooser), variants=True, served=False
    ),
    "tome": Choice(
        "one fixed gamma below 0 (ToMe), by default -15", _fixed, -15, lambda gamma: gamma < 0, served=False
    ),
    "vpt": Choice("one fixed gamma above 0 (VPT), by default 8", _fixed, 8, lambda gamma: gamma > 0, served=False),
}

POLICIES = {name: choice.summary for name, choice in CHOICES.items()}

SERVED = {name: choice.summary for name, choice in CHOICES.items() if choice.served}
"""The policies that a service can follow; the others are baselines of simulator and benchmarks."""


def make(
    policy: str, knowledge: Knowledge, workers: int = 1, gamma: int | None = None, options: Options | None = None
) -> TokensScheduler:
    """Return a new scheduler with this policy. With `gamma` it keeps to that setting, where the policy allows it.

    For a policy that switches between variants the settings of `knowledge` are their numbers (see scheduler.py). Raises
    `InputError` for an unknown policy, and for a gamma that the policy or the profile does not have.
    """
    if policy not in CHOICES:
        raise InputError("policy", repr(policy), f"one of {', '.join(CHOICES)}")
    choice = CHOICES[policy]
    if gamma is not None and not choice.allows(gamma):
        raise InputError("gamma", gamma, f"left out, or one that fits the policy {policy}: {choice.summary}")
    gamma, profiled = choice.gamma if gamma is None else gamma, knowledge.latency.settings
    if gamma is not None and gamma not in profiled:
        raise InputError("gamma", gamma, f"one of {profiled}")

    def seen(known: Knowledge) -> Knowledge:
        return known if gamma is not None else known.only(choice.sees(known.latency.settings))

    return TokensScheduler(choice.make(seen(knowledge), workers, gamma), workers, options, seen)
