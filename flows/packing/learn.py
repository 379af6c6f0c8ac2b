"""What retraining does, as plain functions over a store: observed outputs -> a predictor trained further -> a plan with it.

The held-out share of what was observed is chosen by the prompts' own digests, so that no night learns from a prompt that
another one is judged by. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

import numpy as np

import flows.packing.observed
import flows.packing.plan
import training.packing.lengths
import training.packing.predictor
from flows.keys import StageResult, stage_key
from flows.packing.config import LengthsConfig, PackingFlowConfig
from flows.packing.lengths import LEAST, Observed
from flows.packing.live import Live
from flows.packing.observed import Output, telling
from flows.packing.stages import finish, load_observed, load_predictor, requests_of
from pliant.packing.artifact import Generator, Predictor
from pliant.progress import Progress
from registry.store import FolderStore


@dataclass(frozen=True, slots=True)
class Champion:
    """What is to be trained further, with its parts."""

    live: Live
    generator: Generator
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class Learnt:
    """The stages' results. `drift`: how far the champion's predictions were off while they were used."""

    name: str
    lengths: StageResult
    predictor: StageResult
    plan: StageResult
    drift: dict[str, float]


def observed_of(outputs: Sequence[Output], champion: Champion, config: LengthsConfig) -> Observed:
    """The rows to fit in front, as always."""
    packing, context = champion.live.packing, champion.generator.context
    kept = telling(outputs, packing.generator, context)
    held = [is_held_out(one.prompt, config.held_out) for one in kept]
    ordered = [one for wanted in (False, True) for one, out in zip(kept, held, strict=True) if out == wanted]
    tokens = np.array([one.tokens for one in ordered], np.int32)
    mark = sha256(tokens.tobytes())
    for one in ordered:
        mark.update(one.prompt.encode(errors="replace") + b"\0")
    return Observed(
        f"{packing.name}-observed",
        tuple(one.prompt for one in ordered),
        np.array([one.prompt_tokens for one in ordered], np.int32),
        tokens,
        float(np.mean([one.finish == "length" for one in ordered])) if ordered else 0.0,
        len(ordered) - sum(held),
        f"sha256:{mark.hexdigest()}",
    )


def is_held_out(prompt: str, part: float) -> bool:
    """For `part` of all prompts."""
    mark = sha256(prompt.encode(errors="replace")).digest()
    return int.from_bytes(mark[:4]) < part * 2**32


def too_little(observed: Observed, champion: Champion, least: int) -> str:
    """Why nothing can be learnt; empty where something can."""
    rows = len(observed.output_tokens)
    if min(rows - least, observed.fit - LEAST, rows - observed.fit - LEAST) < 0:
        return f"a service has observed {rows} outputs of the champion's generator to learn from, fewer than {least}"
    if champion.predictor.data == observed.part(held_out=False).fingerprint:
        return "nothing was observed since the champion's predictor was trained"
    return ""


def save_observed(observed: Observed, store: FolderStore) -> StageResult:
    key = stage_key(f"packing/observed-{observed.name}", {"data": observed.data}, flows.packing.observed)
    return {"key": key, "digest": store.save(key, observed), "notes": {"limited": observed.limited}}


def predictor_key(config: PackingFlowConfig, champion: Champion, lengths: StageResult) -> str:
    depends = {
        "config": asdict(config.retrain),
        "lengths": lengths["digest"],
        "predictor": champion.live.packing.predictor,
    }
    code = (training.packing.predictor, training.packing.lengths)
    return stage_key(f"packing/retrained-{champion.live.packing.name}", depends, *code)


def make_predictor(
    config: PackingFlowConfig,
    champion: Champion,
    lengths: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """The champion's, trained further; judged by what was observed and held out, beside the champion's."""
    observed = load_observed(store, lengths)
    fit, held_out = observed.part(held_out=False), observed.part(held_out=True)
    told = replace(config.retrain.predictor, max_length=champion.predictor.max_length)
    weight_R = training.packing.predictor.mispredicted(champion.predictor, fit, config.retrain.weight)
    made = training.packing.predictor.retrain(
        champion.predictor, fit, weight_R, told, progress, test=held_out, device=config.device
    )
    before = training.packing.predictor.judge(champion.predictor, held_out)
    notes = {"judged": dict(made.metrics), "before": before, "wrong": float((weight_R != 1.0).mean())}
    return {"key": key, "digest": store.save(key, made), "notes": notes}


def plan_key(config: PackingFlowConfig, champion: Champion, lengths: StageResult, predictor: StageResult) -> str:
    depends = {
        "plan": asdict(config.plan),
        "reference": asdict(config.reference),
        "champion": champion.live.published.digest,
        "lengths": lengths["digest"],
        "predictor": predictor["digest"],
    }
    return stage_key(f"packing/replanned-{champion.live.packing.name}", depends, flows.packing.plan)


def make_plan(
    config: PackingFlowConfig,
    champion: Champion,
    lengths: StageResult,
    predictor: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """The champion's memory and step times, with the requests observed last and what is now forecast of them."""
    requests = requests_of(load_observed(store, lengths), load_predictor(store, predictor))
    draft = replace(
        champion.live.packing,
        predictor=predictor["digest"],
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        forecasts=requests.forecasts,
        buckets=requests.buckets,
    )
    planned, choice = finish(draft, champion.generator.context, config, progress)
    return {"key": key, "digest": store.save(key, planned), "notes": {"choice": asdict(choice)}}
