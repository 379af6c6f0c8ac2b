"""A release of a system: the versions of all its models that belong together, published and taken up as a whole.

The releases of a system are the versions of one registered model, `pliant-release-SYSTEM`. Each names all versions, with
their digests, in one tag that is written with the version itself, and in another the release that it replaced. The alias
`champion` of that model is the release that is served: moving it is one write, which commits the whole. Everything else
that a publisher writes before is seen by nobody, and what it writes after (the aliases of the single models, for people
who look at them in MLflow) can be written again at any time.

A release that is not served may be on trial (aliases `challenger`, `shadow`, `canary`), and one that was served may have
been taken back. Its tags say since when it is in its state, and why. What MLflow's pages say of versions and releases (data,
metrics, the gate's table) names no version that anything is loaded by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pliant import systems
from pliant.errors import ArtifactError, RegistryError
from pliant.registry.mlflow_client import ensure_model
from pliant.registry.names import release as release_model
from pliant.registry.names import system_of
from pliant.registry.package import Package, Published

MODELS, FORMER = "pliant.models", "pliant.former"
SINCE, STATE, REASON = "pliant.since", "pliant.state", "pliant.reason"
NOTES = (SINCE, STATE, REASON)
"""Tags for people: they say since when a release is in its state, which one that is, and why; they name no versions."""
LEFT = "left"
"""State of a release that was the champion, and is so no more since another one was released or promoted."""
CONFIGURATION, FORMER_CONFIGURATION = "pliant.trained_with", "pliant.configuration"
"""Tag of a release: the configurations of the flow that made its tasks, with the models of these tasks, as JSON; then
its name in releases of earlier versions of Pliant. MLflow's page sorts tags by name, and shows this long one last.
"""
CONFIGURATION_LENGTH = 90_000
"""Characters that the tag may have; MLflow takes 100,000."""
SIGNED = "pliant.signed"
"""Tag of a release: when some of its versions were last signed by hand. Services that refused it look at it again."""
ABOUT = (
    "Releases of {system}: each names the versions that are served together. Its alias champion is what is served. "
    "`pliant serve {system}` answers with it, and `pliant status {system}` says what is served and why."
)

ROWS = 24  # of a table; more are named by their number alone
GAP, COLUMN = "&nbsp;", "&emsp;| "
"""Between two tables, and between two columns: MLflow's page leaves no space there."""
DECIDING = ("measure", "challenger", "champion")
"""Heading of the table of what decided at the gate."""
DATA, COMMIT = "pliant.data", "pliant.git_commit"


@dataclass(frozen=True, slots=True)
class RegistryRelease:
    """The versions that are served together.

    `number`: its version in the registry; `former`: the release that it replaced; `source` and `run` are MLflow's.
    `since` (ISO 8601, UTC), `state` and `reason` are notes for people, and may be empty.
    """

    system: str
    number: int
    former: int | None
    versions: Mapping[str, int]  # by registered model
    digests: Mapping[str, str]  # of their artifacts
    source: str = field(default="", compare=False)
    run: str | None = field(default=None, compare=False)
    since: str = field(default="", compare=False)
    state: str = field(default="", compare=False)
    reason: str = field(default="", compare=False)
    about: str = field(default="", compare=False)  # MLflow's description of the version, in Markdown
    created: str = field(default="", compare=False)  # when it was written, after all of it was trained (ISO 8601, UTC)
    signed: str = field(default="", compare=False)  # when versions of it were signed by hand; empty: never
    configurations: Mapping[str, str] = field(default_factory=dict, compare=False)  # JSON, by the model of a task

    @property
    def name(self) -> str:
        """Return how messages call it."""
        return f"release {self.number} of {self.system}"


def to_tags(wanted: RegistryRelease) -> dict[str, str]:
    """Return the tags that hold a release."""
    models = {name: [version, wanted.digests[name]] for name, version in wanted.versions.items()}
    notes = {SINCE: wanted.since, STATE: wanted.state, REASON: wanted.reason}
    notes[CONFIGURATION] = configurations_text(wanted.configurations)
    return {MODELS: json.dumps(models), FORMER: str(wanted.former or "")} | {k: v for k, v in notes.items() if v}


def configurations_text(configurations: Mapping[str, str]) -> str:
    """Return what the tag CONFIGURATION says: each configuration once, with the models that it made; empty without any."""
    models: dict[str, list[str]] = {}
    for name, configuration in sorted(configurations.items()):
        models.setdefault(configuration, []).append(name)
    entries = [{"models": names, "configuration": json.loads(text)} for text, names in models.items()]
    return json.dumps(entries) if entries else ""


