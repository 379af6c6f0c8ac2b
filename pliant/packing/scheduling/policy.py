"""Whom to admit, in which order, whom to preempt: pure functions of who waits, who runs, and the free pages.

`orca`     reserves the longest output that a request may have; first come, first served (ORCA, as S3 describes it).
`s3`       reserves the predicted class's upper bound; decreasing first fit over all that wait; who outgrows the
           reservation is preempted to the host and comes back with twice the output reserved (S3, section 3.2 and 3.3).
`oracle`   the same with exact lengths, which nobody knows before.
`paged`    reserves nothing: pages on demand, first come, first served; the last that came is preempted where they run out.
`default`  admits while the pages that all are predicted to hold together stay within the cache at every later moment,
           with a confidence that follows how often it erred; shortest predicted first, each request's place held against
           later ones by its time of arrival; an offline batch longest first, behind all others.

Shapes: N sequences, T horizons in iterations, G points of a forecast's grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import Floats, Grid, mean
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.waiting_queue import Place, Waiting, WaitingQueue

POLICIES = {
    "default": "predicted peak of the pages, adaptive confidence, shortest predicted first with ageing",
    "paged": "pages on demand, first come, first served",
    "s3": "predicted class reserved, decreasing first fit, doubled on preemption (S3 as published)",
    "orca": "the longest possible output reserved, first come, first served (ORCA)",
    "oracle": "exact lengths reserved, decreasing first fit; only where they are known",
}
RESERVING = ("orca", "s3", "oracle")
AHEAD = 4  # waiting ones whose pages are predicted at once
LARGEST = 5.0  # times the typical size: beyond it nobody is put back further
WATERMARK = 0.01  # of the pages that `paged` keeps free when it admits, so that it does not preempt at once


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy and its parameters; `context` is the model's: tokens of a prompt and its output together."""

    policy: str = "default"
    context: int = 2048
    level: float = 1.0  # of confidence at first: standard deviations of the pages that will be held
    target: float = 0.05  # preemptions per finished sequence that the level is steered to
    hosted: float = 1.0  # of a preemption whose pages the host keeps, beside one that is read again (plan.py)
    patience: float = 1.5  # times the delay of late that a request of typical size is put back in the line
    recalibrate: bool = True  # forecasts by what came of the earlier ones

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise InputError("policy", self.policy, f"one of {', '.join(POLICIES)}")
        if self.context < 2:
            raise InputError("context", self.context, "at least 2 tokens")
        if not isfinite(self.level):
            raise InputError("level", self.level, "finite")
        if not 0 <= self.hosted <= 1:
            raise InputError("hosted", self.hosted, "from 0 to 1")
        if not 0 <= self.target < float("inf"):
            raise InputError("target", self.target, "at least 0 and finite")
        if not 0 <= self.patience < float("inf"):
            raise InputError("patience", self.patience, "at least 0 and finite")


@dataclass(frozen=True, slots=True)
class View:
    """What admission looks at: the books before the next iteration."""

    memory: Memory
    free: int  # pages, after what those that run need for the next iteration
    reserved: int  # pages, by those that run
    queries: int  # that the iteration has left
    level: float
    running: Running
    grid: Grid


def reserve(rules: Rules, prompt: Prompt) -> int:
    """Tokens of prompt and output to reserve. Raises `InputError` for `oracle` where the length is not known."""
    if rules.policy == "oracle":
        if prompt.exact < 1:
            raise InputError("exact", prompt.exact, "the output's tokens, which the policy oracle must be told")
        return prompt.tokens + min(prompt.exact, prompt.limit)
    most = min(prompt.limit, rules.context - prompt.tokens)
    if rules.policy == "s3" and prompt.bucket:
        return prompt.tokens + min(prompt.bucket, most)
    return prompt.tokens + most


def doubled(rules: Rules, prompt: Prompt, reserved: int) -> int:
    """What S3 reserves for a sequence that has outgrown `reserved` tokens: twice the output."""
    most = prompt.tokens + min(prompt.limit, rules.context - prompt.tokens)
    return min(prompt.tokens + 2 * max(reserved - prompt.tokens, 1), most)


def size(prompt: Prompt, forecast: tuple[float, ...]) -> float:
    """What a request takes of the cache over time: tokens held, summed over its iterations, as expected."""
    output = mean(forecast)
    return output * (prompt.tokens + output / 2)


def place(
    rules: Rules, prompt: Prompt, forecast: tuple[float, ...], reserved: int, typical: float, delay: float
) -> Place:
    """`typical`: the mean size of late, `delay`: the mean seconds that were waited of late.

    A request is put back by `patience` times the delay for a typical one, by LARGEST times as much at most: those who come
    later than that never overtake it, and where nobody waits nobody is put back.
    """
    if rules.policy in ("s3", "oracle"):
        return 0, -float(reserved), prompt.id
    if rules.policy != "default":
        return 0, prompt.arrival, prompt.id
    large = size(prompt, forecast) / typical / max(prompt.utility, 1e-9)
    if prompt.offline:
        return 1, -large, prompt.id
    return 0, prompt.arrival + rules.patience * delay * min(large, LARGEST), prompt.id


def admit(rules: Rules, line: WaitingQueue, view: View) -> list[Waiting]:
    """Those of the line that are to run from the next iteration on."""
    room = view.memory.sequences - view.running.count
    if room <= 0 or view.queries <= 0:
        return []
    if rules.policy in RESERVING:
        return _reserving(line, view, room, rules.policy != "orca")
    if rules.policy == "paged":
        return _on_demand(line, view, room)
    return _predicted(line, view, room)


