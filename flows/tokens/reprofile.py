"""`pliant profile tokens`: measure the champion on the device at hand and publish that profile as the new champion.

For a machine of another class than the one that trained: the service refuses a profile measured elsewhere.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from flows import settings
from flows.champions import fetch
from flows.device import check_replaces
from flows.release import open_registry, publish_champion
from flows.tokens.champions import champion_models
from flows.tokens.config import TokensFlowConfig
from flows.tokens.publish import profile_package
from flows.tokens.stages import derive_rule, served_precision
from pliant.device import device_class, threads
from pliant.errors import RegistryError
from pliant.progress import Progress
from pliant.tokens.artifact import Profile
from pliant.tokens.runtime import Execution, TokensRuntime
from profiling.tokens import latency
from registry.names import TOKENS_PROFILE
from registry.store import FolderStore


def reprofile(device: str, thread_count: int, progress: Progress, other_device: bool = False) -> int:
    """Print the table and return the version published. Needs a champion backbone and tasks, but no profile.

    Raises `DeviceError` for another class of device than the champion's profile is of, unless `other_device` is set.
    """
    project = settings.read()
    registry = open_registry(project, "tokens")
    backbone, digest, tasks = champion_models(registry)
    if not tasks:
        raise RegistryError("the registry holds no task for the champion backbone: run `pliant train tokens` first")
    config = TokensFlowConfig(device=device, threads=thread_count)
    with threads(thread_count):
        here = device_class(config.device)
        if registry.version(TOKENS_PROFILE) is not None:
            check_replaces("tokens", here, fetch(registry, Profile, TOKENS_PROFILE)[0].device, other_device)
        precision, reason = served_precision(config.arithmetic, backbone, tasks, config.device)
        tasks = [task.served_in(precision) for task in tasks]
        runtime = TokensRuntime(backbone, digest, tasks, config.device, Execution(precision=precision))
        names = [task.name for task in tasks]
        measured = latency.profile(runtime, names, backbone.image_size, config.latency, config.device, progress)
    rule = derive_rule(measured.latency, tasks, config.reference.urgent[0])
    profile = Profile(digest, here, measured.latency, measured.spread, measured.memory, rule, precision)
    key, store = "tokens/profile-here", FolderStore(project.store)
    store.save(key, profile)
    version = publish_champion(registry, "tokens profile", profile_package(profile, store.path(key)))
    _show(profile, version, reason)
    return version


def _show(profile: Profile, version: int, reason: str) -> None:
    table = Table("gamma", *(f"batch {b}" for b in profile.latency.batches), title=f"milliseconds on {profile.device}")
    for gamma, row in zip(profile.latency.settings, profile.latency.seconds, strict=True):
        table.add_row(f"{gamma:+d}", *(f"{1000 * s:.2f}" for s in row))
    console = Console()
    console.print(table)
    console.print(f"{reason}.")
    console.print(f"Published as {TOKENS_PROFILE} version {version}, now champion.")
