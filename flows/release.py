"""What a flow releases: new versions of registered models, and which of them are live. Knows no system.

An artifact that is the champion already keeps its version; anything else becomes a new version, `challenger` at first and
`champion` if the gate let it pass. All champions of a run go live by one write (registry/releases.py). Knows no Prefect.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pliant.errors import RefusedError, UnreachableError
from pliant.flows.settings import Settings
from pliant.registry import decisions
from pliant.registry.mlflow_store import CHALLENGER, CHAMPION, MlflowRegistry, Run
from pliant.registry.mlflow_switch import ASKS, REFUSED, WAITING
from pliant.registry.names import experiment, system_of
from pliant.registry.package import Package
from pliant.registry.releases import RegistryRelease, of_release
from pliant.registry.signing.signatures import signing
from pliant.settings import FlowSettings

OUTAGE_WAITS = (3, 15, 60)
"""Seconds before the registry is tried once more: a database that is restarted is back by then."""

STATES = {"direct": "", "canary": WAITING, "ask": ASKS}
"""`PLIANT_ROLLOUT` -> the state of a challenger that passes the gate; without one it is served."""

logger = logging.getLogger("pliant.flows")

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent
"""Where the code lies, whoever's folder a command is run in."""
TRAINING = "pliant.training"
"""Tag of a version: its stage's notes as JSON."""


@dataclass(frozen=True, slots=True)
class Release:
    """`versions`: registered model -> version, of everything that belongs to the release, new or kept."""

    promoted: bool
    reason: str
    versions: Mapping[str, int]
    new: tuple[str, ...]
    run: str  # MLflow run


def merged(releases: Iterable[Release]) -> Release:
    """Return the release of several runs of a flow's work; promoted where anything was."""
    listed = list(releases)
    return Release(
        any(release.promoted for release in listed),
        "; ".join(release.reason for release in listed),
        {name: version for release in listed for name, version in release.versions.items()},
        tuple(name for release in listed for name in release.new),
        " ".join(release.run for release in listed if release.run),
    )


@dataclass(frozen=True, slots=True)
class Publication:
    """An MLflow run that publishes. `versions` and `new` collect what belongs to its release."""

    registry: MlflowRegistry
    run: Run
    gate: Mapping[str, Any] = field(default_factory=dict)  # its report
    deciding: Sequence[Sequence[str]] = ()  # of that, what decided, in words: rows as `of_release` takes them
    state: str = ""  # of what passes the gate where it is not served at once: a service tries it, or a person decides
    kept: Mapping[str, str] = field(default_factory=dict)  # configurations that the release keeps, by the task's model
    versions: dict[str, int] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def register(self, name: str, digest: str, package: Callable[[], Package]) -> int:
        """Return the version of model `name` that holds this artifact; only where there is none, publish `package()`."""
        for alias in (CHAMPION, CHALLENGER):  # a challenger that was refused is not stored once more with every run
            known = self.registry.version(name, alias)
            if known is not None and known.digest == digest and self.registry.intact(known):
                self.versions[name] = known.version
                return known.version
        version = self.registry.publish(self.run, package()).version
        self.registry.promote(name, version, CHALLENGER)
        self.new.append(name)
        self.versions[name] = version
        return version

    def promote(self, names: Iterable[str]) -> None:
        """Release these registered models' versions, as a whole: all are champions from then on, or none.

        Their own aliases follow in this order: what names the others comes last, so that whoever goes by them finds
        its parts. Where challengers are tried first, and there is a champion, they are proposed instead.
        """
        changes = {name: self.versions[name] for name in names}
        self.released.extend(changes)
        if changes:
            self._write(changes, self.state if self._champion is not None else "")

    def kept_out(self, names: Iterable[str]) -> str:
        """Return why these versions are not released although the gate let them pass: they were taken back before."""
        present = self._champion
        if present is None:
            return ""
        published = [self.registry.version(name, self.versions[name]) for name in names]
        digests = {**present.digests, **{each.name: each.digest for each in published if each is not None}}
        before = decisions.kept_out(self.registry, present.system, digests)
        if before is None or digests == present.digests:
            return ""
        allow = f"`pliant allow {present.system} {before.release}` lets it be served again"
        return f"this is release {before.release}, which was taken back on {before.at[:10]} ({before.why}); {allow}"

    def release(self, promoted: bool, reason: str, why: str = "") -> Release:
        """Return what was released. What was refused can still be promoted by hand: it is a release that nobody serves.

        `why`: what refused it, if that was not the gate.
        """
        refused = {name: number for name, number in self.versions.items() if name not in self.released}
        present = self._champion
        if present is not None and any(present.versions.get(name) != number for name, number in refused.items()):
            self._write(refused, REFUSED, why)
        return Release(promoted, reason, self.versions, tuple(self.new), self.run.id)

    @property
    def _champion(self) -> RegistryRelease | None:
        return self.registry.release(str(system_of(next(iter(self.versions)))))

    def _write(self, changes: Mapping[str, int], state: str, why: str = "") -> None:
        """Propose a release in a state; without one it is served from then on."""
        reports = [self.gate] if "reason" in self.gate else [v for v in self.gate.values() if isinstance(v, Mapping)]
        reason = why or "; ".join(str(report.get("reason", "")) for report in reports)
        present = self._champion
        about = of_release(reason, self.deciding, present.number if present else None, self.run.links)
        kept = {name: self.kept[name] for name in changes if name in self.kept}
        if state:
            written = self.registry.propose(changes, self.run, state, reason, about, kept)
        else:
            written = self.registry.commit(changes, self.run, about=about, kept=kept)
        if present is None or written.number != present.number:
            decisions.write(self.registry, state or decisions.RELEASED, written, reason, present)


