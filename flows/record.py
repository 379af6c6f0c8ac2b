"""What a run of a flow keeps of itself in MLflow: what its results were made of and where, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliant.flows.stage import StageResult, digest_of
from pliant.profiling.machine import used

DOCUMENT = "record"
"""Name of the document of the run in MLflow."""
SCHEMES = ("parquet", "csv", "json", "folder", "path", "file", "journal")
"""Of addresses that name files here."""


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A stage's result: its `folder` in the store, its digest, and of what and where it was made (see `Stage.work`)."""

    folder: str
    digest: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, list[str]] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    timed: bool = False
    precision: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """The document. `configuration`: as a release keeps it, with what a nightly run adds; empty where the run learnt from
    what a service observed. `inputs`: the files that it names, by sha256.
    """

    configuration: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[StageRecord, ...] = ()


@dataclass(frozen=True)
class Recorder:
    """Takes down the results of a run, and the `seconds` of those that were made, by their keys."""

    configuration: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    results: list[StageResult[Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    before: Mapping[str, float] = field(default_factory=used)

    def record(self) -> Record:
        results = {each.key: each for each in self.results}  # some are asked for twice
        stages = (StageRecord(key.rpartition("/")[0], each.digest, **each.provenance) for key, each in results.items())
        return Record(self.configuration, self.inputs, tuple(stages))

    def metrics(self) -> dict[str, float]:
        """Return what the run has cost so far, and the seconds of each stage: none where its result was there already."""
        cost = {name: value - self.before[name] for name, value in used().items()}
        for key in dict.fromkeys([*(each.key for each in self.results), *self.seconds]):
            name = f"seconds/{key.rpartition('/')[0]}"
            cost[name] = cost.get(name, 0.0) + self.seconds.get(key, 0.0)
        return cost

    def curves(self) -> dict[str, Sequence[tuple[int, float]]]:
        """Return the curves of every stage's training, each with its folder in front."""
        folders = {each.key.rpartition("/")[0]: each.curves for each in self.results}
        return {f"{folder}/{name}": curve for folder, curves in folders.items() for name, curve in curves.items()}


def inputs_of(values: Any) -> dict[str, str]:
    """Return path -> sha256 of the files that a configuration names, of folders with all that lies in them."""
    if isinstance(values, Mapping | list | tuple):
        each = values.values() if isinstance(values, Mapping) else values
        return {name: digest for value in each for name, digest in inputs_of(value).items()}
    scheme, _, rest = str(values).partition(":")
    if scheme.rpartition("=")[2] not in SCHEMES:
        return {}
    parts = {part for text in rest.split(",") for part in (text, *text.partition(":")) if part}  # ARCHITECTURE:PATH
    files = [file for path in map(Path, parts) for file in (path.rglob("*") if path.is_dir() else [path])]
    return {str(file): digest_of(file) for file in sorted(files) if file.is_file()}
