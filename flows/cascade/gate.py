"""The promotion gate of one task: may the challenger's default candidate take the champion's place?

It may if it is no less accurate, but for a tolerance and chance, nor falls in a class, if it earns no less on the same
reference load in the simulator, and if the test split does not speak against its own target. Both replay the load with what
their levels made of the same test texts. A champion whose promise these texts refute, as labels of later traffic may, need
not be outearned: then it suffices that nothing shows the challenger to be less accurate. Where there are no such outputs of
the champion (other data, or a store that has lost them), promised accuracies and expected seconds are compared instead.
Knows no Prefect and no registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import beta

from pliant.cascade.artifact import Cascade, LevelProfile, Outputs
from pliant.cascade.certify import lower_bounds
from pliant.cascade.evaluate import EvaluationData, as_large, evaluate, level_step, with_test_accuracy
from pliant.cascade.knowledge import knowledge
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import ReferenceConfig, SimulatedCascade, capacity, play, reference_load, walks
from pliant.errors import ArtifactError
from pliant.flows.beside import NOTHING, Answers, Beside, slices
from pliant.flows.cascade.config import GateConfig
from pliant.flows.gate import FIRST, Judged, judged, milliseconds, of_replays, rejection
from pliant.progress import Progress, silent
from pliant.report import Report, summarise

JITTER = 0.05  # standard deviation of a simulated duration's logarithm


@dataclass(frozen=True, slots=True)
class EvaluatedCascade:
    """A cascade and what its levels made of its test split; None where that is lost. `named_R`: see `slices`."""

    cascade: Cascade
    test: Outputs | None
    named_R: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Side:
    """One side's figures: the accuracy that was compared, mean seconds of a request alone, one report a replay."""

    accuracy: float
    seconds: float
    reports: tuple[Report, ...] = ()

    @property
    def utility(self) -> float:
        return float(np.mean([report.utility for report in self.reports]))

    def deciding(self) -> dict[str, str]:
        earned = {"utility earned": f"{self.utility:.1f}"} if self.reports else {}
        alone = {"answers that are right": f"{self.accuracy:.2%}", "a request alone takes": milliseconds(self.seconds)}
        return {**alone, **earned, **of_replays(self.reports)}


Verdict = Judged[Side]


def judge(
    champion: EvaluatedCascade | None,
    challenger: EvaluatedCascade,
    config: GateConfig,
    reference: ReferenceConfig,
    progress: Progress = silent,
    beside: Beside = NOTHING,
) -> Verdict:
    """Judge whether the challenger, whose test outputs must be there, may take the champion's place.

    `beside`: the seconds of both sides' classifiers, measured now.
    """
    progress(0, 1)
    missed = _missed(challenger, config.confidence)
    if champion is None:
        new = _replayed(challenger, challenger, config, reference)
        return judged(missed, FIRST, new)
    champion = _measured_alike(champion, challenger, beside, config.tolerance)
    if champion.test is None or champion.test.data != _test(challenger).data:
        old, new = _expected(champion.cascade, challenger.cascade)
        milliseconds = f"{1000 * new.seconds:.2f} ms"
        in_time = new.seconds <= old.seconds * (1 + config.tolerance)
        slower = rejection(in_time, f"it takes {milliseconds}", f"{1000 * old.seconds:.2f} ms")
        worse = _less_accurate(new, old, config) or slower
        good = f"an accuracy of {new.accuracy:.4f} in {milliseconds} is expected of it, no worse than the champion"
    else:
        challenger = _judged_alike(challenger, champion)
        old, new = (_replayed(side, champion, config, reference) for side in (champion, challenger))
        both = Beside(answers={challenger.cascade.task: _answers(champion, challenger)})
        good = _lapsed(champion, config.confidence)
        # Right beyond its target by chance, a champion with a false promise would stay for ever: chance alone excuses then.
        worse = both.less_accurate("its", new.accuracy, old.accuracy, 0.0 if good else config.tolerance) or both.fallen(
            config.tolerance
        )
        if not good:
            earns = f"it earns {new.utility:.1f}"
            enough = new.utility >= old.utility * (1 - config.tolerance)
            worse = worse or rejection(enough, earns, f"{old.utility:.1f}")
            good = f"{earns}, no worse than the champion's {old.utility:.1f}"
    refused, now = missed or worse, beside.describe(config.tolerance)
    return judged(refused and refused + now, good + now, new, old)


def _expected(*cascades: Cascade) -> tuple[Side, ...]:
    """Return what is expected of each default: the accuracy that it promises or, if one promises none, that of its test."""
    defaults = [cascade.candidates[0] for cascade in cascades]
    promised = [default.promised for default in defaults]
    if not all(promised):
        promised = [each.test_accuracy[default.name] for each, default in zip(cascades, defaults, strict=True)]
    return tuple(Side(share, default.seconds) for share, default in zip(promised, defaults, strict=True))


def _missed(challenger: EvaluatedCascade, confidence: float) -> str:
    """Return why its own test speaks against its promise; empty where it does not, which chance alone may explain."""
    cascade, test = challenger.cascade, _test(challenger)
    if cascade.promise == "right":
        accuracy, most = _tested(challenger, confidence)
        fault = f"its accuracy is {accuracy:.4f} (at most {most:.4f}), worse than its target {cascade.target:.4f}"
        return "" if most >= cascade.target else f"on the test split {fault}"
    large = len(cascade.levels) - 1
    judging = as_large(test) if cascade.promise == "agree" else test
    data = EvaluationData(judging, cascade.levels, cascade.tolerance)
    lost_R = level_step(data, large).correct_R.astype(float) - evaluate(cascade.candidates[0], data).correct_R
    least = float(lower_bounds(lost_R.mean(), np.square(lost_R).mean(), len(lost_R), confidence))
    what = "a share of its answers is not" if cascade.promise == "agree" else "its accuracy is below"
    lost = f"{lost_R.mean():.4f} (at least {least:.4f})"
    fault = f"{what} its large model's: {lost}, where it promises at most {cascade.amount:g}"
    return "" if least <= cascade.amount else f"on the test split {fault}"


