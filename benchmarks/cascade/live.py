"""The champion cascade behind its endpoint, with held-out texts to ask it: for the demo, the load and the bad input.

Texts are those of the embedded corpus that the champion was neither trained nor planned with.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cascade.replay import LoadConfig, Loaded, TextExample, compare
from benchmarks.endpoint import serving
from flows import settings
from flows.cascade.live import champion
from pliant.cascade.artifact import Cascade
from pliant.errors import RegistryError
from pliant.progress import Progress, silent
from training import docstrings
from training.text_data import TextData

MOST_TEXTS = 2000


def live_cascade() -> tuple[Cascade, TextData]:
    """The champion of the first task that the embedded corpus has, and its data. Raises `RegistryError` without one."""
    found = champion(settings.read())
    for cascade in found.values():
        if (data := _data(cascade)) is not None:
            return cascade, data
    has = f"has no champion but {', '.join(found)}" if found else "holds no champion of the cascade system"
    raise RegistryError(f"the registry {has}: run `pliant train cascade` first")


def _data(cascade: Cascade) -> TextData | None:
    """The embedded data set that it was trained on, if it was one."""
    for task in docstrings.TASKS:
        data = docstrings.load(task, cascade.task)
        if data.fingerprint == cascade.data and data.classes:
            return data
    return None


def pool(data: TextData) -> list[TextExample]:
    """Texts of the test split with their labels."""
    index = data.split.test[:MOST_TEXTS]
    labels = [data.classes[int(number)] for number in data.labels[index]]
    return [TextExample(text, label) for text, label in zip(data.texts(index), labels, strict=True)]


def largest(cascade: Cascade) -> str:
    """The name of the candidate that is the largest level alone."""
    return f"only {cascade.levels[-1].name}"


def measure(candidates: Sequence[str], config: LoadConfig, progress: Progress = silent) -> tuple[Cascade, Loaded]:
    """One load under each of these candidates, and the largest model alone at the end, whose capacity sets the rate."""
    cascade, data = live_cascade()
    known = {candidate.name for candidate in cascade.candidates}
    names = [*(name for name in candidates if name in known), largest(cascade)]
    levels = [level.name for level in cascade.levels]
    with serving("cascade") as service:
        return cascade, compare(service.url, cascade.task, levels, names, pool(data), config, progress)
