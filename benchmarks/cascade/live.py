"""The champion cascade behind its endpoint, with held-out texts for it: for the demo.

Texts are those of the embedded corpus that the champion was neither trained nor planned with.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.cascade.replay import LoadConfig, Loaded, TextExample, compare
from benchmarks.endpoint import serving
from flows import settings
from flows.cascade.champions import champion_artifacts
from pliant.cascade.artifact import Cascade
from pliant.errors import RegistryError
from pliant.progress import Progress, silent
from training import docstrings
from training.text_data import TextData

MOST_TEXTS = 2000


def live_cascade() -> tuple[Cascade, TextData]:
    """Return the champion of the first embedded task, and its data. Raises `RegistryError` without one."""
    champions = champion_artifacts(settings.read())
    for cascade in champions.values():
        if (data := _data(cascade)) is not None:
            return cascade, data
    has = f"has no champion but {', '.join(champions)}" if champions else "holds no champion of the cascade system"
    raise RegistryError(f"the registry {has}: run `pliant train cascade` first")


def _data(cascade: Cascade) -> TextData | None:
    """Return the embedded data set that it was trained on, if it was one."""
    for task in docstrings.TASKS:
        data = docstrings.load(task, cascade.task)
        if data.fingerprint == cascade.data and data.classes:
            return data
    return None


def pool(data: TextData) -> list[TextExample]:
    """Return texts of the test split with their labels."""
    index = data.split.test[:MOST_TEXTS]
    labels = [data.classes[int(number)] for number in data.labels[index]]
    return [TextExample(text, label) for text, label in zip(data.texts(index), labels, strict=True)]


def largest(cascade: Cascade) -> str:
    """Return the name of the candidate that is the largest level alone."""
    return f"only {cascade.levels[-1].name}"


def measure(candidates: Sequence[str], config: LoadConfig, progress: Progress = silent) -> tuple[Cascade, Loaded]:
    """Serve one load under each of these candidates, and by the largest model alone, whose capacity sets the rate."""
    cascade, data = live_cascade()
    known = {candidate.name for candidate in cascade.candidates}
    names = [*(name for name in candidates if name in known), largest(cascade)]
    levels = [level.name for level in cascade.levels]
    with serving("cascade") as url:
        return cascade, compare(url, cascade.task, levels, names, pool(data), config, progress)
