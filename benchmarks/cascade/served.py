"""A cascade of the pretrained MiniLM on a data set, in a registry of the benchmark's own, made by the real flow.

The flow fine-tunes the encoder as the large model, distils the small levels from it, and plans. Beside it stands a cascade
of the same texts whose small levels are those of the published one (Tabi): the encoder's first layers, each fine-tuned for
itself. Texts to ask the service are those of the test split, which nothing was trained or planned with. For long texts
the large model is the contest's, whose training takes an hour of a core, taken over as a user's own would be: its held-out
texts are the data set, and those that it was trained on come without labels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from safetensors.numpy import save_file

from pliant.benchmarks import places, released
from pliant.benchmarks.cascade import material
from pliant.benchmarks.cascade.demo import TextExample
from pliant.benchmarks.cascade.material import FOLDER, LONG, PAIRS, SMALL_EPOCHS, SOURCES, TABI
from pliant.benchmarks.harness import Context
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


def prepared(name: str, context: Context) -> Served:
    """Return the champion of a data set of `SETS`, and beside it, on the full setting, the published cascade's.

    What was trained in an earlier run is kept; of long texts there is no other cascade. Raises `InputError` where the
    encoder or the data are not there.
    """
    project, beside = released.registry(f"bench-cascade-{name}"), context.full and name != LONG
    file = project.home / f"{name}.parquet" if name in WRITTEN else places.existing(FOLDER / f"{TABLES[name]}.parquet")
    if name in WRITTEN and not file.is_file():
        write(name, file, context)
    for own in (False, True)[: 1 + beside]:
        with context.stage(f"{name}: train{', distil' * (not own)} and plan{' the levels of Tabi' * own}") as progress:
            released.run_flow(project, "cascade", flow_settings(name, file, own))
            progress(1, 1)
    cascades = champion_artifacts(project, Cascade)
    (data,) = load_data(read(overrides=flow_settings(name, file, False)))
    labels = [data.classes[int(number)] for number in data.labels[data.split.test]]
    texts = [TextExample(*pair) for pair in zip(data.texts(data.split.test), labels, strict=True)]
    return Served(project, cascades, dict.fromkeys(cascades, texts))


def write(name: str, file: Path, context: Context) -> None:
    """Write a data set of material.py as a table; of long texts also the large model, and what it was trained on."""
    data, hidden = material.read(name)
    rows = data.split.profiling if name == LONG else np.concatenate([data.split.fit, data.split.profiling])
    texts = pandas.DataFrame(data.texts(rows), columns=["sentence1", "sentence2"]).dropna(axis=1)
    texts.assign(label=[data.classes[int(number)] for number in data.labels[rows]]).to_parquet(file)
    if name == LONG:
        seen = pandas.DataFrame([*data.texts(data.split.fit), *hidden], columns=["sentence1", "sentence2"])
        seen.dropna(axis=1).to_parquet(file.with_stem("unlabelled"))
        large, folder = material.large_of(name, context), file.parent / "large"
        folder.mkdir(exist_ok=True)
        names = {str(number): kind for number, kind in enumerate(large.classes)}
        settings_of = json.loads(large.config) | {
            "id2label": names,
            "label2id": {kind: int(n) for n, kind in names.items()},
        }
        (folder / "config.json").write_text(json.dumps(settings_of))
        (folder / "tokenizer.json").write_text(large.tokenizer)
        save_file(dict(large.weights), folder / "model.safetensors", {"format": "pt"})


def flow_settings(name: str, file: Path, own: bool) -> dict[str, Any]:
    """Return the flow's settings for a data set, with our levels or the published cascade's `own`.

    The training is short, and so is the look at the latency.
    """
    pairs, long = name in ("mrpc", PAIRS), name == LONG
    training = replace(SOURCES[name].training, epochs=EPOCHS, held_out=0.1, patience=0)
    training = replace(training, train_length=TRAIN_LENGTH * (1 + pairs))
    start = f"path:{places.minilm()}"
    small = [(f"layers{depth}", replace(training, layers=depth, epochs=SMALL_EPOCHS * EPOCHS)) for depth in TABI if own]
    levels: list[dict[str, Any]] = [
        {"name": level, "start": start, "classifier": asdict(each)} for level, each in [*small, ("large", training)]
    ]
    task: dict[str, Any] = {"data": f"parquet:{file}", "name": f"{name}-{OWN}" if own else name}
    lengths = (64, 128, 256, 384, 512) if long else (8, 16, 32, 64, *([128] if pairs else []))
    if long:
        task |= {"unlabelled": f"parquet:{file.with_stem('unlabelled')}", "columns": {"text": "sentence1"}}
        levels = [
            {
                "name": "large",
                "start": f"path:{file.parent / 'large'}",
                "fine_tune": False,
                "classifier": {"max_length": 512},
            }
        ]
    return {
        "tasks": [task | ({"limit": TEXTS[name]} if name in TEXTS else {})],
        "levels": levels,
        "distil": {"bag": False, "exits": ()} if own else {},
        "plan": {"drop": 0.01, "further": ()},
        "latency": {"lengths": lengths, "batches": (1, 4, 16), "timer": {"most": 20, "budget": 0.15}},
        "gate": {"seeds": 1, "below_linear": long},  # a linear model is better on the docstrings: 0.90 right, not 0.79
        "reference": {"seconds": 0.5},
        "threads": 1,
    }
