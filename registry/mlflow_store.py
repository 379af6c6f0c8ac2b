"""Artifacts in MLflow: runs, registered models, aliases, releases. Beside it only mlflow_*.py and the pyfunc files know
MLflow.

A system's models have the versions of its last release (registry/releases.py) under the alias of that release. In a
registry without one, and for other aliases, each model has the version under its own alias.

Uses MLflow's client with an explicit address, never its process-wide "current" run or tracking URI, so that threads and
registries do not meet. Whatever MLflow, its database or the network raise becomes a `RegistryError`.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pliant.errors import ArtifactError, PliantError, RefusedError, RegistryError
from pliant.redaction import redact
from pliant.registry import codec, releases
from pliant.registry.folder import Downloads, sync_tree
from pliant.registry.lock import Check, file_lock, last_release, lease
from pliant.registry.mlflow_client import (
    ADVICE,
    DIGEST,
    KIND,
    all_pages,
    check_reachable,
    client_of,
    current_address,
    database,
    ensure_model,
    find_model,
    find_version,
    find_versions,
    is_local,
    local_folder,
    published_of,
    registry_errors,
    set_defaults,
    shown,
)
from pliant.registry.names import prefix as models_of
from pliant.registry.names import release as release_model
from pliant.registry.names import system_of
from pliant.registry.package import (
    BUNDLE,
    METRICS,
    METRICS_KEPT,
    Example,
    Package,
    Published,
    copy_code,
    frame,
    needed,
    pyfunc_file,
)
from pliant.registry.releases import RegistryRelease, now_text, of_model, of_release, of_version
from pliant.registry.signing.signatures import UNSIGNED, Signing
from pliant.registry.store import NOTES

CHAMPION, PREVIOUS = "champion", "previous"
CHALLENGER = "challenger"
NOTHING: Mapping[str, str] = {}
KIND_TAG, OF_MODELS = "mlflow.experimentKind", "custom_model_development"
"""Tag of an experiment that is shown by its runs, and not on a page for generative models; MLflow's switch between the two,
which an address may set (`Run.url`), goes before it.
"""
NOTE, TABLES = "mlflow.note.content", "mlflow.loggedArtifacts"
"""Tags of a run: its description, and which of its files MLflow shows as tables."""
PAGES = "http://127.0.0.1:5000"
BATCH = 1000  # metrics that MLflow takes at once
LONGEST = 2000  # characters of a description of a failure

logger = logging.getLogger("pliant.registry")


@dataclass(frozen=True, slots=True)
class MlflowRegistry:
    """A tracking server (http, https), or a database (sqlite, postgresql) with artifacts under `artifact_root`.

    Downloads are removed with this object, or before it by `discard`. `signing`: whether what is published is signed, and
    whose artifacts are fetched and released; by default all. `pinned`: number of the release that is read as champion.
    """

    tracking_uri: str
    experiment: str
    artifact_root: Path
    signing: Signing = UNSIGNED
    downloads: Downloads = field(default_factory=Downloads, compare=False, repr=False)
    pinned: int | None = None

    @contextmanager
    def run(self, name: str, tags: Mapping[str, object] | None = None) -> Iterator[Run]:
        """Open a run that ends as FINISHED, or as FAILED if the block raises."""
        run = self.start(name, tags)
        try:
            yield run
        except BaseException as error:
            with suppress(RegistryError):  # why the block failed says more
                run.fail(error)
            raise
        run.end("FINISHED")

    def start(self, name: str, tags: Mapping[str, object] | None = None, links: str = "") -> Run:
        """Open a run, which whoever opens it ends; `links`: as in `Run`. Creates database and experiment if missing."""
        client = self.connect(create=True)
        with registry_errors(self.tracking_uri, "a run could not be started"):
            experiment = self._experiment(client)
            known = {key: str(value) for key, value in (tags or {}).items()}
            started = client.create_run(experiment, run_name=name, tags=known)
        return Run(client, self.tracking_uri, started.info.run_id, experiment, links)

    def publish(self, run: Run, package: Package) -> Published:
        """Register the package's folder as the next version of its model: one that any MLflow client can load.

        Raises `ArtifactError` for a folder that is not intact, `RegistryError` where MLflow refuses.
        """
        tags = {**package.tags, DIGEST: codec.digest(package.folder), KIND: codec.kind(package.folder)}
        metrics = list(package.metrics.items())[:METRICS_KEPT]
        tags[METRICS] = json.dumps({name: float(f"{value:.6g}") for name, value in metrics})
        if self.signing.signer is not None:
            tags |= self.signing.signer.tags(package.name, str(tags[DIGEST]))
        known = {key: str(value) for key, value in tags.items()}
        champion = self.aliased(package.name, CHAMPION)
        about = of_version(package, champion.version if champion else None, run.links)
        with registry_errors(self.tracking_uri, f"{package.name} could not be published"):
            logged = log_model(run, package, known)
            ensure_model(run.client, package.name, of_model(package.name))
            # The location and not "models:/<id>": that one is looked up by the process-wide tracking URI.
            source = logged.artifact_location
            version = run.client.create_model_version(
                package.name, source, run_id=run.id, tags=known, description=about, model_id=logged.model_id
            )
        return published_of(version)

    def create(self) -> None:
        """Create the registry's database and experiment where they are missing; a first `run` does so too."""
        self._experiment(self.connect(create=True))

    def exists(self) -> bool:
        """Whether anything was ever published here: False only for a database file that is not there yet."""
        path = database(self.tracking_uri)
        return path is None or path.is_file()

    def version(self, name: str, which: str | int = CHAMPION) -> Published | None:
        """Return the version under an alias, of the release under it, or of a number; None without such a model or alias.

        Raises `RegistryError` for a number that is none of the model's.
        """
        if isinstance(which, int):
            return self._numbered(name, which)
        released = self._released(name, which)
        if released is not None and name in released.versions:
            return self._numbered(name, released.versions[name])
        return self.aliased(name, which)

    def aliased(self, name: str, alias: str) -> Published | None:
        """Return the version under the model's own alias, whatever was released; None if there is none."""
        with self.asking(f"{name} could not be looked up") as client:
            model = find_model(client, name)
            if model is None or alias not in model.aliases:
                return None
            return published_of(client.get_model_version(name, str(model.aliases[alias])))

    def versions(self, prefix: str, alias: str = CHAMPION) -> dict[str, int]:
        """Return name -> version of all models whose names begin with `prefix`: of the release under `alias`, or, where
        there is none, of those that have the alias. A few requests for all models: cheap enough for polling.
        """
        released = self._released(prefix, alias)
        if released is not None:
            return {name: number for name, number in sorted(released.versions.items()) if name.startswith(prefix)}
        return self.aliases(prefix, alias)

    def aliases(self, prefix: str, alias: str = CHAMPION) -> dict[str, int]:
        """Return name -> version under the models' own alias, whatever was released."""
        models = [model for model in self.models(prefix) if alias in model.aliases]
        return {model.name: int(model.aliases[alias]) for model in sorted(models, key=lambda model: str(model.name))}

    def fetch(self, name: str, which: str | int = CHAMPION) -> tuple[Path, Published]:
        """Return the artifact's folder on this machine, for reading only, and the version under an alias or number.

        Raises `RegistryError`, and `SignatureError` for a version that no trusted key signed. Load it with the version's
        digest: what was signed is that digest.
        """
        published = self.version(name, which)
        if published is None:
            with self.asking(f"{name} could not be looked up") as client:
                model = find_model(client, name)
            if model is None:
                raise RegistryError(f"the registry at {shown(self.tracking_uri)} has no model {name}: {ADVICE}")
            known = ", ".join(f"{key} (version {value})" for key, value in sorted(model.aliases.items())) or "none"
            raise RegistryError(f"model {name} has no version under the alias {which}; its aliases: {known}")
        if not published.digest:
            raise RegistryError(f"{published.uri} was not published by pliant: it has no tag {DIGEST}")
        self.check_signed(published)
        from mlflow.artifacts import download_artifacts

        with self.asking(f"the files of {published.uri} could not be fetched") as client:
            root = client.get_model_version_download_uri(name, str(published.version))
            target = None if is_local(root) else str(self.downloads.fresh())  # what is here already is not copied
            address = current_address(self.tracking_uri)
            return Path(download_artifacts(f"{root}/artifacts/{BUNDLE}", None, None, target, address)), published

    def check_signed(self, published: Published) -> None:
        """Raise `SignatureError` for a version that no trusted key signed, if keys are to be trusted at all."""
        if self.signing.trust is not None:
            self.signing.trust.check(published)

    def unchecked(self) -> MlflowRegistry:
        """Return this registry for who signs: what nobody has signed can be fetched, too."""
        return replace(self, signing=Signing(self.signing.signer))

    def intact(self, published: Published) -> bool:
        """Whether the files of a version are there and unaltered. Those of a store elsewhere are not fetched to see that."""
        with self.asking(f"the files of {published.uri} could not be looked up") as client:
            root = client.get_model_version_download_uri(published.name, str(published.version))
        if not is_local(root):
            return True
        try:
            folder, _ = self.unchecked().fetch(published.name, published.version)
            codec.kind(folder)  # verifies them
        except (ArtifactError, RegistryError):
            return False
        return codec.digest(folder) == published.digest

    def promote(self, name: str, version: int, alias: str = CHAMPION) -> None:
        """Move `alias` to `version`. The champion so far stays within reach as `previous`.

        Where the system has a release, a champion becomes part of the next one.
        """
        if alias == CHAMPION and self._released(name, CHAMPION) is not None:
            self.commit({name: version})
            return
        if alias == CHAMPION and self.signing.trust is not None:
            self.signing.trust.check(self._numbered(name, version))
        self._point(name, version, alias)

    def commit(
        self,
        changes: Mapping[str, int],
        run: Run | None = None,
        about: str = "",
        kept: Mapping[str, str] = NOTHING,
    ) -> RegistryRelease:
        """Release these versions with all others of their system, and return the release that is served from now on.

        All or nothing, by one write; then the models' own aliases follow, in the order of `changes`. A release that
        somebody else commits meanwhile is built upon, never mixed with this one. `about` is for people, in Markdown;
        `kept`: the configurations that made the changes, where they are known
        Raises `RegistryError`; then the former release is served, or, if only aliases are behind, this one.
        """
        (system,) = {str(system_of(name)) for name in changes}
        with self.asking(f"{system} could not be released") as client, self.locked(system) as check:
            present = self.release(system)
            wanted = replace(self.successor(system, present, changes, run, kept), since=now_text())
            if present is None or wanted.versions != present.versions:
                present = self._write(replace(wanted, about=about or of_release("", (), wanted.former)), present, check)
            elif wanted.configurations != present.configurations:
                present = replace(present, configurations=wanted.configurations)
                text = releases.configurations_text(present.configurations)
                client.set_model_version_tag(release_model(system), str(present.number), releases.CONFIGURATION, text)
            self.show_release(present, changes)
            left = self.release(system, PREVIOUS)
            if left is not None and left.number == present.former and not left.state:
                releases.note(client, left, releases.LEFT, f"release {present.number} took its place")
            return present

    def propose(
        self,
        changes: Mapping[str, int],
        run: Run | None,
        state: str,
        reason: str,
        about: str,
        kept: Mapping[str, str] = NOTHING,
    ) -> RegistryRelease:
        """Write a release of these versions with all others that are served now, under the alias `challenger`.

        Nobody serves it before somebody promotes it; a service may try it, if `state` says so (registry/mlflow_switch.py).
        The same challenger to the same champion is not written again. Raises `RegistryError`.
        """
        (system,) = {str(system_of(name)) for name in changes}
        with self.asking(f"{system} could not be released") as client, self.locked(system):
            wanted = self.successor(system, self.release(system), changes, run, kept)
            former = self.release(system, CHALLENGER)
            if former is not None and (former.former, former.versions) == (wanted.former, wanted.versions):
                return former
            numbers = self.numbers(release_model(system)) if self.release(system) is not None else []
            proposed = self.release(system, numbers[-1]) if numbers else None
            sought = (wanted.former, wanted.versions, state)
            # One that is just the same is of a process that was ended before it moved the alias.
            if proposed is None or (proposed.former, proposed.versions, proposed.state) != sought:
                wanted = replace(wanted, since=now_text(), state=state, reason=reason, about=about)
                proposed = replace(wanted, number=releases.write(client, wanted))
            client.set_registered_model_alias(release_model(system), CHALLENGER, str(proposed.number))
            return proposed

    def release(self, system: str, which: str | int = CHAMPION) -> RegistryRelease | None:
        """Return a system's release under an alias or number; None if there is none."""
        name = release_model(system)
        with self.asking(f"the release of {system} could not be looked up") as client:
            model = find_model(client, name)
            number = None if model is None else which if isinstance(which, int) else model.aliases.get(which)
            if number is None:
                return None
            version = find_version(client, name, int(number))
            return None if version is None else releases.from_version(system, version)

    def document(self, run: str, name: str) -> str | None:
        """Return what a run holds as `name`.json; None where it does not."""
        file = f"{name}.json"
        with (
            self.asking(f"{file} of the run {run} could not be read") as client,
            tempfile.TemporaryDirectory() as folder,
        ):
            if all(each.path != file for each in client.list_artifacts(run)):
                return None
            return Path(client.download_artifacts(run, file, folder)).read_text("utf-8")

    def identity(self) -> str:
        """Return what tells this registry from another one that takes its place; empty where nothing does."""
        with self.asking("the registry's experiment could not be looked up") as client:
            experiment = client.get_experiment_by_name(self.experiment)
        return "" if experiment is None else f"{experiment.experiment_id} of {experiment.creation_time}"

    def check(self) -> None:
        """Raise `RegistryError` where nothing could be published: nobody is let in, the experiment was deleted, or moved."""
        with self.asking("the registry's experiment could not be looked up") as client:
            experiment = client.get_experiment_by_name(self.experiment)
        if experiment is not None and experiment.lifecycle_stage == "deleted":
            raise RefusedError(
                f"the registry's experiment {self.experiment} is deleted: "
                f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
            )
        if experiment is not None:
            self._check_place(str(experiment.artifact_location))

    def bell(self, system: str) -> Callable[[], object] | None:
        """Return what gives another value after each release of a system; None where only the registry itself says that."""
        path = database(self.tracking_uri)
        return None if path is None else partial(last_release, path, system)

    def _released(self, name: str, alias: str) -> RegistryRelease | None:
        """Return the release under an alias. Each model's newest challenger has its own alias, whatever was proposed."""
        system = system_of(name)
        which = self.pinned if alias == CHAMPION and self.pinned is not None else alias
        return None if system is None or alias == CHALLENGER else self.release(system, which)

    def successor(
        self,
        system: str,
        present: RegistryRelease | None,
        changes: Mapping[str, int],
        run: Run | None,
        kept: Mapping[str, str],
    ) -> RegistryRelease:
        """Return the release that follows `present`, checked to have all its versions, signed. It has no number yet."""
        versions = dict(self.aliases(models_of(system)) if present is None else present.versions)
        digests: dict[str, str] = {}
        for name, number in list((versions | dict(changes)).items()):
            version = find_version(self.connect(), name, number)
            if version is not None:
                published = published_of(version)
                self.check_signed(published)
                versions[name], digests[name] = number, published.digest
            elif name in changes:
                raise RegistryError(f"there is no {name} version {number} to release")
            else:
                del versions[name]
                logger.warning("the release is made without %s: its version %d is not in the registry", name, number)
        source, run_id = present.source if present else "", present.run if present else None
        if run is not None:
            source, run_id = str(run.client.get_run(run.id).info.artifact_uri), run.id
        configurations = {**(present.configurations if present else {}), **kept}
        configurations = {name: text for name, text in configurations.items() if name in versions}
        former = present.number if present else None
        return RegistryRelease(system, 0, former, versions, digests, source, run_id, configurations=configurations)

    def _write(self, wanted: RegistryRelease, present: RegistryRelease | None, check: Check) -> RegistryRelease:
        """Write the release and commit it, unless another publisher was faster. Raises `RegistryError`."""
        client, name = self.connect(), release_model(wanted.system)
        number = releases.write(client, wanted)
        now = self.release(wanted.system)
        if (now.number if now else None) != (present.number if present else None):
            raise RegistryError(f"another publisher released {wanted.system} meanwhile: run it again, on top of that")
        check()
        if present is not None:
            client.set_registered_model_alias(name, PREVIOUS, str(present.number))
        client.set_registered_model_alias(name, CHAMPION, str(number))  # the commit
        return replace(wanted, number=number)

    def show_release(self, released: RegistryRelease, first: Iterable[str] = ()) -> None:
        """Let the models' own aliases follow the release; those of `first` first."""
        aliased = self.aliases(models_of(released.system))
        for name in dict.fromkeys([*first, *released.versions]):
            number = released.versions.get(name)
            if number is not None and aliased.get(name) != number:
                self._point(name, number, CHAMPION)

    def _point(self, name: str, version: int, alias: str) -> None:
        now = self.aliased(name, alias)
        if now is not None and now.version == version:
            return
        self._numbered(name, version)
        with self.asking(f"{name} version {version} could not be promoted") as client:
            if now is not None and alias == CHAMPION:
                client.set_registered_model_alias(name, PREVIOUS, str(now.version))
            client.set_registered_model_alias(name, alias, str(version))

    def locked(self, system: str) -> AbstractContextManager[Check]:
        """Return the lock of a system's releases: of the file, or of the registry itself."""
        path = database(self.tracking_uri)
        return lease(self.connect(), system) if path is None else file_lock(path, system)

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the registered models that begin with `prefix`, sorted."""
        return sorted(model.name for model in self.models(prefix))

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a model's versions, ascending."""
        with self.asking(f"the versions of {name} could not be listed") as client:
            return sorted(int(version.version) for version in find_versions(client, name))

    def discard(self, folder: Path) -> None:
        """Remove a fetched folder that is not needed any more, if it was downloaded."""
        self.downloads.remove(folder)

    def models(self, prefix: str = "") -> list[Any]:
        """Return all registered models whose names begin with `prefix`, as MLflow's entities."""
        with self.asking("the models could not be listed") as client:
            entries = all_pages(lambda token: client.search_registered_models(max_results=1000, page_token=token))
        return [model for model in entries if model.name.startswith(prefix)]

    @contextmanager
    def asking(self, failed: str) -> Iterator[Any]:
        """Give MLflow's client. What fails in the block is a `RegistryError` that begins with `failed`."""
        client = self.connect()
        with registry_errors(self.tracking_uri, failed):
            yield client

    def connect(self, create: bool = False) -> Any:
        """Return MLflow's client of this registry, for the files mlflow_*.py. Raises `RegistryError` without one."""
        set_defaults()
        check_reachable(self.tracking_uri, create)
        address = current_address(self.tracking_uri)
        with registry_errors(self.tracking_uri, "the registry could not be opened"):
            return client_of(address)

    def _experiment(self, client: Any) -> str:
        experiment = client.get_experiment_by_name(self.experiment)
        if experiment is not None:
            self._check_place(str(experiment.artifact_location))
            if KIND_TAG not in experiment.tags:
                client.set_experiment_tag(experiment.experiment_id, KIND_TAG, OF_MODELS)
            return str(experiment.experiment_id)
        served = self.tracking_uri.startswith("http")  # a server has its own place for artifacts
        location = None if served else Path(self.artifact_root).absolute().as_uri()
        return str(client.create_experiment(self.experiment, location, {KIND_TAG: OF_MODELS}))

    def _check_place(self, location: str) -> None:
        """Raise `RefusedError` for a file that was copied or moved: MLflow would go on writing where it lay before."""
        path, root = database(self.tracking_uri), Path(self.artifact_root).resolve()
        if path is None or not is_local(location) or local_folder(location).resolve() == root:
            return
        there = local_folder(location)
        former = there.parent / path.name
        if not there.exists() or (former.is_file() and not former.samefile(path)):
            raise RefusedError(
                f"the registry {path} was copied or moved, and its runs would still be written to {there}: move it back, or "
                "publish into a new one"
            )

    def _numbered(self, name: str, version: int) -> Published:
        with self.asking(f"there is no {name} version {version}") as client:
            return published_of(client.get_model_version(name, str(version)))


