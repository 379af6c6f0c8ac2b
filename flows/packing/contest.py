"""The two sides of the gate: what a flow has just made, and the champion as it does on the same held-out prompts.

Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import training.packing.predictor
from flows.packing import champions
from flows.packing.gate import Candidate
from flows.packing.stages import ModelResults, forecasts_of, load_generator, load_observed, load_plan, load_predictor
from pliant.packing.artifact import Packing, Predictor
from registry.mlflow_store import MlflowRegistry
from registry.store import FolderStore
from training.packing.lengths import LengthData


@dataclass(frozen=True, slots=True)
class Challenger:
    """The new side, and the held-out prompts that both are judged on; their order is that of the plan's requests.

    `ignorant`: the pinball loss on them of the training lengths' own quantiles, whatever the prompt.
    """

    candidate: Candidate
    held_out: LengthData
    ignorant: float


def challenger_from(store: FolderStore, results: ModelResults) -> Challenger:
    """Return the challenger that a run of the flow made."""
    context = load_generator(store, results.generator).context
    held_out = load_observed(store, results.lengths).part(held_out=True)
    return challenger_of(load_plan(store, results.plan), load_predictor(store, results.predictor), context, held_out)


def challenger_of(packing: Packing, predictor: Predictor, context: int, held_out: LengthData) -> Challenger:
    figures = training.packing.predictor.judge(predictor, held_out)
    return Challenger(Candidate(packing, context, figures["pinball"]), held_out, figures["constant_pinball"])


def champion_against(registry: MlflowRegistry, challenger: Challenger) -> Candidate | None:
    """Return the champion of the same name, with its own predictor's forecasts of the challenger's requests.

    A champion's predictor says nothing of the lengths that another generator gives. There the challenger's predictor is
    compared with one that knows nothing, and the plans with the same forecasts. None where there is no champion.
    """
    new = challenger.candidate.packing
    champion = champions.load_champions(registry).get(new.name)
    if champion is None:
        return None
    old = champion.packing
    context = champions.fetch_generator(registry, champion).context
    if old.predictor == new.predictor or old.generator != new.generator:
        packing = replace(old, forecasts=new.forecasts, buckets=new.buckets)
        same = old.generator == new.generator
        return Candidate(packing, context, challenger.candidate.pinball if same else challenger.ignorant)
    predictor = champions.fetch_predictor(registry, champion)
    forecasts, buckets = forecasts_of(predictor, challenger.held_out.prompts)
    packing = replace(old, forecasts=forecasts, buckets=buckets)
    figures = training.packing.predictor.judge(predictor, challenger.held_out)
    return Candidate(packing, context, figures["pinball"])
