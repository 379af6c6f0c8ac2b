"""A stranger with MLflow, torch and transformers, but without timm or our packages, loads a cascade and gets our answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pliant.cascade.evaluate import draws
from pliant.cascade.plan import PlanConfig
from pliant.cascade.run import load, run
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.cascade.publish import level_package, task_package
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import needed
from tests.fixtures.cascade.artifacts import Things, cascade, things
from tests.fixtures.foreign_process import ask, required

pytestmark = pytest.mark.slow

STRANGER = """
asked = json.load(open(sys.argv[2]))
told = {"failed": []}
for name, columns in asked.items():
    frame = pd.DataFrame(columns)
    model = mlflow.pyfunc.load_model(f"models:/pliant-cascade-task-{name}@champion")
    chosen = {"default": {}, "mass": {"candidate": "pruned by mass", "seed": 3}, "single": {"candidate": "single"}}
    told[name] = {key: model.predict(frame, params=params).to_dict("list") for key, params in chosen.items()}
    level = mlflow.pyfunc.load_model(f"models:/pliant-cascade-model-{name}-large@champion")
    told[name]["large"] = level.predict(frame).to_dict("list")
frame = pd.DataFrame(asked["things"])
model = mlflow.pyfunc.load_model("models:/pliant-cascade-task-things@champion")
uri = "models:/pliant-cascade-task-things@champion"
for act in (
    lambda: model.predict(frame, params={"candidate": "best"}),
    lambda: model.predict(pd.DataFrame({"words": ["a dog"]})),
    lambda: mlflow.pyfunc.load_model(uri, model_config={"model.small": "models:/pliant-cascade-model-things-small/9"}),
    lambda: mlflow.pyfunc.load_model(uri, model_config={"model.small": "models:/pliant-cascade-model-things-large/1"}),
):
    try:
        act()
    except Exception as error:
        told["failed"].append(f"{type(error).__name__}: {error}")
"""


def test_a_stranger_gets_the_cascades_answers(shelf, answers):
    _, tasks = shelf
    assert "site-packages" not in answers["pliant"] and Path(answers["pliant"]).parents[1].name == "code"
    for task, sample in tasks.items():
        models, rows = load(sample.cascade, sample.classifiers), sample.texts.rows
        drawn = np.random.default_rng(3).random(len(rows))
        for key, number, draw_R in (("default", 0, draws(len(rows))), ("mass", 2, drawn), ("single", 4, drawn)):
            answered = run(sample.cascade, models, rows, number, draw_R)
            assert answers[task][key]["level"] == [sample.cascade.levels[a.level].name for a in answered]
            _assert_same(answers[task][key]["label"], [a.label for a in answered])
            assert answers[task][key]["confidence"] == pytest.approx([a.confidence for a in answered], abs=1e-4)


def test_a_level_alone_gives_the_label_of_its_logits(shelf, answers):
    _, tasks = shelf
    for task, sample in tasks.items():
        logits_RK = sample.outputs.levels[1].logits
        if sample.cascade.classes:
            assert answers[task]["large"]["label"] == [sample.cascade.classes[i] for i in logits_RK.argmax(1)]
            assert all(1 / 3 <= sure <= 1 for sure in answers[task]["large"]["confidence"])
        else:
            assert answers[task]["large"]["label"] == pytest.approx(logits_RK[:, 0].tolist(), rel=1e-4, abs=1e-4)
            assert set(answers[task]["large"]) == {"label"}


def test_what_does_not_fit_is_told(answers):
    wrong = ("candidate is best, but must be one of default, pruned", "text", "could not be fetched", "another model")
    for sentence, words in zip(answers["failed"], wrong, strict=True):
        assert words in sentence


def test_the_requirements_of_a_cascade_name_no_library_of_pictures(shelf):
    names = required(shelf[0], "pliant-cascade-task-things")
    assert names == set(needed("cascade-task"))
    assert {"transformers", "tokenizers"} <= names
    assert not names & {"timm", "torchvision", "pillow"}
    assert {"timm", "torchvision", "pillow"} <= set(needed("tokens-task"))


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> tuple[MlflowRegistry, dict[str, Things]]:
    """A registry of three cascades: single texts, pairs and a regression."""
    folder = tmp_path_factory.mktemp("cascades")
    registry = MlflowRegistry(f"sqlite:///{folder / 'mlflow.db'}", "pliant-cascade", folder / "artifacts")
    kinds = {"things": {}, "alike": {"pair": True}, "much": {"classes": ()}}
    return registry, {task: _published(registry, folder, task, things(**kind)) for task, kind in kinds.items()}


@pytest.fixture(scope="module")
def answers(shelf, tmp_path_factory) -> dict:
    """What the stranger was answered: once, since it takes a while to come in."""
    registry, tasks = shelf
    columns = {task: _columns(sample) for task, sample in tasks.items()}
    path: Path = tmp_path_factory.mktemp("stranger") / "asked.json"
    path.write_text(json.dumps(columns))
    return ask(STRANGER, registry.tracking_uri, path, "timm", "torchvision", "PIL")


def _assert_same(given: list, expected: list) -> None:
    assert given == expected if isinstance(expected[0], str) else given == pytest.approx(expected, rel=1e-4, abs=1e-4)


def _published(registry: MlflowRegistry, folder: Path, task: str, sample: Things) -> Things:
    """As the flow would leave it."""
    named = [replace(classifier, task=task) for classifier in sample.classifiers]
    digests = [codec.save(each, folder / f"{task}-{each.name}") for each in named]
    outputs = replace(sample.outputs, task=task, classifiers=tuple(digests))
    planned = replace(cascade(outputs, sample.cascade.pair), task=task)
    codec.save(planned, folder / task)
    saved = Saved("cascade/x", "sha256:x")
    record = Record(PlanConfig(), LatencyConfig(), 1, saved, saved)
    with registry.run("release") as run_of:
        levels = {}
        for each, level in zip(named, planned.levels, strict=True):
            package = level_package(each, level, planned.pair, folder / f"{task}-{each.name}", {})
            levels[each.name] = registry.publish(run_of, package).version
            registry.promote(package.name, levels[each.name])
        package = task_package(planned, levels, folder / task, record)
        registry.promote(package.name, registry.publish(run_of, package).version)
    return replace(sample, cascade=planned, classifiers=tuple(named), outputs=outputs)


def _columns(sample: Things) -> dict[str, list[str]]:
    columns = {"text": [first for first, _ in sample.texts.rows]}
    return columns | {"text_pair": [second for _, second in sample.texts.rows]} if sample.cascade.pair else columns
