"""Models of other sizes for the policy infaas: foundation and plain heads -> latency -> loading time -> publish.

A variant is made by the stages of the tokens flow with another foundation and gamma 0 alone, so what that flow has made
already is taken from its cache. They are a baseline to compare with and pass no gate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

import profiling.tokens.loading
from flows import settings
from flows.keys import StageResult, stage_key
from flows.progress import stage
from flows.release import Release
from flows.tasks import fresh, kept, passing
from flows.tokens import config as tokens_config
from flows.tokens import stages
from flows.tokens.config import TokensFlowConfig, VariantConfig
from flows.tokens.flow import trained
from flows.tokens.publish import open_registry, variant_package
from pliant.device import device_class, threads
from pliant.errors import InputError
from pliant.tokens.artifact import Backbone, Profile, Task, Variant, VariantTask
from registry.mlflow_store import CHAMPION
from registry.names import TOKENS_VARIANT
from registry.store import FolderStore
from training.data import ImageData

WARM_BATCHES = (1, 16)  # at which a variant is warmed up whenever it is loaded


@kept("variant", task_run_name="variant-{name}")
def assemble(
    key: str,
    name: str,
    config: TokensFlowConfig,
    backbone: StageResult,
    tasks: list[StageResult],
    profiled: StageResult,
    store: FolderStore,
) -> StageResult:
    """Put together and loaded three times to see how long that takes."""
    with stage(f"variant {name}") as progress:
        variant = _put_together(name, backbone, tasks, profiled, store)
        with tempfile.TemporaryDirectory() as folder, threads(config.threads):
            draft = FolderStore(Path(folder))
            digest = draft.save("draft", variant)
            seconds = profiling.tokens.loading.loading(
                lambda: draft.load(Variant, "draft", digest), WARM_BATCHES, config.device
            )
        progress(1, 1)
    return {"key": key, "digest": store.save(key, replace(variant, loading=seconds))}


@task(name="publish variants", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=passing)
def release(made: dict[str, StageResult], store: FolderStore) -> Release:
    registry = open_registry(settings.read())
    versions: dict[str, int] = {}
    new: list[str] = []
    with stage("publish") as progress, registry.run("tokens variants") as run:
        for name, one in made.items():
            model = TOKENS_VARIANT + name
            live = registry.version(model)
            if live is None or live.digest != one["digest"]:
                variant = store.load(Variant, one["key"], one["digest"])
                live = registry.publish(run, variant_package(variant, store.path(one["key"])))
                new.append(model)
            registry.promote(model, live.version, CHAMPION)
            versions[model] = live.version
            progress(len(versions), len(made))
    return Release(True, "variants are a baseline and pass none", versions, tuple(new), run.id)


@flow(name="tokens-variants", validate_parameters=True)
def variants(config: str | None = None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train, profile and publish the variants that the settings name; arguments and result as of the flow `tokens`."""
    told = tokens_config.read(Path(config) if config else None, overrides)
    _check_names(told.variants)
    device_class(told.device)
    store = FolderStore(settings.read().store)
    loaded = stages.load_data(told)
    upstream = stages.load_upstream(told, loaded)
    made = {one.name: _make(one.name, variant_settings(told, one), loaded, upstream, store) for one in told.variants}
    return release(made, store).plain()


def variant_settings(told: TokensFlowConfig, variant: VariantConfig) -> TokensFlowConfig:
    """The flow's settings with the variant's foundation, and gamma 0 alone."""
    base = told.foundation
    pretraining = replace(
        base,
        options={**base.options, **variant.options},
        images=base.images if variant.images is None else variant.images,
        learning_rate=base.learning_rate if variant.learning_rate is None else variant.learning_rate,
    )
    return replace(
        told,
        backbone=variant.backbone or told.backbone,
        foundation=pretraining,
        task=replace(told.task, gammas=(), prompt_rates=()),
        latency=replace(told.latency, gammas=(0,)),
    )


def _make(
    name: str, told: TokensFlowConfig, loaded: Sequence[ImageData], upstream: ImageData, store: FolderStore
) -> StageResult:
    backbone, tasks, profiled = trained(told, loaded, upstream, store)
    key = _variant_key(name, profiled)
    made: StageResult = fresh(assemble, store, key)(key, name, told, backbone, tasks, profiled, store)
    return made


def _variant_key(name: str, profiled: StageResult) -> str:
    """The profile's digest names backbone and device; its own key also the tasks."""
    depends = {
        "profile": profiled["key"],
        "digest": profiled["digest"],
        "torch": version("torch"),
        "warm": WARM_BATCHES,
    }
    return stage_key(f"tokens/variant-{name}", depends, profiling.tokens.loading)


def _put_together(
    name: str, backbone: StageResult, tasks: Sequence[StageResult], profiled: StageResult, store: FolderStore
) -> Variant:
    """Without its loading time."""
    measured = store.load(Profile, profiled["key"], profiled["digest"])
    held = [store.load(Task, made["key"], made["digest"]) for made in tasks]
    parts: Mapping[str, VariantTask] = {
        task.name: VariantTask(task.classes, task.heads[0], task.accuracy[0], task.test_accuracy[0], task.data)
        for task in held
    }
    held_backbone = store.load(Backbone, backbone["key"], backbone["digest"])
    return Variant(name, held_backbone, parts, measured.device, measured.latency, loading=0.0)


def _check_names(given: Sequence[VariantConfig]) -> None:
    names = [variant.name for variant in given]
    if len(set(names)) != len(names) or not names:
        raise InputError("variants", ", ".join(names) or "empty", "at least one, each of its own name")
