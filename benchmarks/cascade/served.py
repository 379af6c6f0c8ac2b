"""A cascade of the pretrained MiniLM on a data set, in a registry of the benchmark's own, made by the real flow.

The flow fine-tunes the encoder as the large model, distils the small levels from it, and plans. Beside it stands a cascade
of the same texts whose small levels are those of the published one (Tabi): the encoder's first layers, each fine-tuned for
itself. Texts to ask the service are those of the test split, which nothing was trained or planned with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from pliant.benchmarks import places, released
from pliant.benchmarks.cascade import material
from pliant.benchmarks.cascade.demo import TextExample
from pliant.benchmarks.cascade.material import FOLDER, LONG, PAIRS, SMALL_EPOCHS, SOURCES, TABI
from pliant.benchmarks.harness import Stage
from pliant.cascade.artifact import Cascade
from pliant.flows import settings
from pliant.flows.cascade.config import read
from pliant.flows.cascade.stages import load_data
from pliant.flows.champions import champion_artifacts

TABLES = {
    "banking77": "banking77_train",
    "sst2": "sst2_train",
    "massive": "massive_scenario_train",
    "mrpc": "mrpc_train",
}
"""Data set -> its table in the shared data folder."""
WRITTEN = PAIRS, LONG
"""Data sets that come from material.py, and whose tables are written here."""
SETS = (*TABLES, *WRITTEN)
TEXTS = {"sst2": 12_000}
"""How many are read, where not all are."""
EPOCHS, TRAIN_LENGTH = 3, 32  # fewer epochs than the contest has, of shorter texts: some five minutes on one core
OWN = "own"
"""Behind a task's name: the cascade of the published one's levels."""


@dataclass(frozen=True, slots=True)
class Served:
    """`project`: where the registry is. `cascades`: by task. `pool`: task -> its test texts and labels."""

    project: settings.Settings
    cascades: Mapping[str, Cascade]
    pool: Mapping[str, Sequence[TextExample]]


def prepared(name: str, stage: Stage, beside: bool) -> Served:
    """Return the champion of a data set of `SETS`, and beside it, where asked for, the published cascade's.

    What was trained in an earlier run is kept.

    Raises `InputError` where the encoder or the data are not there.
    """
    project = released.registry(f"bench-cascade-{name}")
    file = project.home / f"{name}.parquet" if name in WRITTEN else places.existing(FOLDER / f"{TABLES[name]}.parquet")
    if name in WRITTEN and not file.is_file():
        write(name, file)
    for own in (False, True)[: 1 + beside]:
        with stage(f"{name}: train{', distil' * (not own)} and plan{' the levels of Tabi' * own}") as progress:
            released.run_flow(project, "cascade", flow_settings(name, file, own))
            progress(1, 1)
    cascades = champion_artifacts(project, Cascade)
    (data,) = load_data(read(overrides=flow_settings(name, file, False)))
    labels = [data.classes[int(number)] for number in data.labels[data.split.test]]
    texts = [TextExample(*pair) for pair in zip(data.texts(data.split.test), labels, strict=True)]
    return Served(project, cascades, dict.fromkeys(cascades, texts))


def write(name: str, file: Path) -> None:
    """Write a data set of material.py as a table, without its texts whose labels are hidden."""
    data, _ = material.read(name)
    rows = np.concatenate([data.split.fit, data.split.profiling])
    texts = pandas.DataFrame(data.texts(rows), columns=["sentence1", "sentence2"])
    if data.second is None:
        texts = texts[["sentence1"]].rename(columns={"sentence1": "sentence"})
    texts.assign(label=[data.classes[int(number)] for number in data.labels[rows]]).to_parquet(file)


def flow_settings(name: str, file: Path, own: bool) -> dict[str, Any]:
    """Return the flow's settings for a data set, with our levels or the published cascade's `own`.

    The training is short, and so is the look at the latency. Long texts are read and measured whole.
    """
    long = name == LONG
    training = replace(SOURCES[name].training, epochs=EPOCHS, held_out=0.1, patience=0)
    training = training if long else replace(training, train_length=TRAIN_LENGTH * (1 + (name in ("mrpc", PAIRS))))
    start = f"path:{places.minilm()}"
    small = [(f"layers{depth}", replace(training, layers=depth, epochs=SMALL_EPOCHS * EPOCHS)) for depth in TABI if own]
    levels = [
        {"name": level, "start": start, "classifier": asdict(each)} for level, each in [*small, ("large", training)]
    ]
    task = {"data": f"parquet:{file}", "name": f"{name}-{OWN}" if own else name}
    lengths = (64, 128, 256, 384, 512) if long else (8, 16, 32, 64, *([128] if name in ("mrpc", PAIRS) else []))
    return {
        "tasks": [task | ({"limit": TEXTS[name]} if name in TEXTS else {})],
        "levels": levels,
        "distil": {"bag": False, "exits": ()} if own else {},
        "plan": {"drop": 0.01, "further": ()},
        "latency": {"lengths": lengths, "batches": (1, 4, 16), "timer": {"most": 20, "budget": 0.15}},
        "gate": {"seeds": 1},
        "reference": {"seconds": 0.5},
        "threads": 1,
    }
