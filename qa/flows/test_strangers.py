"""A stranger with MLflow and torch, but without our packages, loads what each system publishes and gets our answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest

from pliant.cascade.artifact import Exit
from pliant.cascade.plan import PlanConfig as CascadePlanConfig
from pliant.flows.bins.champions import Record as BinsRecord
from pliant.flows.bins.config import BinsFlowConfig
from pliant.flows.bins.publish import bins_package, encoder_package
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.cascade.publish import level_package, task_package
from pliant.flows.packing.champions import Record as PackingRecord
from pliant.flows.packing.config import PackingFlowConfig, PlanConfig
from pliant.flows.packing.plan import choose
from pliant.flows.packing.publish import generator_package, plan_package, predictor_package
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Package, needed
from pliant.training.packing.generator import load as load_generator
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade.artifacts import Things, cascade, things
from tests.fixtures.cascade.classifiers import TEXTS
from tests.fixtures.foreign_process import ask, required
from tests.fixtures.light_mlflow import lay_database
from tests.fixtures.packing.tiny import CONTEXT, some_packing, some_predictor, write_generator
from tests.fixtures.tokens.samples import random_images
from tests.registry.conftest import BACKBONE, PROFILE, TASK

pytestmark = pytest.mark.slow

ANSWER = """
def answer(model, given, params, config):
    given = pd.DataFrame(given) if isinstance(given, dict) else np.array(given, np.uint8)
    try:
        loaded = mlflow.pyfunc.load_model(f"models:/{model}@champion", model_config=config or None)
        said = loaded.predict(given, params=params or None)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return said.to_dict("list") if isinstance(said, pd.DataFrame) else np.asarray(said).tolist()
"""
STRANGER = f"{ANSWER}\ntold = {{'answers': [answer(*each) for each in json.load(open(sys.argv[2]))]}}\n"
COMPILERS = ("onnx", "onnxruntime", "onnxscript", "numba", "ray", "prefect", "bentoml")
PICTURES = ("timm", "torchvision", "PIL")
Call = tuple[str, Any, dict[str, Any], dict[str, Any]]
"""A model, what it is given, the parameters of the prediction, and the model's configuration."""


@dataclass(frozen=True)
class Shop:
    """What a system publishes and what it is asked; `lacking`: packages that the stranger does without, too.

    `refused`: a part of each refusal among the answers.
    """

    publish: Callable[[MlflowRegistry, Path], None]
    asked: tuple[Call, ...]
    lacking: tuple[str, ...]
    kind: str
    refused: tuple[str, ...]


def publish(registry: MlflowRegistry, *packages: Package) -> list[int]:
    """Publish as the flow does, and make champions of them."""
    with registry.run("release") as run:
        numbers = [registry.publish(run, package).version for package in packages]
    for package, number in zip(packages, numbers, strict=True):
        registry.promote(package.name, number)
    return numbers


def publish_bins(registry: MlflowRegistry, folder: Path) -> None:
    classes, sentences = (
        tiny_encoder("modernbert", name="classes"),
        tiny_encoder("bert", head="embedding", pooling="cls"),
    )
    notes = {
        "choice": {"edges": [16, 64], "costs": [0.004, 0.003], "dynamic": 0.0035},
        "weighed": [{"length": 16, "batch": 1, "static": 0.001, "dynamic": 0.002, "kept": True}],
    }
    named = {"classes": classes, "sentences": replace(sentences, name="sentences"), "things": some_bins()}
    for name, artifact in named.items():
        codec.save(artifact, folder / name)
    config = BinsFlowConfig()
    record = BinsRecord(config.engine, config.latency, config.edges, config.threads)
    encoders = [encoder_package(named[name], folder / name, {}) for name in ("classes", "sentences")]
    publish(registry, *encoders, bins_package(some_bins(), 1, folder / "things", notes, record))