def publication(
    registry: MlflowRegistry,
    run: Run,
    gate: Mapping[str, Any],
    kept: Mapping[str, str] | None = None,
    deciding: Sequence[Sequence[str]] = (),
) -> Publication:
    """Return what publishes in an MLflow run, which holds the gate's report as a document.

    `kept`: what the release keeps of each task's configuration (flows/configuration.py); `deciding`: as there.
    """
    run.document("gate", gate)
    return Publication(registry, run, gate, deciding, STATES[FlowSettings.read().rollout], kept or {})


def publish_champion(
    registry: MlflowRegistry,
    run_name: str,
    package: Package,
    tags: Mapping[str, str] | None = None,
    log: Callable[[Run], None] | None = None,
) -> int:
    """Publish a package in a run of its own, make it the champion without a gate, and return its version.

    `tags` are the run's; `log` writes what else the run is to hold.
    """
    with registry.run(run_name, tags) as run:
        if log is not None:
            log(run)
        version = registry.publish(run, package).version
    registry.promote(package.name, version)
    return version


def open_registry(project: Settings, system: str) -> MlflowRegistry:
    """Return the project's registry for a system's flow. Raises `InputError` for keys of signatures that cannot be used."""
    known = signing(project.signing_key, project.trusted_keys)
    registry = MlflowRegistry(project.tracking_uri, experiment(system), project.artifact_root, known)
    return registry if project.release is None else replace(registry, pinned=project.release)


def current_run() -> Any:
    """Return the flow run of Prefect that this code is in; None outside of one."""
    prefect = sys.modules.get("prefect.context")  # imported by whatever runs a flow; commands without one are spared it
    context = prefect.FlowRunContext.get() if prefect is not None else None
    return context.flow_run if context is not None else None


def retried(read: Callable[[], T]) -> T:
    """Return what `read` gives. In a deployment's run it is tried again where the registry does not answer.

    A command that a person typed fails at once. Raises what `read` raises: a `RefusedError`, and whatever else is not
    `UnreachableError`, without a second try; the latter after all `OUTAGE_WAITS`.
    """
    run = current_run()
    for seconds in OUTAGE_WAITS if run is not None and run.deployment_id is not None else ():
        try:
            return read()
        except RefusedError:
            raise
        except UnreachableError as error:
            logger.warning("%s; tried again in %d s", error, seconds)
            time.sleep(seconds)
    return read()


def check_registry(project: Settings, system: str, patient: bool) -> None:
    """Raise `RegistryError` where the registry would not let this user publish: before anything is trained, not after it.

    `patient`: one that does not answer is no error yet, since it may be back by the time that something is published.
    """
    registry = open_registry(project, system)
    try:
        if registry.exists():
            registry.check()
    except RefusedError:
        raise
    except UnreachableError:
        if not patient:
            raise


def flatten(values: Mapping[str, Any], above: str = "") -> dict[str, object]:
    """Return nested settings as one level of dotted names, tables in lists by their numbers: a run's parameters."""
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            value = {str(number): item for number, item in enumerate(value)}
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{above}{key}.")
        else:
            flat[above + key] = value
    return flat


def metric(name: str) -> str:
    """Return `name` as MLflow takes it for a metric, or within one's name."""
    return re.sub(r"[^\w. /-]", "_", name)


def commit() -> str:
    """Return the code's git commit, with "-dirty" where the checkout has changes: "unknown" without a checkout, or git."""
    if not (ROOT / ".git").exists():  # installed, perhaps within a checkout of the user's
        return "unknown"
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        git = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return git.stdout.strip() or "unknown"
