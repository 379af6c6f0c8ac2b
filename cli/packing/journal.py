"""Packing's journals for `pliant journal`: each iteration of the engine as a launch of the sequences that run in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pliant.packing.scheduling import journal
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.request import Prompt
from pliant.protocol import Action, Answer, Arrived, Cancelled, Drop, Finished, JournalEntry, Launch, Request, Woke
from pliant.serving.journal import entries as lines


def entries(path: Path) -> Iterator[JournalEntry]:
    """Yield what happened as the other systems' journals have it; an answer is its last token. Raises `InputError`."""
    running: dict[int, int] = {}  # sequence -> the last iteration in which it ran
    launched, number = False, 0
    for now, given, plan in lines(path, journal.decode):
        ended: list[Action] = [Answer(id, running.pop(id)) for id in given.finished if id in running]
        if launched:
            yield JournalEntry(now, Finished(number, 0.0), tuple(ended))
        for id in given.cancelled:
            running.pop(id, None)
            yield JournalEntry(now, Cancelled(id), ())
        for prompt in given.arrived:
            yield JournalEntry(now, Arrived(as_request(prompt)), ())
        for id in (*plan.offloaded, *plan.discarded, *(id for id, _ in plan.dropped)):
            running.pop(id, None)
        running |= dict.fromkeys(plan.admitted, number)
        actions: list[Action] = [Drop(id, reason) for id, reason in plan.dropped]
        together = tuple(id for id in running if id not in plan.stalled) if running else ()
        launched = bool(together)
        if launched:
            number += 1
            running |= dict.fromkeys(together, number)
            actions.append(Launch(number, 0, together))
        if actions:
            yield JournalEntry(now, Woke(), tuple(actions))


def as_request(prompt: Prompt) -> Request:
    """Return a prompt as the other systems have their requests."""
    return Request(
        prompt.id, prompt.arrival, prompt.deadline, "prompts", prompt.utility, prompt.tokens, 0, prompt.tenant
    )


def prompts_of(path: Path) -> tuple[list[Prompt], dict[int, int]]:
    """Return all prompts, and the tokens of the outputs that came to their end. Raises `InputError`.

    A running sequence generates a token in every iteration that does not read its prompt, and in the last that does.
    A sequence that is discarded right behind that one counts a token less.
    """
    prompts: list[Prompt] = []
    tokens: dict[int, int] = {}
    running: dict[int, bool] = {}  # whether it read its prompt in the last iteration
    offloaded: dict[int, bool] = {}  # the same of sequences whose pages are on the host
    finished: dict[int, int] = {}
    for _, given, plan in lines(path, journal.decode):
        for id in given.finished:
            finished[id] = tokens.pop(id, 0) + running.pop(id, False)
        for correction in given.corrected:
            if correction.id in running:
                tokens[correction.id], running[correction.id] = correction.generated - 1, False
        offloaded |= {id: running.pop(id, False) for id in plan.offloaded}
        for id in (*given.cancelled, *plan.discarded, *(id for id, _ in plan.dropped)):
            running.pop(id, None)
            offloaded.pop(id, None)
        prompts += given.arrived
        running |= {id: offloaded.pop(id, False) for id in plan.admitted}
        reading = {chunk.id for chunk in plan.prefill_chunks}
        for id in running:
            if id in reading:
                running[id] = True
            elif id not in plan.stalled:
                tokens[id] = tokens.get(id, 0) + 1 + running[id]
                running[id] = False
    return prompts, finished


def lasted(path: Path, cost: IterationCost) -> Iterator[tuple[float, float]]:
    """Yield the seconds of each iteration by its cost, and those until the next decision. Raises `InputError`."""
    unread: dict[int, int] = {}  # of the running sequences, as `cached`
    cached: dict[int, int] = {}
    aside: dict[int, tuple[int, int]] = {}  # unread and cached tokens of what does not run
    began, expected = 0.0, 0.0
    for now, given, plan in lines(path, journal.decode):
        if expected:
            yield expected, now - began
        aside |= {prompt.id: (prompt.tokens, 0) for prompt in given.arrived}
        for correction in given.corrected:
            if correction.id in cached:
                unread[correction.id], cached[correction.id] = correction.unread, correction.cached
        for id in (*given.finished, *given.cancelled, *(id for id, _ in plan.dropped)):
            for kept in (unread, cached, aside):
                kept.pop(id, None)
        for id in (*plan.offloaded, *plan.discarded):
            left, held = unread.pop(id, 0), cached.pop(id, 0)
            aside[id] = (left, held) if id in plan.offloaded else (left + held, 0)
        for id in plan.admitted:
            unread[id], cached[id] = aside.pop(id, (0, 0))
        moved = sum(aside[id][1] for id in plan.offloaded) + sum(cached[id] for id in plan.admitted)
        for chunk in plan.prefill_chunks:
            unread[chunk.id], cached[chunk.id] = unread[chunk.id] - chunk.tokens, cached[chunk.id] + chunk.tokens
        reading = {chunk.id: chunk.tokens for chunk in plan.prefill_chunks}
        generating = [id for id, left in unread.items() if left <= 0 and id not in plan.stalled]
        for id in generating:
            cached[id] += id not in reading
        queries = sum(reading.values()) + sum(id not in reading for id in generating)
        seconds = cost.seconds(queries, len(generating), sum(cached.values()))
        began, expected = now, float(seconds) + cost.swap_seconds(moved) if queries else 0.0