def _lapsed(champion: EvaluatedCascade, confidence: float) -> str:
    """Return why the champion's promise does not hold on the test texts, which may be newer ones; empty where it may.

    What it earns is no standard then: it answers early because it is surer than it is right.
    """
    promised = champion.cascade.candidates[0].promised
    accuracy, most = _tested(champion, confidence)
    if most >= promised:
        return ""
    return f"the champion promises {promised:.4f} and is right on {accuracy:.4f} of the test texts (at most {most:.4f})"


def _tested(side: EvaluatedCascade, confidence: float) -> tuple[float, float]:
    """Return the default's accuracy on the test split, and Clopper and Pearson's upper bound of it."""
    cascade, count = side.cascade, len(_test(side).labels)
    accuracy = cascade.test_accuracy[cascade.candidates[0].name]
    right = round(accuracy * count)
    return accuracy, float(beta.ppf(confidence, right + 1, count - right)) if right < count else 1.0


def _replayed(
    side: EvaluatedCascade, standard: EvaluatedCascade, config: GateConfig, reference: ReferenceConfig
) -> Side:
    """Replay one side. The load is set by the capacity of `standard`; texts are as long as this side reads them."""
    cascade, default = standard.cascade, side.cascade.candidates[0]
    most = capacity(knowledge([cascade]), {cascade.task: walks(cascade, _test(standard))})
    reports = tuple(replay(side, most, seed, reference) for seed in range(config.seeds))
    return Side(side.cascade.test_accuracy[default.name], default.seconds, reports)


def replay(side: EvaluatedCascade, capacity: float, seed: int, reference: ReferenceConfig) -> Report:
    """Run the reference load through the cascade's scheduler and its first candidate, on one simulated device."""
    cascade, test = side.cascade, _test(side)
    known, walked = knowledge([cascade]), {cascade.task: walks(cascade, test)}
    lengths = test.levels[cascade.candidates[0].levels[0]].length.tolist()
    load = reference_load({cascade.task: lengths}, capacity, seed, reference)
    device = SimulatedCascade(known, walked, load.requests, load.rows, np.random.default_rng(seed), JITTER)
    return summarise(play(CascadeScheduler(known), known, walked, load.requests, load.rows, device))


def _less_accurate(new: Side, old: Side, config: GateConfig) -> str:
    right = f"its accuracy is {new.accuracy:.4f}"
    return rejection(new.accuracy >= old.accuracy - config.tolerance, right, f"{old.accuracy:.4f}")


def _answers(champion: EvaluatedCascade, challenger: EvaluatedCascade) -> Answers:
    """Return which test texts each default is right on."""
    old_R, new_R = (
        evaluate(
            each.cascade.candidates[0], EvaluationData(_test(each), each.cascade.levels, each.cascade.tolerance)
        ).correct_R
        for each in (champion, challenger)
    )
    test = _test(challenger)
    label_R = np.nan_to_num(test.labels, nan=-1).astype(np.int64)
    return Answers(old_R, new_R, slices(label_R, test.classes, challenger.named_R))


def _judged_alike(challenger: EvaluatedCascade, champion: EvaluatedCascade) -> EvaluatedCascade:
    """Return a regression's challenger at the champion's tolerance: a wider one would make its answers correct."""
    tolerance = champion.cascade.tolerance
    if challenger.cascade.tolerance == tolerance:
        return challenger
    cascade = with_test_accuracy(replace(challenger.cascade, tolerance=tolerance), _test(challenger))
    return replace(challenger, cascade=cascade)


def _measured_alike(
    champion: EvaluatedCascade, challenger: EvaluatedCascade, beside: Beside, tolerance: float
) -> EvaluatedCascade:
    """Return the champion on latencies of the challenger's hour, where that is known.

    Those are the challenger's own where both have the same levels, or levels of the same kinds that take equally long now;
    else the champion's, corrected by what both take now.
    """
    old, new = champion.cascade, challenger.cascade
    same = [level.classifier for level in old.levels] == [level.classifier for level in new.levels]
    kinds = [[(level.name, level.kind, level.layers) for level in each.levels] for each in (old, new)]
    like, by = (old.device, old.precision) == (new.device, new.precision), beside.correction(tolerance)
    if like and (same or (kinds[0] == kinds[1] and beside.alike(tolerance))):
        levels = tuple(
            replace(level, latency=newer.latency, importance=newer.importance, resumed=newer.resumed)
            for level, newer in zip(old.levels, new.levels, strict=True)
        )
    else:
        levels = tuple(_scaled(level, by) for level in old.levels)
    candidates = tuple(replace(each, seconds=by * each.seconds) for each in old.candidates)
    return replace(champion, cascade=replace(old, levels=levels, candidates=candidates))


def _scaled(level: LevelProfile, by: float) -> LevelProfile:
    importance = level.importance and level.importance.scaled(by)
    resumed = tuple(replace(each, latency=each.latency.scaled(by)) for each in level.resumed)
    return replace(level, latency=level.latency.scaled(by), importance=importance, resumed=resumed)


def _test(side: EvaluatedCascade) -> Outputs:
    if side.test is None:
        raise ArtifactError(f"the outputs of {side.cascade.task} on its test split are needed, and are not there")
    return side.test
