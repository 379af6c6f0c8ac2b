"""What a whole flow of each system is run with in tests, in tiny settings, and what it makes then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pliant.flows.run import run_connected
from tests.fixtures.bins import tiny as bins
from tests.fixtures.cascade import tiny as cascade
from tests.fixtures.packing import tiny as packing
from tests.fixtures.runs import Runs
from tests.fixtures.tokens import tiny as tokens

THINGS = ("things: gate", "publish")


@dataclass(frozen=True)
class Flow:
    """`write` puts data into a folder; `setting` is the tiny one, on these data.

    `models`: names of what is published; `task`: of these, what stands for the task; `always`: bars of what is never cached;
    `lost`: folder of a result in the store, and the bar of its stage; `changed`: changes of the setting, the bars of what is
    made again, and which models are new then; `logged`: files, a parameter and metrics of the run; `wrong`: changes of the
    setting and the beginning of the sentence that refuses them; `asked`: an input and the columns of the answer.
    """

    write: Callable[[Path], object]
    setting: Callable[..., dict[str, Any]]
    models: tuple[str, ...]
    task: str
    always: tuple[str, ...]
    lost: tuple[str, str]
    changed: tuple[tuple[Mapping[str, Any], tuple[str, ...], tuple[str, ...]], ...]
    logged: tuple[tuple[str, ...], tuple[str, str], tuple[str, ...]]
    wrong: tuple[tuple[Mapping[str, Any], str], ...]
    asked: tuple[Any, tuple[str, ...]]
    named: Mapping[str, Any] = field(default_factory=dict)  # laid over the setting in every run


def _prompts(folder: Path) -> None:
    packing.write_prompts(folder)
    packing.write_generator(folder)


TEXTS = pd.DataFrame({"text": ["an old oak", "some iron and the"]})
ABSENT = {"data": ["json:absent.jsonl"]}, "data is absent.jsonl (No such file or directory), but must be a readable"

FLOWS: Mapping[str, Flow] = {
    "tokens": Flow(
        write=lambda folder: None,
        setting=lambda _folder, **changes: tokens.setting(**changes),
        models=("pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit"),
        task="pliant-tokens-task-digit",
        always=("gate", "publish"),
        lost=("tokens/task-digit", "task digit"),
        changed=(
            ({"gate": {"seeds": 2, "tolerance": 1.0}}, (), ()),
            (
                {"task": {"gammas": [2], "epochs": 0.05, "head_steps": 5, "head_images": 90}},
                ("task digit", "latency profile"),
                ("pliant-tokens-task-digit", "pliant-tokens-profile"),
            ),
        ),
        logged=(
            ("gate.json", "training.json", "tokens-trade-off.json", "tokens-trade-off.html"),
            ("task.head_steps", "5"),
            ("test_accuracy.digit", "images_per_second", "training_seconds.task-digit"),
        ),
        wrong=(
            ({"data": ["parquet:absent.parquet"]}, "data is absent.parquet (No such file or directory), "),
            ({"backbone": "keras:vit"}, "backbone is keras:vit, but must be embedded, timm:ARCHITECTURE or file:"),
        ),
        asked=(np.zeros((3, 16, 16, 3), np.uint8), tuple("0123456789")),
    ),
    "bins": Flow(
        write=cascade.write_texts,
        setting=bins.setting,
        models=("pliant-bins-encoder-things", "pliant-bins-things"),
        task="pliant-bins-things",
        always=THINGS,
        lost=("bins/lengths-things", "things: lengths"),
        changed=(({"edges": {"count": 2, "batches": [1, 2]}}, ("things: bins",), ("pliant-bins-things",)),),
        logged=(
            ("gate.json", "plan-things.json", "encoder-things.json", "staircase-things.png", "curves-things.png"),
            ("embedded.scratch.width", "16"),
            ("test_accuracy.things", "seconds.padded_to_bins.things", "bins/encoder-things/epoch/held_out_loss"),
        ),
        wrong=(
            ABSENT,
            ({"encoder": "path:/nowhere"}, "encoder is /nowhere, but must be an existing folder"),
            ({"lengths": ["parquet:none.parquet"]}, "lengths of things is parquet:none.parquet has no such file"),
            ({"engine": {"engine": "graphs"}}, "engine is graphs, but must be"),
        ),
        asked=(TEXTS, ("label", "confidence")),
        named={"other_device": True},  # champions of two classes of device take turns here
    ),
    "cascade": Flow(
        write=cascade.write_texts,
        setting=cascade.setting,
        models=(
            *(f"pliant-cascade-model-things-{level}" for level in ("bag", "exit1", "small", "large")),
            "pliant-cascade-task-things",
        ),
        task="pliant-cascade-task-things",
        always=THINGS,
        lost=("cascade/outputs-things-test", "things: outputs, test"),
        changed=(({"plan": {"drop": 0.05}}, ("things: plan",), ("pliant-cascade-task-things",)),),
        logged=(
            ("gate.json", "training-things.json", "candidates-things.png", "reliability-things-bag.png"),
            ("levels.0.scratch.width", "16"),
            (
                "test_accuracy.default.things",
                "cascade/model-things-small/epoch/held_out_loss",
                "parameters.things.large",
            ),
        ),
        wrong=(
            ABSENT,
            (
                {"levels": [{"name": "a", "start": "keras:x"}]},
                "start of level a is keras:x, but must be scratch, path:",
            ),
        ),
        asked=(TEXTS, ("label", "confidence", "level")),
        named={"other_device": True},
    ),
    "packing": Flow(
        write=_prompts,
        setting=packing.setting,
        models=("pliant-packing-generator-things", "pliant-packing-predictor-things", "pliant-packing-things"),
        task="pliant-packing-things",
        always=THINGS,
        lost=("packing/predictor-things", "things: predictor"),
        changed=(
            (
                {"memory": {**packing.setting(Path())["memory"], "pages": 32}},
                ("things: step profile", "things: plan"),
                ("pliant-packing-things",),
            ),
            (
                {"lengths": {**packing.setting(Path())["lengths"], "temperature": 0.5}},
                ("things: lengths", "things: predictor", "things: plan"),
                ("pliant-packing-predictor-things", "pliant-packing-things"),
            ),
        ),
        logged=(
            ("gate.json", "stages.json", "plan.json", "pace.json", "predicted.png", "lengths.png"),
            ("memory.pages", "24"),
            ("bucket_accuracy", "pinball", "simulated.mean_seconds.paged", "simulated.p99_seconds.default"),
        ),
        wrong=(
            ({"prompts": "json:none.jsonl"}, "prompts is none.jsonl (No such file"),
            ({"device": "cuda:9"}, "device is cuda:9"),
        ),
        asked=(
            pd.DataFrame({"arrival": [0.0, 0.1], "prompt_tokens": [5, 9], "output_tokens": [10, 3]}),
            ("first_token", "seconds", "preemptions"),
        ),
    ),
}


@dataclass
class World:
    """A folder with data, state and registry of a system's own, in which its flow is run.

    `first`: what the very first run released.
    """

    system: str
    folder: Path
    runs: Runs = field(init=False)
    first: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = Runs(self.run)
        self.first = self.runs()[0]

    @property
    def flow(self) -> Flow:
        return FLOWS[self.system]

    def setting(self, **changes: Any) -> dict[str, Any]:
        return self.flow.setting(self.folder, **{**self.flow.named, **changes})

    def run(self, **changes: Any) -> dict[str, Any]:
        return run_connected(self.system, None, self.setting(**changes), new_task=True)
