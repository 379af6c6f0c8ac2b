"""What was decided of a system's releases: when, by whom, why and from where. Entries are added and never altered.

An entry is a tag of the registered model whose versions are the releases, named by its time: it goes where the registry
goes, and no two writers write the same one. What was taken back stays out until somebody allows it or promotes it by hand:
it is known by the digests of the models in which it differed from what was served in its place.
"""

from __future__ import annotations

import getpass
import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.registry.mlflow_client import find_model
from pliant.registry.names import release as release_model
from pliant.registry.releases import RegistryRelease

if TYPE_CHECKING:
    from pliant.registry.mlflow_store import MlflowRegistry

PREFIX = "pliant.log."
MOST_WHY = 1000  # characters: MLflow's table takes 5,000 of a tag, and digests need the rest
TAKEN_BACK, ALLOWED, PROMOTED, RELEASED = "taken back", "allowed", "promoted", "released"


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. `at`: ISO 8601, UTC; `digests`: of the models in which the release differs from the other one."""

    at: str
    what: str
    release: int
    why: str
    who: str
    where: str
    digests: Mapping[str, str]


def write(
    registry: MlflowRegistry, what: str, release: RegistryRelease, why: str, other: RegistryRelease | None = None
) -> None:
    """Add a decision on a release; `other` is served in its place, or was. Raises `RegistryError`."""
    now = datetime.now(UTC)
    others = other.digests if other is not None else {}
    digests = {name: digest for name, digest in release.digests.items() if others.get(name) != digest}
    who, where = f"{_user()}@{socket.gethostname()}", " ".join([Path(sys.argv[0]).name, *sys.argv[1:3]])
    entry = Decision(now.isoformat(timespec="seconds"), what, release.number, why[:MOST_WHY], who, where, digests)
    with registry.asking(f"the decision on {release.name} could not be written down") as client:
        tag = f"{PREFIX}{now:%Y%m%dT%H%M%S.%f}"
        client.set_registered_model_tag(release_model(release.system), tag, json.dumps(asdict(entry)))


def read(registry: MlflowRegistry, system: str) -> list[Decision]:
    """Return all decisions on a system's releases, the oldest first. Raises `RegistryError`."""
    with registry.asking(f"the decisions on {system} could not be read") as client:
        model = find_model(client, release_model(system))
    tags = sorted(model.tags.items()) if model is not None else []
    return [Decision(**json.loads(value)) for name, value in tags if name.startswith(PREFIX)]


def behind(registry: MlflowRegistry, live: RegistryRelease) -> Decision | None:
    """Return the decision by which a release is served; None where none was written down. Raises `RegistryError`."""
    moves = [each for each in read(registry, live.system) if each.what in (RELEASED, PROMOTED, TAKEN_BACK)]
    if not moves or (moves[-1].release == live.number) == (moves[-1].what == TAKEN_BACK):
        return None
    # One that took another release back stands, by its reason, on what is served in its place.
    return moves[-1] if moves[-1].what != TAKEN_BACK or moves[-1].why == live.reason[:MOST_WHY] else None


def kept_out(registry: MlflowRegistry, system: str, digests: Mapping[str, str]) -> Decision | None:
    """Return why a release with these digests may not be served again; None where it may. Raises `RegistryError`."""
    latest: dict[frozenset[tuple[str, str]], Decision] = {}
    for entry in read(registry, system):
        if entry.what in (TAKEN_BACK, ALLOWED, PROMOTED) and entry.digests:
            latest[frozenset(entry.digests.items())] = entry
    against = [each for known, each in latest.items() if each.what == TAKEN_BACK and known <= digests.items()]
    return against[-1] if against else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
