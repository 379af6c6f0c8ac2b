"""A stage of a flow as a value: what makes its result, what that depends on, and what it is called. Knows no system.

A stage's result is kept in the store under a key of all that it depends on, so it is made once, and again where it has gone.
That is config, data, and the code that makes the result (flows/closure.py): the function that does it and whatever it
reaches, without comments and docstrings, which change nothing of the result. Knows no Prefect:
flows/pipeline.py makes a task of a stage.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from pliant.errors import RegistryError
from pliant.flows.closure import LIBRARIES, Entry, closure, libraries
from pliant.flows.progress import say
from pliant.flows.progress import stage as progress_of
from pliant.flows.release import commit
from pliant.profiling.machine import arithmetic
from pliant.registry.codec import Artifact
from pliant.registry.store import FolderStore
from pliant.training import curves

A = TypeVar("A", bound=Artifact)
T = TypeVar("T")
Notes = Mapping[str, Any]
PROVENANCE, CURVES = "provenance", "by step"
"""In what the store keeps of a result: what it was made of, and where; and the curves of its training."""
COUNTED = ("pliant", *LIBRARIES, "scikit-learn", "scipy")


def noted(kind: type[T], notes: Notes, name: str) -> T:
    """Return the value that a stage's notes, which are plain JSON, hold under a name."""
    return TypeAdapter(kind).validate_python(notes[name])


@dataclass(frozen=True, slots=True)
class StageResult(Generic[A]):
    """What a stage has made. `notes`: what was noted on the way, as plain JSON; `provenance`: of what it was made and where,
    as `Stage.work` keeps it; `curves`: of its training, name -> (step, value).
    """

    kind: type[A]
    store: FolderStore
    key: str
    digest: str
    notes: Notes = field(default_factory=dict)
    provenance: Notes = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)

    def load(self) -> A:
        return self.store.load(self.kind, self.key, self.digest)

    @property
    def folder(self) -> Path:
        return self.store.path(self.key)

    def noted(self, **more: Any) -> StageResult[A]:
        """Return it with more notes, but for those that are None."""
        return replace(self, notes={**self.notes, **{name: each for name, each in more.items() if each is not None}})


@dataclass(frozen=True, slots=True)
class Stage(Generic[A]):
    """`make` takes settings, data and what earlier stages made, and last a callback of progress; it returns the artifact and
    notes on it.

    `task`: its name in Prefect. `depends`, some of whose parameters it takes, returns what the result depends on besides the
    code and the digests of earlier results. `folder` in the store, title of the `bar` and name of the `run` in Prefect are
    templates over the parameters of `make`, such as "bins/encoder-{stream.name}". `code`: what makes the result, if that is
    not `make` alone: also classes whose methods it calls without naming them. `measured`: whether the versions of libraries
    count as well. `download`: whether it may have to download a model, and is tried again where that fails. `timed`: whether
    the result holds measured seconds, so that no second one is equal.
    """

    task: str
    kind: type[A]
    make: Callable[..., tuple[A, Notes]]
    depends: Callable[..., dict[str, Any]]
    folder: str
    bar: str
    run: str | None = None
    code: tuple[Entry, ...] = ()
    measured: bool = False
    download: bool = False
    timed: bool = False

    def basis(self, *args: Any) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
        """Return what a result of these arguments depends on: settings with digests of earlier results, versions, code."""
        named = self._named(args)
        earlier = {name: list(_results(value)) for name, value in named.items()}
        depends = {
            "settings": self.depends(*(named[name] for name in signature(self.depends).parameters)),
            "results": {name: [each.digest for each in results] for name, results in earlier.items() if results},
        }
        kinds = {each.kind for results in earlier.values() for each in results} | {self.kind}
        code = closure(*(self.code or (self.make,)), *kinds)
        return depends, versions(libraries(code) if self.measured else ()), code

    def key(self, *args: Any) -> str:
        """Return the key of the result that is made of these arguments."""
        depends, counted, code = self.basis(*args)
        mark = hashlib.sha256(json.dumps([depends, counted], sort_keys=True, default=str).encode())
        for name in sorted(code):
            mark.update(f"\0{name}\0{code[name]}".encode())
        return f"{self.folder.format(**self._named(args))}/{mark.hexdigest()[:24]}"

    def kept(self, store: FolderStore, key: str) -> StageResult[A] | None:
        """Return the result that the store keeps under a key; None where the stage has to run."""
        entry = store.kept(key)
        apart = [entry[1].pop(name, {}) if entry else {} for name in (PROVENANCE, CURVES)]
        return None if entry is None else StageResult(self.kind, store, key, *entry, *apart)

    def work(self, store: FolderStore, key: str, *args: Any) -> StageResult[A]:
        """Make the result and keep it under its key; where another run was faster, return what that one has kept."""
        depends, _, code = self.basis(*args)
        with progress_of(self.bar.format(**self._named(args))) as progress, curves.noted() as learnt:
            artifact, notes = self.make(*args, progress)
            progress(1, 1)
        provenance = {
            **depends,
            "code": {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in code.items()},
            "commit": commit(),
            "machine": arithmetic() | versions(COUNTED),
            "timed": self.timed,
            "precision": str(notes.get("precision") or notes.get("arithmetic", "")).partition(":")[0],  # by measuring
        }
        kept = {**notes, PROVENANCE: json.loads(json.dumps(provenance, default=str)), CURVES: learnt}
        digest, result = store.keep(key, artifact, kept), self.kept(store, key)
        if result is None:
            raise RegistryError(f"{store.path(key)} holds something that no stage has kept: remove that folder")
        if result.digest != digest:
            say(f"{key} was made twice at once, and not alike: {result.digest} stays, {digest} is dropped.")
        return result

    def result(self, store: FolderStore, *args: Any) -> StageResult[A]:
        """Return the result, made only where it is not kept."""
        key = self.key(*args)
        return self.kept(store, key) or self.work(store, key, *args)

    def run_name(self, *args: Any) -> str | None:
        return None if self.run is None else self.run.format(**self._named(args))

    def _named(self, args: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(signature(self.make).parameters, args, strict=False))  # the last is the progress


class Run(Protocol):
    """Gives a stage's result: kept, or made."""

    def __call__(self, stage: Stage[A], *args: Any) -> StageResult[A]: ...


def versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of these distributions."""
    known = {}
    for name in names:
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            known[name] = "missing"
    return known


def _results(value: Any) -> Iterator[StageResult[Any]]:
    """Yield the results of stages that an argument is or holds."""
    if isinstance(value, StageResult):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _results(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _results(each)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def contents(address: str) -> Iterator[str]:
    """Yield the digests of the files of a `path:` model, which may change under their names, and of its parts' settings
    and further chat templates.
    """
    scheme, _, rest = address.partition(":")
    folder = Path(rest)
    if scheme != "path" or not folder.is_dir():
        return
    within = (*folder.glob("*/config.json"), *folder.glob("*/*.jinja"))
    for path in sorted(path for path in (*folder.iterdir(), *within) if path.is_file()):
        yield f"{path.relative_to(folder).as_posix()} {digest_of(path)}"
