"""`pliant profile tokens`: measure the champion on the device at hand and publish that profile as the new champion."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.champions import fetch
from pliant.flows.config import configured_class
from pliant.flows.release import open_registry
from pliant.flows.reprofile import Profiled, check_replaces, publish
from pliant.flows.tokens.champions import champion_models
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.publish import profile_package
from pliant.flows.tokens.stages import measure
from pliant.progress import Progress
from pliant.registry.names import TOKENS_PROFILE
from pliant.tokens.artifact import Profile


def reprofile(device: str, thread_count: int, progress: Progress, other_device: bool = False) -> int:
    """Print the table and return the version published. Needs a champion backbone and tasks, but no profile.

    Raises `DeviceError` for another class of device than the champion's profile is of, unless `other_device` is set.
    """
    registry = open_registry(settings.read(), "tokens")
    backbone, digest, tasks = champion_models(registry)
    if not tasks:
        raise RegistryError("the registry holds no task for the champion backbone: run `pliant train tokens` first")
    config = TokensFlowConfig(device=device, threads=thread_count)
    if registry.version(TOKENS_PROFILE) is not None:
        former = fetch(registry, Profile, TOKENS_PROFILE)[0]
        check_replaces("tokens", configured_class(config), former.device, other_device)
        gammas = tuple(number for number in former.latency.settings if number not in former.points)
        config = replace(config, latency=replace(config.latency, gammas=gammas))  # whose accuracies the tasks hold
    profile, reason = measure(config, backbone, digest, tasks, progress)
    rows = [
        {"gamma": gamma, **{f"batch {b}": 1000 * s for b, s in zip(profile.latency.batches, seconds, strict=True)}}
        for gamma, seconds in zip(profile.latency.settings, profile.latency.seconds, strict=True)
    ]
    package, title = partial(profile_package, profile), f"milliseconds on {profile.device}"
    return publish("tokens", "profile", Profiled(profile, package, title, rows, [f"{reason}."]))