def _reserving(line: WaitingQueue, view: View, room: int, search: bool) -> list[Waiting]:
    """First fit: `search` goes on behind one that does not fit. Reservations and the pages held both must fit."""
    left, free, queries = view.memory.pages - view.reserved, view.free, view.queries
    taken: list[Waiting] = []
    waiting, last = line.first(), line.last()
    least = view.memory.need(last.reserve) if search and last else 0  # of all: the line goes by what is reserved
    while waiting is not None and len(taken) < room and queries > 0 and left >= least:
        pages, first = view.memory.need(waiting.reserve), view.memory.need(waiting.first_tokens)
        fits = pages <= left and first <= free
        if fits:
            taken.append(waiting)
            left, free, queries = left - pages, free - first, queries - max(waiting.unread, 1)
        elif not search:
            break
        beyond = (0, -float(left * view.memory.page_tokens), -1) if search and pages > left else waiting.place
        waiting = line.after(max(beyond, waiting.place))
    return taken


def _on_demand(line: WaitingQueue, view: View, room: int) -> list[Waiting]:
    keep = int(WATERMARK * view.memory.pages) if view.running.count else 0
    free, queries = view.free, view.queries
    taken: list[Waiting] = []
    for waiting in line:
        pages = view.memory.need(waiting.first_tokens)
        if len(taken) == room or queries <= 0 or free - pages < keep:
            break
        taken.append(waiting)
        free, queries = free - pages, queries - max(waiting.unread, 1)
    return taken


def _predicted(line: WaitingQueue, view: View, room: int) -> list[Waiting]:
    free, queries, first = view.free, view.queries, line.first()
    if first is None or view.memory.need(first.first_tokens) > free:
        return []
    mean_T, variance_T = held(view, view.grid.horizons)
    taken: list[Waiting] = []
    for waiting, more_T, spread_T in _foreseen(line, view):
        pages = view.memory.need(waiting.first_tokens)
        if len(taken) == room or queries <= 0 or pages > free:
            break
        mean_T, variance_T = mean_T + more_T, variance_T + spread_T
        peak = float((mean_T + view.level * np.sqrt(variance_T)).max())
        if peak > view.memory.pages and (view.running.count or taken):
            break
        taken.append(waiting)
        free, queries = free - pages, queries - max(waiting.unread, 1)
    return taken


def _foreseen(line: WaitingQueue, view: View) -> Iterator[tuple[Waiting, Floats, Floats]]:
    """[T], [T] of each that waits: some at a time, which takes little longer than one."""
    waiting = iter(line)
    while some := list(islice(waiting, AHEAD)):
        yield from zip(some, *each_held(some, view, view.grid.horizons), strict=True)


def held(view: View, horizons_T: Floats) -> tuple[Floats, Floats]:
    """[T], [T] mean and variance of the pages that those who run will hold."""
    running = view.running
    if not running.count:
        return np.zeros(len(horizons_T)), np.zeros(len(horizons_T))
    made_N, tokens_N = running.column("made"), running.column("cached") + running.column("unread")
    alive_NT = view.grid.alive(running.rows, made_N.astype(float), horizons_T)
    mean_NT, variance_NT = _moments(alive_NT, tokens_N.astype(float), horizons_T, view.memory.page_tokens)
    return mean_NT.sum(axis=0), variance_NT.sum(axis=0)


def each_held(waiting: Sequence[Waiting], view: View, horizons_T: Floats) -> tuple[Floats, Floats]:
    """[N, T], [N, T] the same of each of these, if it began now."""
    rows_NG, made_N = np.array([one.row for one in waiting]), np.array([float(one.made) for one in waiting])
    tokens_N = np.array([float(one.cached + one.unread) for one in waiting])
    alive_NT = view.grid.alive(rows_NG, made_N, horizons_T)
    return _moments(alive_NT, tokens_N, horizons_T, view.memory.page_tokens)


def _moments(alive_NT: Floats, tokens_N: Floats, horizons_T: Floats, page_tokens: int) -> tuple[Floats, Floats]:
    """A page is on average half full where a sequence ends."""
    pages_NT = (tokens_N[:, None] + horizons_T[None, :]) / page_tokens + 0.5
    expected_NT = alive_NT * pages_NT
    return expected_NT, expected_NT * (1 - alive_NT) * pages_NT


def outgrown(rules: Rules, running: Running) -> list[int]:
    """Those that S3 preempts: the next token goes beyond what is reserved."""
    if rules.policy != "s3":
        return []
    over = (running.column("cached") + 1 > running.column("reserved")) & (running.column("unread") == 0)
    return [int(id) for id in running.column("id")[over]]


def victims(rules: Rules, running: Running, needed: NDArray[np.int64], pages: int) -> list[int]:
    """Whom to preempt so that the next iteration fits into `pages`; `needed`: [N] pages of each then, held or new.

    One sequence always stays: a request that alone is too large for the cache is refused before.
    """
    excess = int(needed.sum()) - pages
    if excess <= 0:
        return []
    chosen: list[int] = []
    for place_ in _last_first(rules, running):
        if excess <= 0 or len(chosen) == running.count - 1:
            break
        chosen.append(int(running.column("id")[place_]))
        excess -= int(needed[place_])
    return chosen


def _last_first(rules: Rules, running: Running) -> NDArray[np.int64]:
    """By their place in the line, the last first; `paged` by when they were admitted."""
    if rules.policy == "default":
        return np.lexsort((running.column("turn"), running.key, running.column("group")))[::-1]
    return np.argsort(running.column("turn"))[::-1]
