"""`pliant rebuild`: make a release's artifacts again from what its runs have kept, and say of each whether it is the same.

In an empty home and without publishing, each stage with as many threads as then. Knows no system.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isabstract
from typing import Any

from pydantic import TypeAdapter

from pliant import labelling, systems
from pliant.device import threads
from pliant.errors import RegistryError
from pliant.flows.config import check_device
from pliant.flows.configuration import Configuration, from_json
from pliant.flows.pipeline import Pipeline
from pliant.flows.record import DOCUMENT, Record, Recorder, StageRecord, inputs_of
from pliant.flows.release import flatten, open_registry
from pliant.flows.settings import Settings
from pliant.flows.stage import A, Stage, StageResult
from pliant.progress import silent
from pliant.registry.store import FolderStore
from pliant.temporary import OwnedFolder

EQUAL, UNEXPLAINED = "equal", "nothing explains the difference"
TIMED = "it holds measured seconds, of which no second measurement is equal"
ELSEWHERE = "not from a configuration: `pliant profile`, what a service observed, or an earlier version made it"
COMPARED = ("settings", "machine", "precision", "code")
SHOWN, LONG = 4, 60  # differences, and characters of a value


@dataclass(frozen=True, slots=True)
class Row:
    """A stage's folder, the models that it was published as, its digests then and now (empty: not made), and why."""

    folder: str
    models: tuple[str, ...]
    then: str
    now: str
    why: str


def rebuild(project: Settings, system: str, number: int) -> list[Row]:
    """Return a row for each stage that made the release. Raises `RegistryError`, and `InputError` where data have gone."""
    registry = open_registry(project, system)
    release = wanted = registry.release(system, number) if registry.exists() else None
    if wanted is None:
        raise RegistryError(f"{system} has no release {number}: `pliant status {system}` lists them")
    rows, left = list[Row](), dict(wanted.digests)
    while release is not None and left:  # what this one's run has not made stems from a former one
        text = registry.document(release.run, DOCUMENT) if release.run else None
        record = TypeAdapter(Record).validate_json(text) if text else Record()
        digests = {each.digest for each in record.stages}
        if record.configuration and digests & set(left.values()):
            again = _again(project, system, record, from_json(record.configuration, release))
            rows += compare(record, again, left)
            left = {name: digest for name, digest in left.items() if digest not in digests}
        release = registry.release(system, release.former) if release.former else None
    if not rows:
        raise RegistryError(f"{wanted.name} keeps no record of how it was made: a flow of an earlier version made it")
    return rows + [Row("", (name,), digest, "", ELSEWHERE) for name, digest in left.items()]


def _again(project: Settings, system: str, record: Record, given: Configuration) -> Record:
    """Run the stages of a record again, each with as many threads as then, in an empty home but for given labels."""
    counts = {each.folder: int(each.machine.get("threads", 1)) for each in record.stages}
    home = OwnedFolder()
    os.environ["PLIANT_HOME"] = str(home.path)
    try:
        if (labels := labelling.folder_of(project.home_of(system))).is_dir():
            shutil.copytree(labels, labelling.folder_of(home.path))
        config = systems.system(system).part("flows", "config").read(given.source, given.laid_over)
        check_device(config)
        recorder, store = Recorder(inputs=inputs_of((given.file, given.laid_over))), FolderStore(home.path / "store")

        def run(stage: Stage[A], *args: Any) -> StageResult[A]:
            with threads(counts.get(stage.key(*args).rpartition("/")[0], 1)):
                result = stage.result(store, *args)
            recorder.results.append(result)
            return result

        known = vars(systems.system(system).part("flows", "flow")).values()
        kinds = (
            each for each in known if isinstance(each, type) and issubclass(each, Pipeline) and not isabstract(each)
        )
        pipeline = next(kinds)(config, run)
        for unit in pipeline.load(silent):
            pipeline.make(unit)
        return recorder.record()
    finally:
        os.environ["PLIANT_HOME"] = str(project.home)
        home.remove()


def compare(record: Record, again: Record, models: Mapping[str, str]) -> Iterator[Row]:
    """Yield a row for each stage of a record. `models`: digest of each that is looked for."""
    waiting: dict[str, list[StageRecord]] = defaultdict(list)
    for each in again.stages:
        waiting[each.folder].append(each)
    files, other = _changes(record.inputs, again.inputs), dict[str, str]()  # digest of what differs -> its folder
    for then in record.stages:
        now, why = waiting[then.folder].pop(0) if waiting[then.folder] else None, EQUAL
        if now is None or now.digest != then.digest:
            why = _why(then, now, files, other)
            other[then.digest] = then.folder
        names = tuple(sorted(name for name, digest in models.items() if digest == then.digest))
        yield Row(then.folder, names, then.digest, now.digest if now else "", why)


def _why(then: StageRecord, now: StageRecord | None, files: Sequence[str], other: Mapping[str, str]) -> str:
    """Return what explains that a stage's result differs, or is not there, in a sentence."""
    if then.timed:
        return TIMED
    causes: list[str] = []
    if now is not None:
        before, after = ({name: getattr(each, name) for name in COMPARED} for each in (then, now))
        causes += files if then.settings != now.settings else ()
        causes += _changes(flatten(before), flatten(after))
        causes += _changes({"commit": then.commit}, {"commit": now.commit}) if then.code != now.code else ()
    more = [f"and {len(causes) - SHOWN} more"] if len(causes) > SHOWN else []
    earlier = {digest for digests in then.results.values() for digest in digests} if now is not None else {*other}
    if folders := sorted({other[digest] for digest in earlier & other.keys()}):
        more.append(f"it follows from {', '.join(folders)}")
    return "; ".join([*causes[:SHOWN], *more]) or UNEXPLAINED


def _changes(then: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return what differs, with both sides."""
    names = [name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name)]
    return [f"{name}: {str(then.get(name))[:LONG]} then, {str(now.get(name))[:LONG]} now" for name in names]
