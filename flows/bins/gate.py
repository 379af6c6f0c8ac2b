"""The promotion gate of one stream: may the challenger's bins, and its encoder, take the champion's place?

They may if the encoder is no less accurate where both were tested on the same texts, in no class of them either, and if in
the simulator, on the same reference load of the lengths observed last, no fewer requests are answered within their SLO and
their mean latency is no longer. Knows no Prefect and no registry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import JITTER, SimulatedBins, capacity, reference_load, typical
from pliant.flows.beside import NOTHING, Beside
from pliant.flows.bins.champions import Score
from pliant.flows.bins.config import GateConfig
from pliant.flows.gate import FIRST, Judged, judged, milliseconds, of_replays, rejection
from pliant.progress import Progress, silent
from pliant.report import Report, observations, summarise
from pliant.simulator import simulate
from pliant.workload import ReferenceConfig


@dataclass(frozen=True, slots=True)
class Candidate:
    """Bins, and how their encoder did in its test, None where it had none."""

    bins: Bins
    score: Score | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One side's figures: share answered within the SLO, mean seconds from arrival to answer, one report a replay."""

    attainment: float
    seconds: float
    reports: tuple[Report, ...]
    score: Score | None = None

    def deciding(self) -> dict[str, str]:
        tested = {"the encoder's test accuracy": f"{self.score.accuracy:.2%}"} if self.score else {}
        return {"a request takes on average": milliseconds(self.seconds), **of_replays(self.reports), **tested}


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

    The load is that of the challenger's lengths and SLO, at rates set by the champion's devices where there are some.
    `beside`: what was measured of both encoders now.
    """
    if champion is None:
        new = _replayed(challenger, challenger, challenger, config, reference)
        progress(1, 1)
        return judged("", FIRST, new)
    champion = _measured_alike(champion, challenger, beside, config.tolerance)
    old = _replayed(champion, champion, challenger, config, reference)
    progress(1, 2)
    new = _replayed(challenger, champion, challenger, config, reference)
    progress(2, 2)
    good = f"a request takes {_ms(new)}, no worse than the champion's {_ms(old)}"
    now, worse = beside.describe(config.tolerance), _rejection(new, old, config.tolerance, beside)
    return judged(worse and worse + now, good + now, new, old)


def _replayed(
    candidate: Candidate, standard: Candidate, latest: Candidate, config: GateConfig, reference: ReferenceConfig
) -> Side:
    """Replay one side. Rates are relative to what `standard` can bear; lengths and SLO are those of `latest`.

    What is longer than either reads counts as the longest, to which its text would be cut.
    """
    longest = min(each.bins.shapes[-1].length for each in (latest, standard))
    lengths_N = latest.bins.lengths[: longest + 1].copy()
    lengths_N[-1] += latest.bins.lengths[longest + 1 :].sum()
    lengths: list[int] = typical(lengths_N).tolist()
    bins = replace(candidate.bins, slo=latest.bins.slo, lengths=lengths_N)
    most = config.workers * capacity(knowledge_of([replace(standard.bins, lengths=lengths_N)]))
    known, reports, seconds = knowledge_of([bins]), [], list[float]()
    for seed in range(config.seeds):
        load = reference_load({bins.name: lengths}, {bins.name: bins.slo}, most, seed, reference)
        device = SimulatedBins(known, load.requests, np.random.default_rng(seed), JITTER)
        seen = observations(simulate(BinsScheduler(known, Config(workers=config.workers)), load.requests, device))
        reports.append(summarise(seen))
        seconds += [item.answered - item.request.arrival for item in seen if item.answered is not None]
    attainment = float(np.mean([report.attainment for report in reports]))
    return Side(attainment, float(np.mean(seconds)), tuple(reports), candidate.score)


def _measured_alike(champion: Candidate, challenger: Candidate, beside: Beside, tolerance: float) -> Candidate:
    """Return the champion on latencies of the challenger's hour, where that is known.

    Those are the challenger's own, where encoders, engines, precisions and classes of device are alike, or the encoders
    take equally long now: a static shape that was not measured again keeps its share of the dynamic runtime's seconds.
    Else they are the champion's, corrected by what both take now.
    """
    old, new = champion.bins, challenger.bins
    alike = [(bins.engine, bins.precision, bins.device_class) for bins in (old, new)]
    same = old.encoder == new.encoder or beside.alike(tolerance)
    if alike[0] != alike[1] or not same:
        by = beside.correction(tolerance)
        seconds = [by * each for each in old.seconds]
        return replace(champion, bins=replace(old, seconds=tuple(seconds), dynamic=old.dynamic.scaled(by)))
    known = dict(zip(new.shapes[:-1], new.seconds, strict=True))
    seconds = []
    for shape, before in zip(old.shapes[:-1], old.seconds, strict=True):
        now, then = (table.between(shape.length, shape.batch) for table in (new.dynamic, old.dynamic))
        seconds.append(known.get(shape) or before * (now / then))
    return replace(champion, bins=replace(old, seconds=tuple(seconds), dynamic=new.dynamic))


def _rejection(new: Side, old: Side, tolerance: float, beside: Beside) -> str:
    """Return why the challenger is rejected; empty if it is not. Tests on other texts cannot be compared."""
    less_accurate = ""
    if new.score is not None and old.score is not None and new.score.data == old.score.data:
        less_accurate = beside.less_accurate("its encoder's", new.score.accuracy, old.score.accuracy, tolerance)
    answers = f"it answers {new.attainment:.2%} within the SLO"
    fewer = rejection(new.attainment >= old.attainment - tolerance, answers, f"{old.attainment:.2%}")
    slower = rejection(new.seconds <= old.seconds * (1 + tolerance), f"a request takes {_ms(new)}", _ms(old))
    return less_accurate or beside.fallen(tolerance) or fewer or slower


def _ms(side: Side) -> str:
    return f"{1000 * side.seconds:.2f} ms"
