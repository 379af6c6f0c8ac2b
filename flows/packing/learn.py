"""The stages of retraining of the packing system: observed outputs -> predictor trained further -> plan.

The held-out share of what was observed is chosen by the prompts' own digests, so that no night learns from a prompt that
another one is judged by. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

import pliant.training.packing.predictor
from pliant.flows.champions import Champion
from pliant.flows.packing.config import LengthsConfig, PackingFlowConfig
from pliant.flows.packing.lengths import LEAST, Observed
from pliant.flows.packing.observed import Output, drift, usable_outputs
from pliant.flows.packing.stages import finish, requests_of
from pliant.flows.stage import Notes, Run, Stage, StageResult
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.progress import Progress
from pliant.training import groups


@dataclass(frozen=True, slots=True)
class LoadedChampion:
    """The champion whose predictor is to be trained further, with its models."""

    champion: Champion[Packing]
    generator: Generator
    predictor: Predictor


@dataclass(frozen=True, slots=True)
class RetrainData:
    """What was observed: the outputs, and of them what counts."""

    name: str
    outputs: Sequence[Output]
    observed: Observed


@dataclass(frozen=True, slots=True)
class RetrainResults:
    """All stages' results. `drift`: how far the champion's predictions were off while they were used."""

    name: str
    lengths: StageResult[Observed]
    predictor: StageResult[Predictor]
    plan: StageResult[Packing]
    drift: dict[str, float]


def observed_of(outputs: Sequence[Output], loaded: LoadedChampion, config: LengthsConfig) -> Observed:
    """Return the outputs that count, those to fit in front."""
    packing, context = loaded.champion.artifact, loaded.generator.context
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


def _observed_of(observed: Observed) -> dict[str, Any]:
    return {"data": observed.data, "fit": observed.fit}


def keep_observed(observed: Observed, progress: Progress) -> tuple[Observed, Notes]:
    """Keep what was observed as a stage keeps its result."""
    progress(0, 1)
    return observed, {"limited": observed.limited}


def _predictor_of(config: PackingFlowConfig, champion: LoadedChampion) -> dict[str, Any]:
    return {"config": asdict(config.retrain), "predictor": champion.champion.artifact.predictor}


def make_predictor(
    config: PackingFlowConfig, champion: LoadedChampion, lengths: StageResult[Observed], progress: Progress
) -> tuple[Predictor, Notes]:
    """Train the champion's predictor further, and judge both by what was observed and held out."""
    observed, former = lengths.load(), champion.predictor
    fit, held_out = observed.part(held_out=False), observed.part(held_out=True)
    predictor_config = replace(config.retrain.predictor, max_length=former.max_length)
    weight_R = pliant.training.packing.predictor.mispredicted(former, fit, config.retrain.weight)
    predictor = pliant.training.packing.predictor.retrain(
        former, fit, weight_R, predictor_config, progress, test=held_out, device=config.device
    )
    before = pliant.training.packing.predictor.judge(former, held_out)
    return predictor, {
        "judged": dict(predictor.metrics),
        "before": before,
        "wrong": float((weight_R != 1.0).mean()),
    }


def _plan_of(config: PackingFlowConfig, champion: LoadedChampion) -> dict[str, Any]:
    return {
        "plan": asdict(config.plan),
        "reference": asdict(config.reference),
        "champion": champion.champion.published.digest,
    }


def make_plan(
    config: PackingFlowConfig,
    champion: LoadedChampion,
    lengths: StageResult[Observed],
    predictor: StageResult[Predictor],
    progress: Progress,
) -> tuple[Packing, Notes]:
    """Plan with the champion's memory and step times, with the requests observed last and what is now forecast of them."""
    requests = requests_of(lengths.load(), predictor.load())
    draft = replace(
        champion.champion.artifact,
        predictor=predictor.digest,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        forecasts=requests.forecasts,
        buckets=requests.buckets,
    )
    planned, choice = finish(draft, champion.generator.context, config, progress)
    return planned, {"choice": asdict(choice)}


OBSERVED = Stage(
    "observed",
    Observed,
    keep_observed,
    _observed_of,
    folder="packing/observed-{observed.name}",
    bar="{observed.name}: lengths",
    code=(observed_of, keep_observed),
)
PREDICTOR = Stage(
    "retrained predictor",
    Predictor,
    make_predictor,
    _predictor_of,
    folder="packing/retrained-{champion.champion.artifact.name}",
    bar="{config.name}: retrain the predictor",
)
PLAN = Stage(
    "plan anew",
    Packing,
    make_plan,
    _plan_of,
    folder="packing/replanned-{champion.champion.artifact.name}",
    bar="{config.name}: plan",
)


def run_retraining(run: Run, config: PackingFlowConfig, champion: LoadedChampion, data: RetrainData) -> RetrainResults:
    """Run every stage of retraining one model."""
    lengths = run(OBSERVED, data.observed)
    predictor = run(PREDICTOR, config, champion, lengths)
    plan = run(PLAN, config, champion, lengths, predictor)
    return RetrainResults(config.name, lengths, predictor, plan, drift(data.outputs))
