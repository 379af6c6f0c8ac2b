"""The promotion gate of a generator's packing: may the challenger's plan, with its predictor, take the champion's place?

It may if its predictor is no worse in pinball loss on the same held-out prompts, and if in the simulator, on the same
reference workload of the lengths observed last, requests complete no later on average, no later in the tail and no fewer
of them. Each side forecasts with its own predictor, but of the same generator alone (`champion_against`). Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pliant.training.packing.predictor
from pliant.flows.champions import load_champions
from pliant.flows.gate import FIRST, Judged, judged, rejection, sizes
from pliant.flows.packing import champions
from pliant.flows.packing.config import GateConfig
from pliant.flows.packing.learn import RetrainResults
from pliant.flows.packing.plan import PolicyFigures, simulate_policy
from pliant.flows.packing.stages import ModelResults, forecasts_of
from pliant.packing.artifact import Generator, Packing
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load, rules_of
from pliant.progress import Progress, silent
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.training.packing.lengths import LengthData


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that holds what is forecast of the prompts observed last, and the loss of its predictor on them.

    `pinball` is the mean quantile loss in the log of the length; `context` the generator's. Of a champion of another
    generator, the forecasts are the challenger's, and the loss is that of a predictor that knows nothing. `sizes`: of the
    generator (`flows.gate.sizes`), where it is known.
    """

    packing: Packing
    context: int
    pinball: float
    sizes: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """One side's figures, simulated: means over the replays."""

    pinball: float
    fared: PolicyFigures


Verdict = Judged[Side]


def judge(
    champion: Candidate | None,
    challenger: Candidate,
    config: GateConfig,
    reference: ReferenceConfig,
    progress: Progress = silent,
) -> Verdict:
    """Judge whether the challenger may take the champion's place.

    The arrivals' rates are set by the champion's device where there is one, the requests are the challenger's.
    """
    if champion is None:
        new = _side(challenger, challenger, challenger, config, reference)
        progress(1, 1)
        return judged("", FIRST, new)
    champion = _measured_alike(champion, challenger)
    old = _side(champion, champion, challenger, config, reference)
    progress(1, 2)
    new = _side(challenger, champion, challenger, config, reference)
    progress(2, 2)
    same = champion.packing.generator == challenger.packing.generator
    good = f"a request takes {_ms(new.fared.mean)}, no worse than the champion's {_ms(old.fared.mean)}"
    return judged(_rejection(new, old, config, same), good, new, old)


def _side(
    candidate: Candidate, standard: Candidate, latest: Candidate, config: GateConfig, reference: ReferenceConfig
) -> Side:
    """Replay one side. Rates are relative to what `standard` can bear; prompts, lengths and limits are those of `latest`."""
    packing = replace(
        candidate.packing, prompt_tokens=latest.packing.prompt_tokens, output_tokens=latest.packing.output_tokens
    )
    most = capacity(replace(packing, memory=standard.packing.memory, steps=standard.packing.steps))
    context = min(candidate.context, standard.context, latest.context)
    loads = [reference_load(packing, context, most, seed, reference) for seed in range(config.seeds)]
    return Side(candidate.pinball, simulate_policy(packing, rules_of(packing, context), loads))


def _measured_alike(champion: Candidate, challenger: Candidate) -> Candidate:
    """Return the champion on the newer step times, where generators, engines and classes of device are alike.

    An older measurement of the same thing is no merit: taken at a quieter hour it would hold its place for ever.
    """
    old, new = champion.packing, challenger.packing
    alike = [(each.engine, each.precision, each.device_class) for each in (old, new)]
    same = old.generator == new.generator or champion.sizes == challenger.sizes != ""
    if alike[0] != alike[1] or not same:
        return champion
    return replace(champion, packing=replace(old, steps=new.steps))


def _rejection(new: Side, old: Side, config: GateConfig, same: bool) -> str:
    """Return why the challenger is rejected; empty if it is not. `same`: whether both are of one generator."""
    factor, mine, theirs = 1 + config.tolerance, new.fared, old.fared
    loss = f"its predictor's pinball loss is {new.pinball:.4f}"
    if not same and new.pinball > old.pinball * factor:
        ignorant = f"{loss}, worse than the {old.pinball:.4f} of one that knows nothing"
        return f"{ignorant} (the champion's predictor is of another generator, whose lengths are others)"
    left = f"it leaves {mine.unfinished:.1%} of the requests unfinished"
    return (
        rejection(new.pinball <= old.pinball * factor, loss, f"{old.pinball:.4f}")
        or rejection(mine.unfinished <= theirs.unfinished + config.tolerance, left, f"{theirs.unfinished:.1%}")
        or rejection(mine.mean <= theirs.mean * factor, f"a request takes {_ms(mine.mean)}", _ms(theirs.mean))
        or rejection(mine.p99 <= theirs.p99 * (1 + config.tail), f"its p99 is {_ms(mine.p99)}", _ms(theirs.p99))
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


@dataclass(frozen=True, slots=True)
class Challenger:
    """The new side, and the held-out prompts that both are judged on; their order is that of the plan's requests.

    `ignorant`: the pinball loss on them of the training lengths' own quantiles, whatever the prompt.
    """

    candidate: Candidate
    held_out: LengthData
    ignorant: float


def challenger_of(results: ModelResults | RetrainResults, generator: Generator) -> Challenger:
    """Return the challenger that a run of a flow made, with its generator."""
    held_out = results.lengths.load().part(held_out=True)
    figures = pliant.training.packing.predictor.judge(results.predictor.load(), held_out)
    candidate = Candidate(results.plan.load(), generator.context, figures["pinball"], sizes(generator.config))
    return Challenger(candidate, held_out, figures["constant_pinball"])


def champion_against(registry: MlflowRegistry, challenger: Challenger) -> Candidate | None:
    """Return the champion of the same name, with its own predictor's forecasts of the challenger's requests.

    A champion's predictor says nothing of the lengths that another generator gives. There the challenger's predictor is
    compared with one that knows nothing, and the plans with the same forecasts. None where there is no champion.
    """
    new = challenger.candidate.packing
    champion = load_champions(registry, Packing).get(new.name)
    if champion is None:
        return None
    old = champion.artifact
    generator = champions.fetch_generator(registry, champion)
    if old.predictor == new.predictor or old.generator != new.generator:
        packing = replace(old, forecasts=new.forecasts, buckets=new.buckets)
        same = old.generator == new.generator
        pinball = challenger.candidate.pinball if same else challenger.ignorant
        return Candidate(packing, generator.context, pinball, sizes(generator.config))
    predictor = champions.fetch_predictor(registry, champion)
    forecasts, buckets = forecasts_of(predictor, challenger.held_out.prompts)
    packing = replace(old, forecasts=forecasts, buckets=buckets)
    figures = pliant.training.packing.predictor.judge(predictor, challenger.held_out)
    return Candidate(packing, generator.context, figures["pinball"], sizes(generator.config))