def publish_cascades(registry: MlflowRegistry, folder: Path) -> None:
    """Single texts, pairs, a regression, and levels that were distilled."""
    saved = Saved("cascade/x", "sha256:x")
    record = Record(CascadePlanConfig(), LatencyConfig(), 1, saved, saved)
    for task, sample in CASCADES.items():
        *smaller, large = (replace(level, task=task) for level in sample.levels)
        digest = codec.save(large, folder / f"{task}-large")
        named = [replace(each, large=digest) if isinstance(each, Exit) else each for each in smaller]
        digests = *(codec.save(each, folder / f"{task}-{each.name}") for each in named), digest
        named.append(large)
        planned = cascade(replace(sample.outputs, task=task, classifiers=digests), sample.cascade.pair, named)
        planned = replace(planned, task=task)
        codec.save(planned, folder / task)
        numbers: dict[str, int] = {}
        for each, level in zip(reversed(named), reversed(planned.levels), strict=True):
            package = level_package(each, level, planned, numbers, folder / f"{task}-{each.name}", {})
            [numbers[each.name]] = publish(registry, package)
        publish(registry, task_package(planned, numbers, folder / task, record))


def publish_packing(registry: MlflowRegistry, folder: Path) -> None:
    generator = replace(load_generator(f"path:{write_generator(folder / 'written')}"), name="things")
    for name, artifact in {"generator": generator, "predictor": some_predictor(), "plan": some_packing()}.items():
        codec.save(artifact, folder / name)
    short = (PlanConfig(levels=(1.0,), patience=(1.5,)), ReferenceConfig((0.5,), (1.2,), 20))
    config, choice = PackingFlowConfig(), choose(some_packing(), CONTEXT, *short)
    record = PackingRecord(config.memory, config.steps, config.plan, config.reference, config.threads)
    publish(
        registry,
        generator_package("things", generator, folder / "generator", {}),
        predictor_package("things", some_predictor(), folder / "predictor", {}),
        plan_package(some_packing(), CONTEXT, (1, 1), folder / "plan", choice, record, "data"),
    )


def columns(sample: Things) -> dict[str, list[str | None]]:
    rows = sample.texts.rows[:8]
    seconds = {"text_pair": [second for _, second in rows]} if sample.cascade.pair else {}
    return {"text": [first for first, _ in rows], **seconds}


