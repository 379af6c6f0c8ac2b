"""Every stage of every system in tiny settings: what gives its key, and what makes its result.

Each function of SYSTEMS calls `run(key, make)` once a stage, in their order, and goes on with the result that it returns:
real ones where it calls `make` with the key, or any others, as keys need no more than digests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from flows import stage as stage_module
from flows.bins import config as bins_config
from flows.bins import stages as bins_stages
from flows.cascade import config as cascade_config
from flows.cascade import feedback
from flows.cascade import stages as cascade_stages
from flows.champions import Champion
from flows.keys import StageResult
from flows.packing import config as packing_config
from flows.packing import learn, observed
from flows.packing import stages as packing_stages
from flows.packing.learn import LoadedChampion
from flows.packing.lengths import select_prompts
from flows.tokens import config as tokens_config
from flows.tokens import remeasure
from flows.tokens import stages as tokens_stages
from flows.tokens.stages import Bundle
from pliant.progress import silent
from registry.package import Published
from registry.store import FolderStore
from tests.fixtures.bins import tiny as tiny_bins
from tests.fixtures.cascade import tiny as tiny_cascade
from tests.fixtures.packing import tiny as tiny_packing
from tests.fixtures.tokens import tiny as tiny_tokens
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task
from training.data import Split, digits
from training.packing import generator as generators

Run = Callable[[Callable[[], str], Callable[[str], StageResult]], StageResult]

SPLITS = ("profiling", "test")


def each_of(run: Run, store: FolderStore):
    def each(stage, *args):
        result = run(lambda: stage.key(*args), lambda key: plain(stage.work(store, key, *args)))
        return stage_module.StageResult(stage.kind, store, result["key"], result["digest"], result.get("notes", {}))

    return each


def tokens(folder: Path, store: FolderStore, run: Run) -> None:
    del folder
    each, config = (
        each_of(run, store),
        tokens_config.read(overrides=tiny_tokens.setting(arithmetic={"precision": "auto"})),
    )
    whole = digits("digit")
    data = replace(whole, split=Split(whole.split.fit[:256], whole.split.profiling[:10], whole.split.test[:10]))
    backbone = each(tokens_stages.FOUNDATION, config, data)
    task = each(tokens_stages.TASK, config, data, backbone)
    each(tokens_stages.PROFILE, config, backbone, [task])
    old = tiny_task("digit", data.classes, "sha256:b", gammas=())
    champion = Bundle(tiny_backbone(), (old,), tiny_profile("sha256:b", "cpu"))
    each(remeasure.CHAMPION, config, champion, old, "sha256:t", data)


def cascade(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_cascade.write_texts(folder)
    each, config = each_of(run, store), cascade_config.read(overrides=tiny_cascade.setting(folder))
    [data] = cascade_stages.load_data(config)
    levels = {
        level.name: each(cascade_stages.LEVEL, config, level, data) for level in config.levels_of(config.tasks[0])
    }
    outputs, test = (each(cascade_stages.OUTPUTS, config, data, levels, split) for split in SPLITS)
    each(cascade_stages.LINEAR, data, test)
    latencies = each(cascade_stages.LATENCIES, config, data, levels)
    each(cascade_stages.PLAN, config, data, outputs, test, latencies)
    each(feedback.POOL, config, data.name, "test", outputs, test)


def bins(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_cascade.write_texts(folder)
    tried = {"engine": "auto", "tried": ["onnx", "eager"]}
    settings = tiny_bins.setting(folder, engine=tried, arithmetic={"precision": "auto"})
    config = bins_config.read(overrides=settings)
    [stream] = bins_stages.load_streams(config, silent)

    each = each_of(run, store)
    encoder = each(bins_stages.ENCODER, config, stream)
    lengths = each(bins_stages.LENGTHS, config, stream, encoder)
    latencies = each(bins_stages.LATENCIES, config, stream, encoder, folder)
    each(bins_stages.BINS, config, stream, encoder, lengths, latencies, folder)


def plain(made: stage_module.StageResult) -> StageResult:
    return {"key": made.key, "digest": made.digest, "notes": dict(made.notes)}


def packing(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_packing.write_prompts(folder)
    path = tiny_packing.write_generator(folder)
    each, stages = each_of(run, store), packing_stages
    config = packing_config.read(overrides=tiny_packing.setting(folder, precision="auto"))
    generator = each(stages.generator_stage(config), config, None)
    lengths = each(stages.LENGTHS, config, generator, select_prompts(config, None))
    predictor = each(stages.PREDICTOR, config, generator, lengths)
    steps = each(stages.STEPS, config, generator)
    each(stages.PLAN, config, generator, lengths, predictor, steps)
    champion = Champion(
        tiny_packing.some_packing(), Published("things", 1, "sha256:p", "models:/things/1", {}), "packing"
    )
    loaded = LoadedChampion(champion, generators.load(f"path:{path}", "float32"), tiny_packing.some_predictor())
    outputs = observed.read(tiny_packing.write_observed(folder / "observed.jsonl", champion, 60), 60)
    lengths = each(learn.OBSERVED, learn.observed_of(outputs, loaded, config.lengths))
    predictor = each(learn.PREDICTOR, config, loaded, lengths)
    each(learn.PLAN, config, loaded, lengths, predictor)


SYSTEMS: Mapping[str, Callable[[Path, FolderStore, Run], None]] = {
    "tokens": tokens,
    "cascade": cascade,
    "bins": bins,
    "packing": packing,
}
