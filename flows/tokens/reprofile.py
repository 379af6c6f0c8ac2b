"""`pliant profile tokens`: measure the champion on the device at hand and publish that profile as the new champion."""

from __future__ import annotations

from functools import partial

from rich.table import Table

from flows import settings
from flows.champions import fetch
from flows.device import check_replaces, configured_class
from flows.release import open_registry
from flows.reprofile import Profiled, publish
from flows.tokens.champions import champion_models
from flows.tokens.config import TokensFlowConfig
from flows.tokens.publish import profile_package
from flows.tokens.stages import measure
from pliant.errors import RegistryError
from pliant.progress import Progress
from pliant.tokens.artifact import Profile
from registry.names import TOKENS_PROFILE


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
        former = fetch(registry, Profile, TOKENS_PROFILE)[0].device
        check_replaces("tokens", configured_class(config), former, other_device)
    profile, reason = measure(config, backbone, digest, tasks, progress)
    table = Table("gamma", *(f"batch {b}" for b in profile.latency.batches), title=f"milliseconds on {profile.device}")
    for gamma, row in zip(profile.latency.settings, profile.latency.seconds, strict=True):
        table.add_row(f"{gamma:+d}", *(f"{1000 * s:.2f}" for s in row))
    return publish("tokens", "profile", Profiled(profile, partial(profile_package, profile), table, [f"{reason}."]))