if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Run:
    """One MLflow run being written. Any thread may log to it. `links`: in Markdown, to what made it."""

    client: Any
    uri: str
    id: str
    experiment_id: str
    links: str = ""

    def url(self, pages: str = "") -> str:
        """Return the address of its page, under `pages`; without these the server's, or where `pliant ui` shows it."""
        pages = pages or (shown(self.uri) if self.uri.startswith("http") else PAGES)
        return f"{pages.rstrip('/')}/#/experiments/{self.experiment_id}/runs/{self.id}?workflowType=machine_learning"

    def describe(self, text: str, name: str | None = None) -> None:
        """Set the run's description, and its name where one is given."""
        with registry_errors(self.uri, "the run could not be described"):
            self.client.set_tag(self.id, NOTE, "\n\n".join(filter(None, (text, self.links))))
            if name is not None:
                self.client.update_run(self.id, name=name)

    def params(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        with registry_errors(self.uri, "parameters could not be logged"):
            self.client.log_batch(self.id, params=[Param(name, str(value)) for name, value in values.items()])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        with registry_errors(self.uri, "metrics could not be logged"):
            self.client.log_batch(self.id, metrics=measured(values, step))

    def curves(self, points: Mapping[str, Sequence[tuple[int, float]]]) -> None:
        """Log metrics by step: name -> (step, value)."""
        logged = [
            each for name, curve in points.items() for step, value in curve for each in measured({name: value}, step)
        ]
        with registry_errors(self.uri, "curves could not be logged"):
            for at in range(0, len(logged), BATCH):
                self.client.log_batch(self.id, metrics=logged[at : at + BATCH])

    def table(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log rows as `name`.json, which MLflow shows as a table: in the form of its `log_table`, which would append."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        self.document(name, {"columns": columns, "data": [[row.get(column) for column in columns] for row in rows]})
        with registry_errors(self.uri, f"table {name} could not be logged"):
            known = json.loads(self.client.get_run(self.id).data.tags.get(TABLES, "[]"))
            entry = {"path": f"{name}.json", "type": "table"}
            self.client.set_tag(self.id, TABLES, json.dumps([*(each for each in known if each != entry), entry]))

    def page(self, name: str, html: str) -> None:
        """Log a page as `name`.html, which MLflow shows."""
        with registry_errors(self.uri, f"page {name} could not be logged"):
            self.client.log_text(self.id, html, f"{name}.html")

    def figure(self, name: str, figure: Figure) -> None:
        """Log a matplotlib figure as `name`.png."""
        with registry_errors(self.uri, f"figure {name} could not be logged"):
            self.client.log_figure(self.id, figure, f"{name}.png")

    def document(self, name: str, values: Mapping[str, Any]) -> None:
        """Log plain values as `name`.json."""
        with registry_errors(self.uri, f"{name} could not be logged"):
            self.client.log_dict(self.id, dict(values), f"{name}.json")

    def dataset(self, name: str, fingerprint: str, source: str) -> None:
        """Log the name of a data set of the run. MLflow keeps 36 characters of a digest; the whole is in the profile."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        where, profile = json.dumps({"uri": source}), json.dumps({"fingerprint": fingerprint})
        dataset = Dataset(name, fingerprint[:36], "local", where, profile=profile)
        with registry_errors(self.uri, f"data set {name} could not be logged"):
            self.client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])])

    def fail(self, error: BaseException) -> None:
        """End the run as FAILED, or as KILLED where it was interrupted, and say why in its description."""
        kind = "" if isinstance(error, PliantError) else f"{type(error).__name__}: "
        failed = isinstance(error, Exception)
        self.end("FAILED" if failed else "KILLED")
        self.describe(redact(f"Failed: {kind}{error}")[:LONGEST] if failed else "Interrupted.")

    def end(self, status: str) -> None:
        with registry_errors(self.uri, "the run could not be ended"):
            self.client.set_terminated(self.id, status)


def measured(values: Mapping[str, float], step: int) -> list[Any]:
    """Return metrics of this moment, to be logged together: one by one each is a transaction of its own."""
    from mlflow.entities import Metric

    now = round(1000 * time.time())
    return [Metric(name, value, now, step) for name, value in values.items()]


def log_model(run: Run, package: Package, tags: Mapping[str, str]) -> Any:
    """Log the package as a model of the run. MLflow's own `log_model` prints, and uses the process-wide tracking URI."""
    import mlflow
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ParamSchema, ParamSpec

    params = {key: str(value) for key, value in package.params.items()}
    logged = run.client.create_logged_model(run.experiment_id, package.name, run.id, dict(tags), params)
    kinds = {bool: "boolean", int: "long", float: "double", str: "string"}
    options = [ParamSpec(name, kinds[type(value)], value) for name, value in package.options.items()]
    schemas = _schema(package.inputs), _schema(package.outputs), ParamSchema(options) if options else None
    kind, inputs = codec.kind(package.folder), frame(package.inputs)
    with tempfile.TemporaryDirectory() as temporary:
        # MLflow keeps a folder's own name, and follows no link.
        bundle = shutil.copytree(package.folder, Path(temporary, BUNDLE), ignore=shutil.ignore_patterns(NOTES))
        mlflow.pyfunc.save_model(
            Path(temporary, "model"),
            python_model=str(pyfunc_file(kind)),
            artifacts={BUNDLE: str(bundle)},
            code_paths=[str(copy_code(bundle.parent, "registry"))],
            mlflow_model=Model(logged.artifact_location, run.id, model_id=logged.model_id),
            signature=ModelSignature(*schemas),
            input_example=(inputs, dict(package.options)) if package.options else inputs,
            model_config=dict(package.config),
            pip_requirements=[f"{name}=={installed(name).partition('+')[0]}" for name in needed(kind)],
        )
        run.client.log_model_artifacts(logged.model_id, str(Path(temporary, "model")))
    if is_local(logged.artifact_location):  # elsewhere the store's answer says that it has the files
        sync_tree(local_folder(logged.artifact_location))
    run.client.finalize_logged_model(logged.model_id, "READY")
    run.client.log_outputs(run.id, [LoggedModelOutput(logged.model_id, step=0)])
    return logged


def _schema(example: Example) -> Any:
    from mlflow.types import ColSpec, Schema, TensorSpec

    if isinstance(example, np.ndarray):
        return Schema([TensorSpec(example.dtype, (-1, *example.shape[1:]))])
    kinds = {"int64": "long", "float32": "float", "float64": "double"}
    texts = {name: "string" for name, column in example.items() if column.dtype.kind == "U"}
    return Schema([ColSpec(texts.get(name) or kinds[column.dtype.name], name) for name, column in example.items()])
