"""Every stage of every system in tiny settings: what gives its key, and what makes its result.

Each function of SYSTEMS calls `run(key, make)` once a stage, in their order, and goes on with the result that it returns:
real ones where it calls `make` with the key, or any others, as keys need no more than digests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from flows.bins import config as bins_config
from flows.bins import stages as bins_stages
from flows.cascade import config as cascade_config
from flows.cascade import feedback
from flows.cascade import stages as cascade_stages
from flows.keys import StageResult, keep
from flows.packing import config as packing_config
from flows.packing import learn, observed
from flows.packing import stages as packing_stages
from flows.packing.champions import Champion
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


def tokens(folder: Path, store: FolderStore, run: Run) -> None:
    del folder
    stages, config = tokens_stages, tokens_config.read(overrides=tiny_tokens.setting(arithmetic={"precision": "auto"}))
    whole = digits("digit")
    data = replace(whole, split=Split(whole.split.fit[:256], whole.split.profiling[:10], whole.split.test[:10]))
    backbone = run(
        lambda: stages.foundation_key(config, data),
        lambda key: stages.make_foundation(config, data, key, store, silent),
    )
    task = run(
        lambda: stages.task_key(config, data, backbone),
        lambda key: stages.make_task(config, data, backbone, key, store, (silent, silent)),
    )
    run(
        lambda: stages.profile_key(config, backbone, [task]),
        lambda key: stages.make_profile(config, backbone, [task], key, store, silent),
    )
    old = tiny_task("digit", data.classes, "sha256:b", gammas=())
    champion = Bundle(tiny_backbone(), (old,), tiny_profile("sha256:b", "cpu"))
    run(
        lambda: remeasure.measured_key(config, champion, old, "sha256:t", data),
        lambda key: remeasure.measure(config, champion, old, data, key, store, silent),
    )


def cascade(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_cascade.write_texts(folder)
    stages, config = cascade_stages, cascade_config.read(overrides=tiny_cascade.setting(folder))
    [data] = stages.load_data(config)
    levels = {
        level.name: run(
            lambda level=level: stages.train_key(level, data),
            lambda key, level=level: stages.make_level(config, level, data, key, store, silent),
        )
        for level in config.levels_of(config.tasks[0])
    }
    outputs, test = (
        run(
            lambda split=split: stages.outputs_key(config, data, levels, split),
            lambda key, split=split: stages.make_outputs(config, data, levels, split, key, store, silent),
        )
        for split in SPLITS
    )
    run(lambda: stages.linear_key(data, test), lambda key: stages.make_linear(data, test, key, store))
    latencies = run(
        lambda: stages.latencies_key(config, data, levels),
        lambda key: stages.make_latencies(config, levels, key, store, silent),
    )
    run(
        lambda: stages.plan_key(config, data, outputs, test, latencies),
        lambda key: stages.make_plan(config, data, outputs, test, latencies, key, store, silent),
    )
    run(
        lambda: feedback.pool_key(config, data.name, "test", outputs, test),
        lambda key: feedback.make_pool(config, "test", outputs, test, key, store),
    )


def bins(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_cascade.write_texts(folder)
    tried = {"engine": "auto", "tried": ["onnx", "eager"]}
    settings = tiny_bins.setting(folder, engine=tried, arithmetic={"precision": "auto"})
    stages, config = bins_stages, bins_config.read(overrides=settings)
    [stream] = stages.load_streams(config, silent)
    encoder = run(
        lambda: stages.encoder_key(config, stream),
        lambda key: stages.make_encoder(config, stream, key, store, silent),
    )
    lengths = run(
        lambda: stages.lengths_key(config, stream, encoder),
        lambda key: stages.make_lengths(config, stream, encoder, key, store, silent),
    )
    latencies = run(
        lambda: stages.latencies_key(config, stream, encoder),
        lambda key: stages.make_latencies(config, stream, encoder, key, store, folder, silent),
    )
    named = {"encoder": encoder, "lengths": lengths, "latencies": latencies}
    run(
        lambda: stages.bins_key(config, stream, lengths, latencies),
        lambda key: stages.make_bins(config, stream, named, key, store, folder, silent),
    )


def packing(folder: Path, store: FolderStore, run: Run) -> None:
    tiny_packing.write_prompts(folder)
    path = tiny_packing.write_generator(folder)
    stages = packing_stages
    config = packing_config.read(overrides=tiny_packing.setting(folder, precision="auto"))
    prompts = select_prompts(config, None)
    generator = run(
        lambda: stages.generator_key(config, None),
        lambda key: stages.make_generator(config, None, key, store, silent),
    )
    lengths = run(
        lambda: stages.lengths_key(config, generator, prompts),
        lambda key: stages.make_lengths(config, generator, prompts, key, store, silent),
    )
    predictor = run(
        lambda: stages.predictor_key(config, lengths),
        lambda key: stages.make_predictor(config, generator, lengths, key, store, silent),
    )
    steps = run(
        lambda: stages.steps_key(config, generator),
        lambda key: stages.make_steps(config, generator, key, store, silent),
    )
    named = {"generator": generator, "lengths": lengths, "predictor": predictor, "steps": steps}
    run(
        lambda: stages.plan_key(config, named),
        lambda key: stages.make_plan(config, named, key, store, silent),
    )
    champion = Champion(tiny_packing.some_packing(), Published("things", 1, "sha256:p", "models:/things/1", {}))
    loaded = LoadedChampion(champion, generators.load(f"path:{path}", "float32"), tiny_packing.some_predictor())
    outputs = observed.read(tiny_packing.write_observed(folder / "observed.jsonl", champion, 60), 60)
    kept = learn.observed_of(outputs, loaded, config.lengths)
    lengths = run(
        lambda: learn.save_observed(kept, store)["key"],
        lambda key: saved(key, learn.observed_of(outputs, loaded, config.lengths), store),
    )
    predictor = run(
        lambda: learn.predictor_key(config, loaded, lengths),
        lambda key: learn.make_predictor(config, loaded, lengths, key, store, silent),
    )
    run(
        lambda: learn.plan_key(config, loaded, lengths, predictor),
        lambda key: learn.make_plan(config, loaded, lengths, predictor, key, store, silent),
    )


def saved(key: str, artifact, store: FolderStore) -> StageResult:
    return keep(store, key, artifact)


SYSTEMS: Mapping[str, Callable[[Path, FolderStore, Run], None]] = {
    "tokens": tokens,
    "cascade": cascade,
    "bins": bins,
    "packing": packing,
}