PLAIN = {"things": things(), "alike": things(pair=True), "much": things(classes=())}
CASCADES = {**PLAIN, "distilled": things(distilled=True)}
IMAGES = random_images(5).tolist()
TEXT = {"text": list(TEXTS)}
PROMPTS = {"text": ["explain the old oak", "tell me all about iron", "the"]}
LOAD = {"arrival": [0.0, 0.0, 9.0], "prompt_tokens": [20, 30, 5], "output_tokens": [40, 3, 10]}
SMALL = "pliant-cascade-model-things-small"
SHOPS: Mapping[str, Shop] = {
    "tokens": Shop(
        lambda _registry, _folder: None,
        (
            *((TASK, IMAGES, params, {}) for params in ({}, {"gamma": -5}, {"gamma": 4}, {"gamma": 3})),
            (BACKBONE, IMAGES, {}, {}),
            (PROFILE, {"gamma": [-5, 8], "batch": [1, 3]}, {}, {}),
            (TASK, IMAGES, {}, {"backbone": f"models:/{BACKBONE}/99"}),
        ),
        (),
        "tokens-task",
        ("gamma is 3, but must be", "could not be fetched"),
    ),
    "bins": Shop(
        publish_bins,
        (
            ("pliant-bins-encoder-classes", TEXT, {}, {}),
            ("pliant-bins-encoder-sentences", TEXT, {}, {}),
            ("pliant-bins-things", {"length": [5, 64, 20], "batch": [1, 4, 3]}, {}, {}),
            ("pliant-bins-things", {"length": [65], "batch": [1]}, {}, {}),
        ),
        (*PICTURES, *COMPILERS),
        "bins-plan",
        ("1 of 65 tokens, but must be 1 to 4 of 1 to 64",),
    ),
    "cascade": Shop(
        publish_cascades,
        (
            *(
                (f"pliant-cascade-task-{task}", columns(sample), params, {})
                for task, sample in PLAIN.items()
                for params in ({}, {"candidate": "pruned less", "seed": 3}, {"candidate": "single"})
            ),
            *(("pliant-cascade-task-distilled", TEXT, params, {}) for params in ({}, {"candidate": "never"})),
            *((f"pliant-cascade-model-{task}-large", columns(sample), {}, {}) for task, sample in CASCADES.items()),
            *((f"pliant-cascade-model-distilled-{level}", TEXT, {}, {}) for level in ("bag", "exit1")),
            ("pliant-cascade-task-things", TEXT, {"candidate": "best"}, {}),
            ("pliant-cascade-task-things", TEXT, {}, {"model.small": f"models:/{SMALL}/9"}),
            ("pliant-cascade-task-things", TEXT, {}, {"model.large": f"models:/{SMALL}/1"}),
            ("pliant-cascade-model-distilled-exit1", TEXT, {}, {"trunk": f"models:/{SMALL}/1"}),
        ),
        PICTURES,
        "cascade-task",
        (
            *("candidate is best, but must be one of default, pruned", "could not be fetched", "another model"),
            "the exit exit1 was made for another model",
        ),
    ),
    "packing": Shop(
        publish_packing,
        (
            ("pliant-packing-generator-things", PROMPTS, {}, {}),
            ("pliant-packing-generator-things", PROMPTS, {"max_tokens": 2}, {}),
            ("pliant-packing-predictor-things", PROMPTS, {}, {}),
            *(("pliant-packing-things", LOAD, params, {}) for params in ({}, {"policy": "orca"}, {"policy": "best"})),
            ("pliant-packing-generator-things", PROMPTS, {"max_tokens": 0}, {}),
        ),
        (*PICTURES, *COMPILERS),
        "packing-plan",
        ("policy is best, but must be one of", "max_tokens is 0, but must be at least 1"),
    ),
}


@pytest.mark.parametrize("system", SHOPS)
def test_a_stranger_gets_our_answers_and_needs_no_more_than_is_required(system, registry, tmp_path, monkeypatch):
    shop = SHOPS[system]
    if system != "tokens":
        registry = MlflowRegistry(lay_database(tmp_path / "mlflow.db"), f"pliant-{system}", tmp_path / "artifacts")
    shop.publish(registry, tmp_path)
    (tmp_path / "asked.json").write_text(json.dumps(shop.asked))
    told = ask(STRANGER, registry.tracking_uri, tmp_path / "asked.json", *shop.lacking)
    assert "site-packages" not in told["pliant"] and Path(told["pliant"]).parents[1].name == "code"

    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.tracking_uri)
    known: dict[str, Any] = {"mlflow": mlflow, "np": np, "pd": pd}
    exec(ANSWER, known)
    refusals = []
    for call, theirs in zip(shop.asked, told["answers"], strict=True):
        ours = known["answer"](*call)
        if isinstance(theirs, str):
            refusals.append(theirs)
            assert isinstance(ours, str)
        else:
            assert_alike(theirs, ours)
    assert len(refusals) == len(shop.refused), refusals
    assert all(part in refusal for part, refusal in zip(shop.refused, refusals, strict=True)), refusals
    assert required(registry, shop.asked[0][0]) == set(needed(shop.kind))


def assert_alike(theirs: Any, ours: Any) -> None:
    if not isinstance(theirs, dict):
        theirs, ours = {"": theirs}, {"": ours}
    assert list(theirs) == list(ours)
    for name, values in theirs.items():
        if isinstance(values[0], str):
            assert values == list(ours[name])
        else:
            np.testing.assert_allclose(np.array(values, float), np.array(ours[name], float), rtol=1e-4, atol=1e-4)
