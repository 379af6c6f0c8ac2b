"""What a server under Pliant's scheduler did, and the same in the simulator: the same prompts at the same times.

The journal of the server tells when which prompt arrived, how long its output was, and when each step was decided on. An
iteration's cost is fitted to the time between two decisions. vLLM decides on a step while the one before it runs, so the
time between two decisions may be that of either; the one that fits better counts. For each load the cost is scaled such
that all steps of that load together last as long as they did: the machine is not as fast in all of them, and in overload a
step that takes 2% longer makes the queue longer by a tenth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pliant.errors import InputError
from pliant.packing.scheduling.iteration_cost import LinearCost, Point, fit
from pliant.packing.scheduling.journal import Entry
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import Fate, simulate
from pliant.packing.vllm import journal as vllm_journal

LEAST = 20  # steps that a cost is fitted to


@dataclass(frozen=True, slots=True)
class Session:
    """All that one server did. `otherwise`: decisions that a fresh scheduler makes otherwise.

    `deciding`: seconds of processor time of all decisions, made again here; `lasted`: seconds of the measured steps.
    """

    prompts: Mapping[int, Prompt]  # as they first arrived, by id
    lengths: Mapping[int, int]  # tokens of the outputs that ended
    cost: LinearCost
    steps: Sequence[tuple[float, Point]]  # when each was decided on, and what it was
    decisions: int
    otherwise: int
    deciding: float
    lasted: float


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Figures of one load of a session, live or simulated."""

    mean: float  # seconds to the last token
    tokens: float  # a second


def read(path: Path) -> list[Entry]:
    """Return the decisions of a journal's file."""
    return vllm_journal.read(path)[-1].entries


def session(journal: Sequence[Entry], rules: Rules, memory: Memory) -> Session:
    """Decide everything again, and see what each step was. Raises `InputError` for a journal of too few steps."""
    scheduler = PackingScheduler(rules, memory)
    prompts, lengths, otherwise, deciding = dict[int, Prompt](), dict[int, int](), 0, 0.0
    steps: list[tuple[int, int, int] | None] = []  # queries, sequences and cached tokens; None: it is no measurement
    for now, step_input, plan in journal:
        corrected = {each.id: each.generated for each in step_input.corrected}
        if steps and scheduler.running <= len({*step_input.finished, *step_input.cancelled}):
            steps[-1] = None  # then the engine had nothing to do
        for id in step_input.finished:
            held = scheduler.held(id)
            generated = corrected.get(id, held.generated if held is not None else 0)
            lengths[id] = generated + lengths.get(id, 0)
        for prompt in step_input.arrived:
            if prompt.id in prompts:  # it left and came again with what it had generated
                lengths[prompt.id] = prompt.tokens - prompts[prompt.id].tokens
            prompts.setdefault(prompt.id, prompt)
        began = time.thread_time()
        again = scheduler.handle(step_input, now)
        deciding += time.thread_time() - began
        otherwise += again != plan
        generating = scheduler.generating()
        queries = len(generating) + sum(chunk.tokens - (chunk.id in generating) for chunk in plan.prefill_chunks)
        steps.append((queries, len(generating), scheduler.cached_tokens()) if queries else None)
    times = [now for now, _, _ in journal]
    lasted = sum(times[at + 1] - times[at] for at, step in enumerate(steps[:-1]) if step is not None)
    cost, measured = _cost(times, steps)
    return Session(prompts, lengths, cost, measured, len(journal), otherwise, deciding, lasted)


def _cost(
    times: Sequence[float], steps: Sequence[tuple[int, int, int] | None]
) -> tuple[LinearCost, list[tuple[float, Point]]]:
    """Return the better fit of the times between decisions to the steps decided on at their start, or just before.

    With it the steps that it was fitted to, and when they were decided on.

    Raises `InputError` for too few steps.
    """
    fits = []
    for lag in (0, 1):
        points = [
            (times[at], Point(*before, times[at + 1] - times[at]))
            for at in range(lag, len(times) - 1)
            if (before := steps[at - lag]) is not None and steps[at] is not None and times[at + 1] > times[at]
        ]
        if len(points) < LEAST:
            raise InputError("the journal", f"{len(points)} steps", f"at least {LEAST} that follow one another")
        fits.append((fit([point for _, point in points]), points))
    return min(fits, key=lambda fitted: fitted[0].error)


def _scaled(cost: LinearCost, points: Sequence[Point]) -> LinearCost:
    """Return the cost, times a number with which all points together last as long as they did."""
    lasted = sum(point.seconds for point in points)
    predicted = sum(float(cost.seconds(point.queries, point.sequences, point.cached)) for point in points)
    factor = lasted / predicted if predicted else 1.0
    names = ("base", "query", "sequence", "token", "pair")
    return replace(cost, **{name: factor * getattr(cost, name) for name in names})


def simulated(session: Session, rules: Rules, memory: Memory, loads: Sequence[range]) -> list[LoadTimes]:
    """Return the figures of each load, whose prompts have these ids, with all of the session in the simulator."""
    prompts = [prompt for id, prompt in session.prompts.items() if session.lengths.get(id)]
    return [_simulated(session, prompts, rules, memory, ids) for ids in loads]


def _simulated(session: Session, prompts: Sequence[Prompt], rules: Rules, memory: Memory, ids: range) -> LoadTimes:
    began = min(session.prompts[id].arrival for id in ids if id in session.prompts)
    later = [prompt.arrival for id, prompt in session.prompts.items() if id >= ids.stop]
    ended = min(later, default=math.inf)
    cost = _scaled(session.cost, [point for now, point in session.steps if began <= now < ended])
    by_id = {fate.id: fate for fate in simulate(prompts, session.lengths, rules, memory, cost).fates}
    return _times([by_id[id] for id in ids if id in by_id])


def _times(fates: Sequence[Fate]) -> LoadTimes:
    seconds = [fate.ended - fate.arrival for fate in fates]
    lasted = max(fate.ended for fate in fates) - min(fate.arrival for fate in fates)
    return LoadTimes(sum(seconds) / len(seconds), sum(fate.generated for fate in fates) / lasted)
