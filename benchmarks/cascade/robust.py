"""The cascade in worlds that differ from its profile: the default candidate against either model alone.

Doing nothing clever is one model for every text: one after the other, first come, first served, or batched as the
default is. Outputs are made up: all levels find the same texts hard, the large model fewer of them. The plan is ours over
these outputs. Goodput: right answers in time, by their utility, for each second of the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.clients import Contestant, crowd
from pliant.benchmarks.robust.contest import FirstCome
from pliant.cascade import simulated
from pliant.cascade.artifact import Cascade, LevelOutputs, Outputs
from pliant.cascade.choice import BatchTimes
from pliant.cascade.knowledge import Knowledge, knowledge
from pliant.cascade.plan import Measured, PlanConfig, make
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.simulated import Walks, walks
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Finished, Launch, Request, Result, Scheduler
from pliant.workload import RequestKind, Segment, piecewise
from pliant.workload import requests as drawn
from pliant.worlds import World

TEXTS, CLASSES, SKILLS, NOISE = 2000, 4, (2.2, 3.4), 0.3
LENGTHS, BATCHES = (16, 64, 256), (1, 4, 16)
SCALES = (0.5, 4.0)  # milliseconds of a launch of each level, and as much again every 64 tokens
TASK = "texts"
KINDS = (RequestKind(TASK, 0.15, 1.0), RequestKind(TASK, 0.6, 0.4))
DEADLINE, SECONDS = 0.3, 3.0
OURS = "default"
RIVALS = ("large, first come", "small, first come", "large", "small")
BATCH = 8  # texts of a launch at the capacity


def _table(scale: float) -> LatencyTable:
    rows = tuple(tuple(0.001 * scale * (1 + length * batch / 64) for batch in BATCHES) for length in LENGTHS)
    return LatencyTable(LENGTHS, BATCHES, rows)


@cache
def outputs() -> Outputs:
    """Return what both levels say of each text."""
    rng = np.random.default_rng(0)
    label_R, hard_R = rng.integers(CLASSES, size=TEXTS), rng.gumbel(0, 1.0, TEXTS)
    length_R = np.clip(40 * rng.lognormal(0, 0.7, TEXTS), 4, LENGTHS[-1]).astype(np.int32)
    base_RK = rng.normal(0, 0.5, (TEXTS, CLASSES))
    levels = []
    for skill in SKILLS:
        logits_RK = base_RK + rng.normal(0, NOISE, (TEXTS, CLASSES))
        logits_RK[np.arange(TEXTS), label_R] += skill - hard_R
        levels.append(LevelOutputs((1.5 * logits_RK).astype(np.float32), length_R))
    names = ("small", "large")
    return Outputs(TASK, tuple("abcd"), names, names, label_R.astype(np.float64), tuple(levels), (), "made up")


@cache
def planned() -> tuple[Cascade, Walks, Knowledge]:
    """Return the plan, what every candidate does with every text, and what the scheduler knows."""
    tables = [_table(scale) for scale in SCALES]
    cascade = make(outputs(), [Measured(table) for table in tables], PlanConfig(further=()), False, "made up")
    return cascade, walks(cascade, outputs()), knowledge([cascade])


def _setting(policy: str) -> int:
    """Return the number of the candidate that a policy asks of."""
    cascade, _, _ = planned()
    if policy == OURS:
        return 0
    level = cascade.levels.index(next(level for level in cascade.levels if policy.startswith(level.name)))
    return next(number for number, candidate in enumerate(cascade.candidates) if candidate.levels == (level,))


def scheduler(policy: str) -> Scheduler:
    """Return a fresh scheduler."""
    _, _, known = planned()
    if not policy.endswith("first come"):
        return CascadeScheduler(known)
    (model,) = known.tasks[TASK][_setting(policy)].models
    return FirstCome(1, 1, lambda _waiting: (1, model))


@cache
def rate() -> float:
    """Return what the device can do with the default by the profile, in requests a second."""
    _, walked, known = planned()
    return simulated.capacity(known, {TASK: walked})


def play(policy: str, world: World, parts: Sequence[Segment], true: float, seed: int, clients: str) -> float:
    """Return the utility of all requests that were answered rightly and in time; a launch takes the profile's seconds."""
    rng = np.random.default_rng((seed, 2))
    _, walked, known = planned()
    setting, fresh = _setting(policy), scheduler(policy)
    load = drawn(piecewise(parts, rng), KINDS, rng)
    row_of = rng.integers(TEXTS, size=len(load)).tolist()  # the text of every request that was sent first
    length_R, times = walked[0][0].length_R, [BatchTimes(model.latency) for model in known.models]

    def admit(request: Request, _now: float) -> Request:
        number = fresh.candidate(TASK, setting, request.length) if isinstance(fresh, CascadeScheduler) else setting
        those.sent[request.id] = replace(request, setting=number)
        return those.sent[request.id]

    def execute(launch: Launch) -> tuple[float, Finished]:
        texts = [(id, those.sent[id].setting, row_of[those.first[id]]) for id in launch.requests]
        results = tuple(result(launch.setting, *text) for text in texts)
        longest = max(int(outputs().levels[launch.setting].length[row]) for _, _, row in texts)
        seconds = float(times[launch.setting].batch_seconds(longest)[len(texts) - 1])
        return seconds, Finished(launch.id, seconds, results)

    def result(model: int, id: int, setting: int, row: int) -> Result:
        steps = walked[setting]
        place = known.tasks[TASK][setting].models.index(model)
        gain, right = float(steps[place].gain_R[row]), bool(steps[place].correct_R[row])
        if np.isnan(gain) or place + 1 == len(steps):
            return Result(id, right)
        return Result(id, right, gain, int(steps[place + 1].length_R[row]))

    sized = [replace(request, length=int(length_R[row])) for request, row in zip(load, row_of, strict=True)]
    those = crowd(sized, clients, true, admit)
    journal = those.play(fresh, execute, world, seed)
    finished = [entry.event for entry in journal if isinstance(entry.event, Finished)]
    right = {(event.launch, each.request): each.correct for event in finished for each in event.results}
    answers = {a.request: a.launch for entry in journal for a in entry.actions if isinstance(a, Answer)}
    in_time = those.answered(answers)
    return sum(those.sent[id].utility for id in in_time if right[answers[id], id])


CONTESTANT = Contestant(OURS, RIVALS, DEADLINE, SECONDS, (0.3, 0.95, 1.5), BATCH, rate, play)
in_worlds = partial(contest.robust, "cascade")
"""The part of `pliant bench robust`."""
