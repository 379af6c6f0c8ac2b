"""Models of other sizes for the policy infaas: foundation and plain heads -> latency -> loading time -> publish.

A variant is made by the stages of the tokens flow with another foundation and gamma 0 alone, so what that flow has stored
already is taken from its cache. They are a baseline to compare with and pass no gate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import profiling.tokens.loading
from flows import settings
from flows.config import check_distinct
from flows.keys import StageResult, keep, stage_key
from flows.progress import stage
from flows.release import Release, open_registry
from flows.tasks import cached_stage, publish_task, system_flow
from flows.tokens import config as tokens_config
from flows.tokens import stages
from flows.tokens.config import TokensFlowConfig, VariantConfig
from flows.tokens.flow import trained
from flows.tokens.publish import variant_package
from pliant.device import device_class, threads
from pliant.tokens.artifact import Variant, VariantTask
from registry.names import TOKENS_VARIANT
from registry.store import FolderStore
from training.data import ImageData

WARM_BATCHES = (1, 16)  # at which a variant is warmed up whenever it is loaded


@cached_stage("variant", task_run_name="variant-{name}")
def assemble(
    key: str,
    name: str,
    config: TokensFlowConfig,
    backbone: StageResult,
    tasks: list[StageResult],
    profiled: StageResult,
    store: FolderStore,
) -> StageResult:
    with stage(f"variant {name}") as progress:
        variant = _make_variant(name, config, backbone, tasks, profiled, store)
        progress(1, 1)
    return keep(store, key, variant)


@publish_task("publish variants")
def release(results: dict[str, StageResult], store: FolderStore) -> Release:
    registry = open_registry(settings.read(), "tokens")
    versions: dict[str, int] = {}
    new: list[str] = []
    with stage("publish") as progress, registry.run("tokens variants") as run:
        for name, result in results.items():
            model = TOKENS_VARIANT + name
            champion = registry.version(model)
            if champion is None or champion.digest != result["digest"]:
                variant = store.load(Variant, result["key"], result["digest"])
                champion = registry.publish(run, variant_package(variant, store.path(result["key"])))
                new.append(model)
            versions[model] = champion.version
            progress(len(versions), len(results))
        registry.commit(versions, run)
    return Release(True, "variants are a baseline and pass none", versions, tuple(new), run.id)


@system_flow("tokens-variants", "tokens")
def variants(config: str | None = None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Train, profile and publish the variants that the settings name; arguments and result as of the flow `tokens`."""
    flow_config = tokens_config.read(Path(config) if config else None, overrides)
    names = [variant.name for variant in flow_config.variants]
    check_distinct("variants", names, "at least one, each of its own name")
    device_class(flow_config.device)
    store = FolderStore(settings.read().store)
    loaded = stages.load_data(flow_config)
    upstream = stages.load_upstream(flow_config, loaded)
    results = {
        variant.name: _make(variant.name, variant_settings(flow_config, variant), loaded, upstream, store)
        for variant in flow_config.variants
    }
    return release(results, store).to_dict()


def variant_settings(config: TokensFlowConfig, variant: VariantConfig) -> TokensFlowConfig:
    """Return the flow's settings with the variant's foundation, and gamma 0 alone."""
    base = config.foundation
    pretraining = replace(
        base,
        options={**base.options, **variant.options},
        images=base.images if variant.images is None else variant.images,
        learning_rate=base.learning_rate if variant.learning_rate is None else variant.learning_rate,
    )
    return replace(
        config,
        backbone=variant.backbone or config.backbone,
        foundation=pretraining,
        task=replace(config.task, gammas=(), prompt_rates=()),
        latency=replace(config.latency, gammas=(0,)),
    )


def _make(
    name: str, config: TokensFlowConfig, loaded: Sequence[ImageData], upstream: ImageData, store: FolderStore
) -> StageResult:
    backbone, tasks, profiled = trained(config, loaded, upstream, store)
    key = _variant_key(name, profiled)
    return assemble(key, name, config, backbone, tasks, profiled, store)


def _variant_key(name: str, profiled: StageResult) -> str:
    """Return the key of a variant. The profile's digest names backbone and device; its own key also the tasks."""
    depends = {
        "profile": profiled["key"],
        "digest": profiled["digest"],
    }
    return stage_key(f"tokens/variant-{name}", depends, _make_variant, measured=True)


def _make_variant(
    name: str,
    config: TokensFlowConfig,
    backbone: StageResult,
    tasks: Sequence[StageResult],
    profiled: StageResult,
    store: FolderStore,
) -> Variant:
    """Put a variant together, and load it three times to see how long that takes."""
    variant = _put_together(name, backbone, tasks, profiled, store)
    with tempfile.TemporaryDirectory() as folder, threads(config.threads):
        draft = FolderStore(Path(folder))
        digest = draft.save("draft", variant)
        seconds = profiling.tokens.loading.loading(
            lambda: draft.load(Variant, "draft", digest), WARM_BATCHES, config.device
        )
    return replace(variant, loading=seconds)


def _put_together(
    name: str, backbone: StageResult, tasks: Sequence[StageResult], profiled: StageResult, store: FolderStore
) -> Variant:
    """Return the variant without its loading time."""
    bundle = stages.load_bundle(store, backbone, tasks, profiled)
    variant_tasks: Mapping[str, VariantTask] = {
        task.name: VariantTask(task.classes, task.heads[0], task.accuracy[0], task.test_accuracy[0], task.data)
        for task in bundle.tasks
    }
    profile = bundle.profile
    return Variant(name, bundle.backbone, variant_tasks, profile.device, profile.latency, 0.0, profile.precision)
