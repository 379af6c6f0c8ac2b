"""The promotion gate of a generator's packing: may the challenger's plan, with its predictor, take the champion's place?

It may if its predictor is no worse in pinball loss on the same held-out prompts, beyond chance, and if in the simulator,
on the same reference workload of the lengths observed last, requests complete no later on average, no later in the tail
and no fewer of them. Each side forecasts with its own predictor, but of the same generator alone (`champion_against`).
Step times are of one hour where both can be run. Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from pliant.flows.beside import FLOOR, LEVEL, NOTHING, Beside
from pliant.flows.champions import load_champions
from pliant.flows.gate import FIRST, Judged, judged, rejection
from pliant.flows.packing import champions
from pliant.flows.packing.config import GateConfig
from pliant.flows.packing.learn import RetrainResults
from pliant.flows.packing.plan import PolicyFigures, simulate_policy
from pliant.flows.packing.stages import ModelResults, forecasts_of
from pliant.packing.artifact import Generator, Packing
from pliant.packing.scheduling.reference import ReferenceConfig, capacity, reference_load, rules_of
from pliant.progress import Progress, silent
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.training import groups
from pliant.training.packing.lengths import LengthData
from pliant.training.packing.predictor import Floats, losses


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that holds what is forecast of the prompts observed last, and the loss of its predictor on them.

    `loss_P` are quantile losses in the log of the length, as `_losses` says; `context` is the generator's. Of a champion of
    another generator, the forecasts are the challenger's, and the losses are those of a predictor that knows nothing.
    """

    packing: Packing
    context: int
    loss_P: Floats


@dataclass(frozen=True, slots=True)
class Side:
    """One side's figures, simulated: means over the replays."""

    pinball: float
    fared: PolicyFigures

    def deciding(self) -> dict[str, str]:
        return {
            "a request takes on average": _ms(self.fared.mean),
            "99 of 100 requests take at most": _ms(self.fared.p99),
            "requests left unfinished": f"{self.fared.unfinished:.1%}",
            "tokens a second": f"{self.fared.tokens_per_second:.0f}",
            "the predictor's pinball loss": f"{self.pinball:.4f}",
        }


Verdict = Judged[Side]


def judge(
    champion: Candidate | None,
    challenger: Candidate,
    config: GateConfig,
    reference: ReferenceConfig,
    progress: Progress = silent,
    beside: Beside = NOTHING,
) -> Verdict:
    """Judge whether the challenger may take the champion's place.

    The arrivals' rates are set by the champion's device where there is one, the requests are the challenger's. `beside`:
    the seconds of both sides' iterations, measured now.
    """
    if champion is None:
        new = _side(challenger, challenger, challenger, config, reference)
        progress(1, 1)
        return judged("", FIRST, new)
    champion = _measured_alike(champion, challenger, beside, config.tolerance)
    old = _side(champion, champion, challenger, config, reference)
    progress(1, 2)
    new = _side(challenger, champion, challenger, config, reference)
    progress(2, 2)
    same = champion.packing.generator == challenger.packing.generator
    good = f"a request takes {_ms(new.fared.mean)}, no worse than the champion's {_ms(old.fared.mean)}"
    whose = "the champion's" if same else "one that knows nothing"
    no_worse, lost = _losses_compared(challenger.loss_P, champion.loss_P, whose, config.tolerance)
    worse, now = _rejection(new, old, config, same, no_worse), lost + beside.describe(config.tolerance)
    return judged(worse and worse + now, good + now, new, old)


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
    return Side(float(candidate.loss_P.mean()), simulate_policy(packing, rules_of(packing, context), loads))


def _measured_alike(champion: Candidate, challenger: Candidate, beside: Beside, tolerance: float) -> Candidate:
    """Return the champion on step times of the challenger's hour, where that is known.

    Those are the challenger's own, over the ratio of what both take now: how iterations grow with tokens differs more from
    hour to hour than from generator to generator. One that cannot be run keeps its own.
    """
    old, new = champion.packing, challenger.packing
    kinds = [(each.generator, each.engine, each.precision, each.device_class) for each in (old, new)]
    steps = new.steps if kinds[0] == kinds[1] else old.steps
    if beside.ratio is not None:
        steps = new.steps if beside.alike(tolerance) else new.steps.scaled(1 / beside.ratio.middle)
    return replace(champion, packing=replace(old, steps=steps))


