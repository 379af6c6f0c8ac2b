"""Who stands at the gate: what was just made, and the champion as it does on the same held-out prompts.

Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import training.packing.predictor
from flows.packing import live
from flows.packing.gate import Contender
from flows.packing.stages import ModelMade, forecasts_of, load_generator, load_observed, load_plan, load_predictor
from pliant.packing.artifact import Packing, Predictor
from registry.mlflow_store import MlflowRegistry
from registry.store import FolderStore
from training.packing.lengths import LengthData

PINBALL = "pinball"
"""Of training/packing/predictor.py's judgement."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """The one side, and the held-out prompts that both are judged on; their order is that of the plan's requests."""

    contender: Contender
    held_out: LengthData


def contender(store: FolderStore, made: ModelMade) -> Challenger:
    context = load_generator(store, made.generator).context
    held_out = load_observed(store, made.lengths).part(held_out=True)
    return challenger_of(load_plan(store, made.plan), load_predictor(store, made.predictor), context, held_out)


def challenger_of(packing: Packing, predictor: Predictor, context: int, held_out: LengthData) -> Challenger:
    return Challenger(Contender(packing, context, loss(predictor, held_out)), held_out)


def against(registry: MlflowRegistry, challenger: Challenger) -> Contender | None:
    """The champion of the same name, with what its own predictor says of the challenger's requests; None: there is none."""
    new = challenger.contender.packing
    champion = live.live(registry).get(new.name)
    if champion is None:
        return None
    old = champion.packing
    context = live.generator(registry, champion).context
    if old.predictor == new.predictor:
        said = replace(old, forecasts=new.forecasts, buckets=new.buckets)
        return Contender(said, context, challenger.contender.pinball)
    predictor = live.predictor(registry, champion)
    forecasts, buckets = forecasts_of(predictor, challenger.held_out.prompts)
    said = replace(old, forecasts=forecasts, buckets=buckets)
    return Contender(said, context, loss(predictor, challenger.held_out))


def loss(predictor: Predictor, data: LengthData) -> float:
    return float(training.packing.predictor.judge(predictor, data)[PINBALL])
