"""Writes on versions and releases, for people, whether they are served: since when, until when, and what came instead.

These sentences and notes follow the one write that releases, like the models' own aliases, and can be written again at
any time. They name no versions that anything is loaded by.
"""

from __future__ import annotations

from typing import Any

from pliant.registry.descriptions import no_longer_served, restated, says_left, says_served, served
from pliant.registry.mlflow_find import find_version
from pliant.registry.names import release as release_model
from pliant.registry.releases import (
    CONFIGURATION,
    LEFT,
    REASON,
    SINCE,
    STATE,
    RegistryRelease,
    configurations_text,
    now_text,
)


def take_up(client: Any, name: str, number: int, instead_of: int | None, release: int | None) -> None:
    """Say of version `number` that it is served from now on, and of the version before it that it is so no more.

    `release`: the number of the first release that serves it, if there is one.
    """
    if instead_of is not None:
        leave(client, name, instead_of, number, release)
    _say(client, name, number, served(now_text(), release))


def confirm(client: Any, name: str, number: int, release: int) -> None:
    """Say of version `number` that it is served where it does not: it was left out, or is of an earlier Pliant."""
    version = find_version(client, name, number)
    said = (version.description or "") if version is not None else ""
    if version is not None and not says_served(said):
        again = says_left(said)
        _say(client, name, number, served(now_text(), release if again else None, or_earlier=not again))


def leave(client: Any, name: str, number: int, instead: int | None, release: int | None) -> None:
    """Say of version `number` that it is not served any more, unless it says so already."""
    version = find_version(client, name, number)
    if version is not None and (instead is not None or says_served(version.description or "")):
        _say(client, name, number, no_longer_served(now_text(), instead, release))


def note(client: Any, release: RegistryRelease, state: str, reason: str) -> None:
    """Write on a release in which state it is since now, and why. An empty state is that of the champion.

    The state is written last, so that where it stands its reason does, too.
    """
    for tag, value in ((REASON, reason), (SINCE, now_text()), (STATE, state)):
        client.set_model_version_tag(release_model(release.system), str(release.number), tag, value)


def note_left(client: Any, left: RegistryRelease | None, present: RegistryRelease) -> None:
    """Note on the release that `present` replaced that it is served no more, unless it is noted already."""
    if left is not None and left.number == present.former and not left.state:
        note(client, left, LEFT, f"release {present.number} took its place")


def note_configurations(client: Any, release: RegistryRelease) -> None:
    """Write on a release which configurations made its tasks, where they are others than before."""
    text = configurations_text(release.configurations)
    client.set_model_version_tag(release_model(release.system), str(release.number), CONFIGURATION, text)


def _say(client: Any, name: str, number: int, sentence: str) -> None:
    version = find_version(client, name, number)
    if version is not None:
        client.update_model_version(name, str(number), restated(version.description or "", sentence))
