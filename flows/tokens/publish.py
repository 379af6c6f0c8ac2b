"""What a run of the tokens flow publishes: its metrics and figures, and the registered models: backbone, profile, tasks.

Knows no Prefect and no MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pliant.flows.release import TRAINING, Publication, commit
from pliant.flows.stage import StageResult
from pliant.flows.tokens.stages import Bundle, TokensResults
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE
from pliant.registry.package import Package
from pliant.registry.releases import table
from pliant.tokens.artifact import LORA, SHALLOW, Profile, Task
from pliant.tokens.points import named
from pliant.tokens.policies import offered
from pliant.training.linear import LinearComparison


def register(published: Publication, results: TokensResults) -> list[str]:
    """Log the run and register what it made; return the names of the models."""
    bundle = results.bundle()
    by_role: dict[str, StageResult[Any]] = {"backbone": results.backbone, "profile": results.profile}
    by_role |= {f"task-{task.name}": result for task, result in zip(bundle.tasks, results.tasks, strict=True)}
    run, notes = published.run, {role: result.notes for role, result in by_role.items()}
    run.metrics(_metrics(bundle))
    for task in bundle.tasks:
        run.dataset(task.name, task.data, task.name)
    run.document("training", notes)
    run.metrics({f"training_seconds.{role}": noted["seconds"] for role, noted in notes.items() if "seconds" in noted})
    for role, noted in notes.items():
        if "linear" in noted:
            compared = LinearComparison(**noted["linear"]).metrics()
            run.metrics({f"{name}.{role.removeprefix('task-')}": value for name, value in compared.items()})
    for role, result in by_role.items():
        package = partial(_package, TOKENS_PREFIX + role, role, bundle, published.versions, result)
        published.register(TOKENS_PREFIX + role, result.digest, package)
    return [TOKENS_PREFIX + role for role in by_role]


def _metrics(bundle: Bundle) -> dict[str, float]:
    """Return accuracy and speed at gamma 0; those of every setting are a table."""
    tested = {f"test_accuracy.{task.name}": task.test_accuracy[0] for task in bundle.tasks}
    return {"images_per_second": 32 / bundle.profile.latency.at(0, 32), **tested}


def _package(name: str, role: str, bundle: Bundle, versions: Mapping[str, int], result: StageResult[Any]) -> Package:
    """Return the package of a model in its role: backbone, profile or task-NAME.

    Inputs and outputs are examples: their types and shapes become the model's signature.
    """
    backbone = bundle.backbone
    size = backbone.image_size
    images = np.zeros((2, size, size, 3), dtype=np.uint8)
    folder = result.folder
    tags: dict[str, object] = {"pliant.git_commit": commit(), "pliant.backbone": bundle.profile.backbone}
    tags[TRAINING] = json.dumps(dict(result.notes))
    match role:
        case "backbone":
            width = backbone.weights["pos_embed"].shape[-1]
            params = {"architecture": backbone.architecture, "source": backbone.source, **backbone.options}
            example = np.zeros((2, width), np.float32)
            return Package(name, folder, images, example, config={"device": "cpu"}, params=params, tags=tags)
        case "profile":
            return profile_package(bundle.profile, folder)
    task = next(task for task in bundle.tasks if f"task-{task.name}" == role)
    columns = {label: np.zeros(2, np.float32) for label in task.classes}
    uri = f"models:/{TOKENS_BACKBONE}/{versions[TOKENS_BACKBONE]}"
    return Package(
        name,
        folder,
        images,
        columns,
        options={"gamma": 0},
        config={"backbone": uri, "device": "cpu"},
        params={"classes": len(task.classes), "gammas": sorted(task.accuracy.keys() - task.points.keys())},
        metrics={
            f"test_accuracy.{named(setting)}": task.test_accuracy[setting]
            for setting in offered(bundle.profile.latency.settings)
        },
        card=card(task, bundle.profile, result.notes.get("tried", ())),
        tags={**tags, "pliant.data": task.data},
    )


def _added(setting: int) -> str:
    if setting > LORA:
        return f"LoRA of rank {setting - LORA}"
    return f"{setting - SHALLOW} prompts before the first block" if setting > SHALLOW else f"{setting} prompts a block"


def card(task: Task, profile: Profile, tried: Sequence[Mapping[str, Any]]) -> str:
    """Return what was tried for a task and what it earned, in Markdown."""
    latency = profile.latency
    batch = latency.batches[-1]

    def row(setting: int, what: str) -> tuple[str, str, str, str]:
        speed = latency.at(0, batch) / latency.at(setting, batch)
        yes = "yes" if setting in offered(latency.settings) else "only by its number"
        return what, f"{speed:.2f}", f"{task.test_accuracy[setting]:.1%}", yes

    rows = [row(setting, named(setting)) for setting in latency.settings if setting <= 0]
    rows += [row(number, f"point {number}: {point}") for number, point in sorted(profile.points.items())]
    left = len(task.points) - len(profile.points)
    rows += [(f"{left} further operating points", "", "", "no: others are at least as good and as fast")] * (left > 0)
    for each in tried:
        gain = f"{each['gain']:+.1%} ({each['low']:+.1%} to {each['high']:+.1%}) against {named(each['beside'])}"
        rows.append((f"{_added(each['gamma'])}: {gain}", "", "", "yes" if each["offered"] else "no"))
    return "\n".join(table(("tried", "images/s over gamma 0", "right on the test split", "offered"), rows)).strip()


def profile_package(profile: Profile, folder: Path) -> Package:
    table = {"gamma": np.array([-5, 0]), "batch": np.array([8, 8])}
    tags = {"pliant.git_commit": commit(), "pliant.backbone": profile.backbone, "pliant.device": profile.device}
    seconds = {
        f"seconds.{named(setting)}.batch{batch}": profile.latency.at(setting, batch)
        for batch in (profile.latency.batches[-1], profile.latency.batches[0])
        for setting in offered(profile.latency.settings)
    }
    params = {"device": profile.device, "precision": profile.precision or "the device's own"}
    return Package(TOKENS_PROFILE, folder, table, {"seconds": np.zeros(2)}, params=params, metrics=seconds, tags=tags)
