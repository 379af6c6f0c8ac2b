"""A cascade of the pretrained MiniLM on a public data set, in a registry of the benchmark's own, made by the real flow.

The flow fine-tunes the encoder as the large model, distils the small levels from it, and plans. Texts to ask the service are
those of the test split, which nothing was trained or planned with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pliant.benchmarks import places, released
from pliant.benchmarks.cascade.demo import TextExample
from pliant.benchmarks.cascade.material import FOLDER, SOURCES
from pliant.benchmarks.harness import Stage
from pliant.cascade.artifact import Cascade
from pliant.flows import settings
from pliant.flows.cascade.config import read
from pliant.flows.cascade.stages import load_data
from pliant.flows.champions import champion_artifacts

FILES = {
    name: FOLDER / f"{file}.parquet"
    for name, file in (("banking77", "banking77_train"), ("sst2", "sst2_train"), ("massive", "massive_scenario_train"))
}
"""Data set -> its table."""
TEXTS = {"sst2": 12_000}
"""How many are read, where not all are."""
EPOCHS, TRAIN_LENGTH = 3, 32  # fewer epochs than the contest has, of shorter texts: some five minutes on one core


@dataclass(frozen=True, slots=True)
class Served:
    """`project`: where the registry is. `levels`, `candidates`: of the plan. `pool`: task -> its test texts and labels."""

    project: settings.Settings
    levels: Sequence[str]
    candidates: Sequence[str]
    pool: Mapping[str, Sequence[TextExample]]


def prepared(name: str, stage: Stage) -> Served:
    """Return the champion of a data set of `FILES`; what was trained in an earlier run is kept.

    Raises `InputError` where the encoder is not installed.
    """
    project, overrides = released.registry(f"bench-cascade-{name}"), flow_settings(name)
    with stage(f"{name}: train, distil and plan") as progress:
        released.run_flow(project, "cascade", overrides)
        progress(1, 1)
    cascade = champion_artifacts(project, Cascade)[name]
    (data,) = load_data(read(overrides=overrides))
    labels = [data.classes[int(number)] for number in data.labels[data.split.test]]
    texts = [TextExample(*pair) for pair in zip(data.texts(data.split.test), labels, strict=True)]
    levels, candidates = ([each.name for each in some] for some in (cascade.levels, cascade.candidates))
    return Served(project, levels, candidates, {name: texts})


def flow_settings(name: str) -> dict[str, Any]:
    """Return the flow's settings for a data set: a short training, and a short look at the latency."""
    source = SOURCES[name]
    training = replace(source.training, epochs=EPOCHS, train_length=TRAIN_LENGTH, held_out=0.1, patience=0)
    task = {"data": f"parquet:{FILES[name]}", "name": name}
    return {
        "tasks": [task | ({"limit": TEXTS[name]} if name in TEXTS else {})],
        "levels": [{"name": "large", "start": f"path:{places.minilm()}", "classifier": asdict(training)}],
        "plan": {"drop": 0.01, "further": ()},
        "latency": {"lengths": (8, 16, 32, 64), "batches": (1, 4, 16), "timer": {"most": 20, "budget": 0.15}},
        "gate": {"seeds": 1},
        "reference": {"seconds": 0.5},
        "threads": 1,
    }
