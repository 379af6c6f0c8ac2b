"""The stages of retraining as plain functions over a store: observed outputs -> predictor trained further -> plan.

The held-out share of what was observed is chosen by the prompts' own digests, so that no night learns from a prompt that
another one is judged by. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

import numpy as np

import training.packing.predictor
from flows.keys import StageResult, keep, stage_key
from flows.packing.champions import Champion
from flows.packing.config import LengthsConfig, PackingFlowConfig
from flows.packing.lengths import LEAST, Observed
from flows.packing.observed import Output, usable_outputs
from flows.packing.stages import finish, load_observed, load_predictor, requests_of
from pliant.packing.artifact import Generator, Predictor
from pliant.progress import Progress
from registry.store import FolderStore
from training import groups


@dataclass(frozen=True, slots=True)
class LoadedChampion:
    """The champion whose predictor is to be trained further, with its models."""

    champion: Champion
    generator: Generator
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class RetrainResults:
    """All stages' results. `drift`: how far the champion's predictions were off while they were used."""

    name: str
    lengths: StageResult
    predictor: StageResult
    plan: StageResult
    drift: dict[str, float]


def observed_of(outputs: Sequence[Output], loaded: LoadedChampion, config: LengthsConfig) -> Observed:
    """Return the outputs that count, those to fit in front."""
    packing, context = loaded.champion.packing, loaded.generator.context
    usable = usable_outputs(outputs, packing.generator, context)
    fit = [output for output in usable if not is_held_out(output.prompt, config.held_out)]
    ordered = [*fit, *(output for output in usable if is_held_out(output.prompt, config.held_out))]
    tokens = np.array([output.tokens for output in ordered], np.int32)
    mark = sha256(tokens.tobytes())
    for output in ordered:
        mark.update(output.prompt.encode(errors="replace") + b"\0")
    return Observed(
        f"{packing.name}-observed",
        tuple(output.prompt for output in ordered),
        np.array([output.prompt_tokens for output in ordered], np.int32),
        tokens,
        float(np.mean([output.finish == "length" for output in ordered])) if ordered else 0.0,
        len(fit),
        f"sha256:{mark.hexdigest()}",
    )


def is_held_out(prompt: str, share: float) -> bool:
    """Whether a prompt belongs to the `share` of all prompts that is held out, by the digest of what it is compared by."""
    mark = sha256(groups.key(prompt)[0].encode(errors="replace")).digest()
    return int.from_bytes(mark[:4]) < share * 2**32


def too_little(observed: Observed, loaded: LoadedChampion, least: int) -> str:
    """Return why nothing can be learnt; empty where something can."""
    rows = len(observed.output_tokens)
    if min(rows - least, observed.fit - LEAST, rows - observed.fit - LEAST) < 0:
        return f"a service has observed {rows} outputs of the champion's generator to learn from, fewer than {least}"
    if loaded.predictor.data == observed.part(held_out=False).fingerprint:
        return "nothing was observed since the champion's predictor was trained"
    return ""


def save_observed(observed: Observed, store: FolderStore) -> StageResult:
    depends = {"data": observed.data, "fit": observed.fit}
    key = stage_key(f"packing/observed-{observed.name}", depends, observed_of)
    return keep(store, key, observed, {"limited": observed.limited})


def predictor_key(config: PackingFlowConfig, loaded: LoadedChampion, lengths: StageResult) -> str:
    depends = {
        "config": asdict(config.retrain),
        "lengths": lengths["digest"],
        "predictor": loaded.champion.packing.predictor,
    }
    return stage_key(f"packing/retrained-{loaded.champion.packing.name}", depends, make_predictor)


def make_predictor(
    config: PackingFlowConfig,
    loaded: LoadedChampion,
    lengths: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """Train the champion's predictor further, and judge both by what was observed and held out."""
    observed = load_observed(store, lengths)
    fit, held_out = observed.part(held_out=False), observed.part(held_out=True)
    predictor_config = replace(config.retrain.predictor, max_length=loaded.predictor.max_length)
    weight_R = training.packing.predictor.mispredicted(loaded.predictor, fit, config.retrain.weight)
    predictor = training.packing.predictor.retrain(
        loaded.predictor, fit, weight_R, predictor_config, progress, test=held_out, device=config.device
    )
    before = training.packing.predictor.judge(loaded.predictor, held_out)
    notes = {"judged": dict(predictor.metrics), "before": before, "wrong": float((weight_R != 1.0).mean())}
    return keep(store, key, predictor, notes)


def plan_key(config: PackingFlowConfig, loaded: LoadedChampion, lengths: StageResult, predictor: StageResult) -> str:
    depends = {
        "plan": asdict(config.plan),
        "reference": asdict(config.reference),
        "champion": loaded.champion.published.digest,
        "lengths": lengths["digest"],
        "predictor": predictor["digest"],
    }
    return stage_key(f"packing/replanned-{loaded.champion.packing.name}", depends, make_plan)


def make_plan(
    config: PackingFlowConfig,
    loaded: LoadedChampion,
    lengths: StageResult,
    predictor: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """Plan with the champion's memory and step times, with the requests observed last and what is now forecast of them."""
    requests = requests_of(load_observed(store, lengths), load_predictor(store, predictor))
    draft = replace(
        loaded.champion.packing,
        predictor=predictor["digest"],
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        forecasts=requests.forecasts,
        buckets=requests.buckets,
    )
    planned, choice = finish(draft, loaded.generator.context, config, progress)
    return keep(store, key, planned, {"choice": asdict(choice)})
