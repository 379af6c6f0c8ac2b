"""All policies by name: ours and the baselines, behind one contract, so that one word picks one."""

from __future__ import annotations

from pliant.errors import InputError
from pliant.tokens.adaptive import AdaptivePolicy
from pliant.tokens.batched import BatchedPolicy, Chooser
from pliant.tokens.fixed import FixedChooser
from pliant.tokens.infaas import InfaasChooser
from pliant.tokens.otas import OtasChooser, OtasConfig
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options, TokensScheduler

POLICIES = {
    "default": "prices device time, plans over all that waits; with a gamma: that gamma alone, everything else the same",
    "otas": "token adaptation as published (OTAS, Algorithms 1, 2 and 3)",
    "otas-kept": "the same, every plan carried out whole before the next is made",
    "pets": "gamma 0 always (PetS)",
    "infaas": "several backbones, switched by load (INFaaS)",
    "tome": "one fixed gamma below 0 (ToMe), by default -15",
    "vpt": "one fixed gamma above 0 (VPT), by default 8",
}

FIXED = {"pets": 0, "tome": -15, "vpt": 8}


def make(
    policy: str, knowledge: Knowledge, workers: int = 1, gamma: int | None = None, options: Options | None = None
) -> TokensScheduler:
    """A fresh scheduler. Raises `InputError` for an unknown policy, or a gamma that it or the profile does not know.

    For `infaas` the settings of `knowledge` are numbers of variants (see policy.py).
    """
    if policy not in POLICIES:
        raise InputError("policy", repr(policy), f"one of {', '.join(POLICIES)}")
    _check_gamma(policy, gamma)
    if policy != "infaas":
        _check_known(FIXED.get(policy) if gamma is None else gamma, knowledge)
    if policy == "default":
        only = None if gamma is None else (gamma,)
        return TokensScheduler(AdaptivePolicy(knowledge, only=only), workers, options)
    return TokensScheduler(BatchedPolicy(knowledge, _chooser(policy, knowledge, workers, gamma)), workers, options)


def _check_gamma(policy: str, gamma: int | None) -> None:
    if gamma is None:
        return
    fits = {"default": True, "pets": gamma == 0, "tome": gamma < 0, "vpt": gamma > 0}
    if not fits.get(policy, False):
        raise InputError("gamma", gamma, f"left out, or one that fits the policy {policy}: {POLICIES[policy]}")


def _check_known(gamma: int | None, knowledge: Knowledge) -> None:
    known = knowledge.latency.settings
    if gamma is not None and gamma not in known:
        raise InputError("gamma", gamma, f"one of {known}")


def _chooser(policy: str, knowledge: Knowledge, workers: int, gamma: int | None) -> Chooser:
    match policy:
        case "otas" | "otas-kept":
            return OtasChooser(knowledge, workers, OtasConfig(keeps=policy == "otas-kept"))
        case "infaas":
            return InfaasChooser(knowledge, workers)
    return FixedChooser(FIXED[policy] if gamma is None else gamma)
