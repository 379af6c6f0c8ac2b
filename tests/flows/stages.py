"""Every stage of every system in tiny settings.

Each function of SYSTEMS calls `run(stage, *arguments)` once a stage, in their order, and goes on with the result that it
returns: real ones where it makes them, or any others, as keys need no more than digests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pliant.flows.bins import config as bins_config
from pliant.flows.bins import stages as bins_stages
from pliant.flows.cascade import config as cascade_config
from pliant.flows.cascade import stages as cascade_stages
from pliant.flows.champions import Champion
from pliant.flows.packing import config as packing_config
from pliant.flows.packing import learn
from pliant.flows.packing import stages as packing_stages
from pliant.flows.packing.learn import LoadedChampion
from pliant.flows.packing.stages import select_prompts
from pliant.flows.stage import Run
from pliant.flows.tokens import champions as tokens_champions
from pliant.flows.tokens import config as tokens_config
from pliant.flows.tokens import stages as tokens_stages
from pliant.flows.tokens.stages import Bundle
from pliant.progress import silent
from pliant.registry.package import Published
from pliant.training.data import Split, digits
from pliant.training.packing import generator as generators
from tests.fixtures.bins import tiny as tiny_bins
from tests.fixtures.cascade import tiny as tiny_cascade
from tests.fixtures.packing import tiny as tiny_packing
from tests.fixtures.tokens import tiny as tiny_tokens
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

SPLITS = ("profiling", "test")


def with_changes(setting: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The setting with changes laid over it, and over its tables."""
    laid = {key: {**setting.get(key, {}), **value} for key, value in changes.items() if isinstance(value, Mapping)}
    return {**setting, **changes, **laid}


def tokens(folder: Path, run: Run, **changes: Any) -> None:
    del folder
    config = tokens_config.read(overrides=with_changes(tiny_tokens.setting(arithmetic={"precision": "auto"}), changes))
    whole = digits("digit")
    data = replace(whole, split=Split(whole.split.fit[:256], whole.split.profiling[:10], whole.split.test[:10]))
    backbone = run(tokens_stages.FOUNDATION, config, data)
    task = run(tokens_stages.TASK, config, data, backbone)
    run(tokens_stages.PROFILE, config, backbone, [task])
    old = tiny_task("digit", data.classes, "sha256:b", gammas=())
    champion = Bundle(tiny_backbone(), (old,), tiny_profile("sha256:b", "cpu"))
    run(tokens_champions.CHAMPION, config, champion, old, "sha256:t", data)


def cascade(folder: Path, run: Run, **changes: Any) -> None:
    tiny_cascade.write_texts(folder)
    config = cascade_config.read(overrides=with_changes(tiny_cascade.setting(folder), changes))
    [data] = cascade_stages.load_data(config)
    levels = {level.name: run(cascade_stages.LEVEL, config, level, data) for level in config.levels_of(config.tasks[0])}
    lesson = run(cascade_stages.LESSON, config, data, (), levels["large"])
    bag = run(cascade_stages.BAG_STAGE, config, data, (), levels["large"], lesson)
    levels = {"bag": bag, "exit1": run(cascade_stages.EXIT_STAGE, config, data, levels["large"], lesson, 1), **levels}
    outputs, test = (run(cascade_stages.OUTPUTS, config, data, levels, split) for split in SPLITS)
    run(cascade_stages.LINEAR, data, test)
    latencies = run(cascade_stages.LATENCIES, config, data, levels)
    run(cascade_stages.PLAN, config, data, outputs, test, latencies)
    run(cascade_stages.LABELLED, data, outputs, ((0, 1),))


def bins(folder: Path, run: Run, **changes: Any) -> None:
    tiny_cascade.write_texts(folder)
    tried = {"engine": "auto", "tried": ["onnx", "eager"]}
    settings = tiny_bins.setting(folder, engine=tried, arithmetic={"precision": "auto"})
    config = bins_config.read(overrides=with_changes(settings, changes))
    [stream] = bins_stages.load_streams(config, silent)
    encoder = run(bins_stages.ENCODER, config, stream)
    lengths = run(bins_stages.LENGTHS, config, stream, encoder)
    latencies = run(bins_stages.LATENCIES, config, stream, encoder, folder)
    run(bins_stages.BINS, config, stream, encoder, lengths, latencies, folder)


def packing(folder: Path, run: Run, **changes: Any) -> None:
    tiny_packing.write_prompts(folder)
    path = tiny_packing.write_generator(folder)
    stages = packing_stages
    config = packing_config.read(overrides=with_changes(tiny_packing.setting(folder, precision="auto"), changes))
    generator = run(stages.generator_stage(config), config, None)
    lengths = run(stages.LENGTHS, config, generator, select_prompts(config, None))
    predictor = run(stages.PREDICTOR, config, generator, lengths)
    steps = run(stages.STEPS, config, generator)
    run(stages.PLAN, config, generator, lengths, predictor, steps)
    champion = Champion(tiny_packing.some_packing(), Published("things", 1, "sha256:p", "models:/things/1", {}))
    loaded = LoadedChampion(champion, generators.load(f"path:{path}", "float32"), tiny_packing.some_predictor())
    outputs = learn.read(tiny_packing.write_observed(folder / "observed.jsonl", champion, 60), 60)
    lengths = run(learn.OBSERVED, learn.observed_of(outputs, loaded, config.lengths))
    predictor = run(learn.PREDICTOR, config, loaded, lengths)
    run(learn.PLAN, config, loaded, lengths, predictor)


SYSTEMS: Mapping[str, Callable[..., None]] = {"tokens": tokens, "cascade": cascade, "bins": bins, "packing": packing}