def from_version(system: str, version: Any) -> RegistryRelease:
    """Return a release from MLflow's version. One whose tag cannot be read names no versions, so that nobody serves it."""
    try:
        models = json.loads(version.tags[MODELS])
        versions = {str(name): int(number) for name, (number, _) in models.items()}
        digests = {str(name): str(digest) for name, (_, digest) in models.items()}
    except (KeyError, ValueError, TypeError, AttributeError):
        versions, digests = {}, {}
    former = version.tags.get(FORMER, "")
    number = int(version.version)
    # A release replaces an older one: whatever else the tag says, following it comes to an end.
    earlier = int(former) if former.isdecimal() and int(former) < number else None
    notes = {name: version.tags.get(tag, "") for name, tag in (("since", SINCE), ("state", STATE), ("reason", REASON))}
    stamp = getattr(version, "creation_timestamp", None)
    created = datetime.fromtimestamp(stamp / 1000, UTC).isoformat(timespec="seconds") if stamp else ""
    notes["since"] = notes["since"] or created  # of one of an earlier version of Pliant
    about, source, signed = version.description or "", str(version.source), version.tags.get(SIGNED, "")
    try:
        configurations = {
            str(name): json.dumps(entry["configuration"], sort_keys=True)
            for entry in json.loads(version.tags.get(CONFIGURATION, version.tags.get(FORMER_CONFIGURATION)) or "[]")
            for name in entry["models"]
            if name in versions
        }
    except (KeyError, ValueError, TypeError):
        configurations = {}
    kept = {**notes, "about": about, "signed": signed, "created": created}
    run = version.run_id or None
    return RegistryRelease(
        system, number, earlier, versions, digests, source, run, **kept, configurations=configurations
    )


class Source(Protocol):
    """What a release is read from: the registry's own methods."""

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]: ...
    def names(self, prefix: str) -> list[str]: ...
    def discard(self, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class ReleaseView:
    """A registry as one release shows it: whatever the alias, models have the versions of the release."""

    registry: Source
    release: RegistryRelease

    def versions(self, prefix: str, alias: str) -> Mapping[str, int]:  # noqa: ARG002
        return {name: number for name, number in sorted(self.release.versions.items()) if name.startswith(prefix)}

    def version(self, name: str, alias: str) -> Published | None:  # noqa: ARG002
        return self.fetch(name, self.release.versions[name])[1] if name in self.release.versions else None

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]:
        """Return what the registry's own `fetch` does. Raises `ArtifactError` for another artifact than was released."""
        number = self.release.versions.get(name) if isinstance(which, str) else which
        if number is None:
            raise RegistryError(f"{self.release.name} names no version of {name}")
        folder, published = self.registry.fetch(name, number)
        expected = self.release.digests.get(name)
        if number == self.release.versions.get(name) and expected != published.digest:
            self.registry.discard(folder)
            raise ArtifactError(f"version {number} of {name} is not the artifact that {self.release.name} names")
        return folder, published

    def names(self, prefix: str) -> list[str]:
        return self.registry.names(prefix)

    def discard(self, folder: Path) -> None:
        self.registry.discard(folder)


def write(client: Any, wanted: RegistryRelease) -> int:
    """Write a release that nobody sees yet, and return its number."""
    name = release_model(wanted.system)
    ensure_model(client, name, ABOUT.format(system=wanted.system))
    version = client.create_model_version(
        name, wanted.source, run_id=wanted.run, tags=to_tags(wanted), description=wanted.about or None
    )
    return int(version.version)


def now_text() -> str:
    """Return the present time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def of_model(name: str) -> str | None:
    """Return the description of a registered model; None for one of no system."""
    system = system_of(name)
    if system is None:
        return None
    releases = release_model(system)
    return (
        f"A part of {system}: {systems.system(system).summary}. Its alias champion is the version that is served; the "
        f"[releases of {system}](#/models/{releases}) say beside which versions of other models, and why."
    )


def of_version(package: Package, champion: int | None, links: str = "") -> str:
    """Return the description of a new version.

    `champion`: the version of the same model that is served meanwhile; `links`: in Markdown, to what made it.
    """
    tags = package.tags
    facts = [
        f"Made while version {champion} was served." if champion else "Made before any version was served.",
        f"Data: `{tags[DATA]}`." if tags.get(DATA) else "",
        f"Commit: `{tags[COMMIT]}`." if tags.get(COMMIT) else "",
        links,
    ]
    rows = [(name, figure(value)) for name, value in package.metrics.items()]
    earned = ["", package.card, "", GAP] if package.card else []
    return "\n".join([*filter(None, facts), *earned, *table(("metric", "value"), rows)])


def of_release(reason: str, deciding: Sequence[Sequence[str]], former: int | None, links: str = "") -> str:
    """Return the description of a release: why it was made, what decided, what it replaces, and `links` to what made it.

    `deciding`: rows of a measure, of the challenger, and of the champion.
    """
    first = f"Made on top of release {former}." if former else "The first release."
    said = f"The gate: {reason}." if reason else ""
    return "\n".join([*filter(None, (said, first, links)), *table(DECIDING, deciding)])


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown with an empty line before it; none without rows."""
    if not rows:
        return []
    lines = [f"| {COLUMN.join(cells)} |" for cells in (heading, *rows[:ROWS])]
    lines = ["", lines[0], f"|{' --- |' * len(heading)}", *lines[1:]]
    return [*lines, "", f"and {len(rows) - ROWS} more in the run"] if len(rows) > ROWS else lines


def figure(value: object) -> str:
    """Return a number with four digits, anything else as a text without a line end or a column's end."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")


def note(client: Any, release: RegistryRelease, state: str, reason: str) -> None:
    """Write on a release in which state it is since now, and why. An empty state is that of the champion.

    The state is written last, so that where it stands its reason does, too.
    """
    for tag, value in ((REASON, reason), (SINCE, now_text()), (STATE, state)):
        client.set_model_version_tag(release_model(release.system), str(release.number), tag, value)