def _losses(forecast_RL: NDArray[np.float32], held_out: LengthData) -> Floats:
    """Return [P] the losses of different prompts, each times how often it came over the mean: their mean is that of rows.

    What comes again counts as one observation, so that an interval of the mean over prompts holds.
    """
    sum_P = np.bincount(groups.of_texts(held_out.prompts), weights=losses(forecast_RL, held_out.tokens))
    return np.asarray(sum_P * (len(sum_P) / len(held_out.prompts)), np.float64)


def _losses_compared(new_P: Floats, old_P: Floats, whose: str, tolerance: float) -> tuple[bool, str]:
    """Return whether the challenger's predictor is no worse than `whose`, and the interval of the share that it loses more.

    One that loses more within chance is no worse where the prompts rule out more than `FLOOR`, as for answers
    (flows/beside.py). Either end of the interval is wrong by chance with the probability `LEVEL`.
    """
    more_P = (new_P - old_P) / max(float(old_P.mean()), 1e-12)
    freedom, middle = max(len(more_P) - 1, 1), float(more_P.mean())
    half = float(student.ppf(1 - LEVEL, freedom) * more_P.std() / np.sqrt(freedom))
    low, high = middle - half, middle + half
    few = low <= tolerance < middle and high > FLOOR + tolerance
    equal = ", no difference" if low <= tolerance and high >= -tolerance else ""
    interval = f"; on {len(more_P)} prompts its predictor loses {low:.1%} to {high:.1%} more than {whose}"
    return low <= tolerance and not few, interval + (f", too few to rule out {FLOOR:.0%}" if few else equal)


def _rejection(new: Side, old: Side, config: GateConfig, same: bool, no_worse: bool) -> str:
    """Return why the challenger is rejected; empty if not. `same`: both are of one generator; `no_worse`: its predictor."""
    factor, mine, theirs = 1 + config.tolerance, new.fared, old.fared
    loss = f"its predictor's pinball loss is {new.pinball:.4f}"
    if not same and not no_worse:
        ignorant = f"{loss}, worse than the {old.pinball:.4f} of one that knows nothing"
        return f"{ignorant} (the champion's predictor is of another generator, whose lengths are others)"
    left = f"it leaves {mine.unfinished:.1%} of the requests unfinished"
    return (
        rejection(no_worse, loss, f"{old.pinball:.4f}")
        or rejection(mine.unfinished <= theirs.unfinished + config.tolerance, left, f"{theirs.unfinished:.1%}")
        or rejection(mine.mean <= theirs.mean * factor, f"a request takes {_ms(mine.mean)}", _ms(theirs.mean))
        or rejection(mine.p99 <= theirs.p99 * (1 + config.tail), f"its p99 is {_ms(mine.p99)}", _ms(theirs.p99))
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


@dataclass(frozen=True, slots=True)
class Challenger:
    """The new side, and the held-out prompts that both are judged on; their order is that of the plan's requests.

    `ignorant_P`: the losses on them of the training lengths' own quantiles, whatever the prompt.
    """

    candidate: Candidate
    held_out: LengthData
    ignorant_P: Floats


def challenger_of(results: ModelResults | RetrainResults, generator: Generator) -> Challenger:
    """Return the challenger that a run of a flow made, with its generator."""
    held_out, packing = results.lengths.load().part(held_out=True), results.plan.load()
    marginal_L = np.maximum(results.predictor.load().marginal, 1.0)
    ignorant_P = _losses(np.broadcast_to(marginal_L, packing.forecasts.shape), held_out)
    candidate = Candidate(packing, generator.context, _losses(packing.forecasts, held_out))
    return Challenger(candidate, held_out, ignorant_P)


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
    context = champions.fetch_generator(registry, champion).context
    if old.predictor == new.predictor or old.generator != new.generator:
        packing = replace(old, forecasts=new.forecasts, buckets=new.buckets)
        loss_P = challenger.candidate.loss_P if old.generator == new.generator else challenger.ignorant_P
        return Candidate(packing, context, loss_P)
    predictor = champions.fetch_predictor(registry, champion)
    forecasts, buckets = forecasts_of(predictor, challenger.held_out.prompts)
    packing = replace(old, forecasts=forecasts, buckets=buckets)
    return Candidate(packing, context, _losses(forecasts, challenger.held_out))
