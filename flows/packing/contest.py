"""The two sides of the gate: what a flow has just made, and the champion as it does on the same held-out prompts.

Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pliant.training.packing.predictor
from pliant.flows.packing import champions
from pliant.flows.packing.gate import Candidate
from pliant.flows.packing.learn import RetrainResults
from pliant.flows.packing.stages import ModelResults, forecasts_of
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.training.packing.lengths import LengthData


@dataclass(frozen=True, slots=True)
class Challenger:
    """The new side, and the held-out prompts that both are judged on; their order is that of the plan's requests.

    `ignorant`: the pinball loss on them of the training lengths' own quantiles, whatever the prompt.
    """

    candidate: Candidate
    held_out: LengthData
    ignorant: float


def challenger_of(results: ModelResults | RetrainResults, context: int) -> Challenger:
    """Return the challenger that a run of a flow made."""
    held_out = results.lengths.load().part(held_out=True)
    figures = pliant.training.packing.predictor.judge(results.predictor.load(), held_out)
    candidate = Candidate(results.plan.load(), context, figures["pinball"])
    return Challenger(candidate, held_out, figures["constant_pinball"])


def champion_against(registry: MlflowRegistry, challenger: Challenger) -> Candidate | None:
    """Return the champion of the same name, with its own predictor's forecasts of the challenger's requests.

    A champion's predictor says nothing of the lengths that another generator gives. There the challenger's predictor is
    compared with one that knows nothing, and the plans with the same forecasts. None where there is no champion.
    """
    new = challenger.candidate.packing
    champion = champions.load_champions(registry).get(new.name)
    if champion is None:
        return None
    old = champion.artifact
    context = champions.fetch_generator(registry, champion).context
    if old.predictor == new.predictor or old.generator != new.generator:
        packing = replace(old, forecasts=new.forecasts, buckets=new.buckets)
        same = old.generator == new.generator
        return Candidate(packing, context, challenger.candidate.pinball if same else challenger.ignorant)
    predictor = champions.fetch_predictor(registry, champion)
    forecasts, buckets = forecasts_of(predictor, challenger.held_out.prompts)
    packing = replace(old, forecasts=forecasts, buckets=buckets)
    figures = pliant.training.packing.predictor.judge(predictor, challenger.held_out)
    return Candidate(packing, context, figures["pinball"])
