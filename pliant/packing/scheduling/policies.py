"""The policies: whom to admit, in which order, and whom to preempt (Policy in policy.py is their contract).

`orca`     reserves the longest output that a request may have; first come, first served (Orca, as S3 describes it).
`s3`       reserves the upper bound of the predicted class of length and fills memory by decreasing first fit over all
           that wait. A sequence that outgrows its reservation is preempted to the host and comes back with twice the
           output reserved (S3, sections 3.2 and 3.3).
`oracle`   is `s3` with exact lengths, which nobody knows in production.
`paged`    reserves nothing and gives pages on demand; first come, first served. Where pages run out, the sequence that
           was admitted last is preempted.
`edf`      is `paged` with the earliest deadline first; the sequence with the latest one is preempted.
`past-future`  draws a length for every sequence from those of the latest outputs, given what it has generated, and
           admits, first come, first served, as long as the peak of the pages over all coming ends fits into the cache
           (Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025, as in LightLLM).
`default`  admits as long as the predicted pages of all sequences fit into the cache at every later moment, with a
           safety margin that adapts to how often sequences had to be preempted. The request that is predicted to need
           least comes first; one that has waited long is not overtaken. Offline batches come last, the largest request
           first. Prompts that begin alike share the pages of their beginnings.

Shape suffixes: N sequences, T horizons in iterations, G points of a forecast's grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import Floats, mean
from pliant.packing.scheduling.policy import Policy, Recent, Rules, View
from pliant.packing.scheduling.request import FOREVER, MAX_PRIORITY, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.targets import LAX, due
from pliant.packing.scheduling.waiting_queue import Priority, Waiting, WaitingQueue

AHEAD = 4  # waiting sequences whose pages are predicted together, which takes little longer than one
LARGEST = 5.0  # times the typical size, beyond which a request is put back no further
KEPT_FREE = 0.03  # share of the pages that `past-future` keeps free
WATERMARK = 0.01  # share of the pages that `paged` keeps free when it admits, so that it need not preempt at once


class OnDemand(Policy):
    """`paged`: pages on demand, first come, first served."""

    def choose(self, queue: WaitingQueue, view: View, room: int) -> list[Waiting]:
        keep = int(WATERMARK * view.memory.pages) if view.running.count else 0
        free, queries = view.free, view.queries
        taken: list[Waiting] = []
        for waiting in queue:
            pages = view.memory.need(waiting.first_tokens)
            if len(taken) == room or queries <= 0 or free - pages < keep:
                break
            taken.append(waiting)
            free, queries = free - pages, queries - max(waiting.unread, 1)
        return taken


class EarliestDeadline(OnDemand):
    """`edf`: the earliest deadline first."""

    by_priority = True

    def priority(self, prompt: Prompt, forecast: tuple[float, ...], reserved: int, recent: Recent) -> Priority:  # noqa: ARG002
        return 0, min(prompt.deadline, prompt.arrival + prompt.ttft), prompt.id


class PastFuture(OnDemand):
    """`past-future`: admits by the peak of the pages, if outputs are as long as the latest were.

    A length is drawn anew at every decision, by a number that depends on the sequence and its tokens alone: the same
    state gives the same decision. Until an output has ended, each counts as of its limit.
    """

    def choose(self, queue: WaitingQueue, view: View, room: int) -> list[Waiting]:
        running = view.running
        held_N = (running.column("cached") + running.column("unread")).astype(float)
        left_N = drawn_left(view, *(running.column(name) for name in ("id", "generated", "limit")))
        most = (1.0 - KEPT_FREE) * view.memory.pages * view.memory.page_tokens
        free, queries = view.free, view.queries
        taken: list[Waiting] = []
        for waiting in queue:
            pages = view.memory.need(waiting.first_tokens)
            if len(taken) == room or queries <= 0 or pages > free:
                break
            held_N = np.append(held_N, float(waiting.cached + waiting.unread))
            values = (waiting.prompt.id, waiting.generated, waiting.prompt.limit)
            left_N = np.append(left_N, drawn_left(view, *(np.array([value]) for value in values)))
            if peak(held_N, left_N) > most and (view.running.count or taken):
                break
            taken.append(waiting)
            free, queries = free - pages, queries - max(waiting.unread, 1)
        return taken


class Reserving(Policy):
    """`orca`: reserves the longest output that a request may have; first come, first served."""

    reserves = True
    search: ClassVar[bool] = False  # look on behind a sequence that does not fit

    def choose(self, queue: WaitingQueue, view: View, room: int) -> list[Waiting]:
        """First fit: both the reservations and the pages of the next iteration must fit."""
        search = self.search
        left, free, queries = view.memory.pages - view.reserved, view.free, view.queries
        taken: list[Waiting] = []
        waiting, last = queue.first(), queue.last()
        least = view.memory.need(last.reserve) if search and last else 0  # of all: the largest reservation goes first
        while waiting is not None and len(taken) < room and queries > 0 and left >= least:
            pages, first = view.memory.need(waiting.reserve), view.memory.need(waiting.first_tokens)
            fits = pages <= left and first <= free
            if fits:
                taken.append(waiting)
                left, free, queries = left - pages, free - first, queries - max(waiting.unread, 1)
            elif not search:
                break
            beyond = (0, -float(left * view.memory.page_tokens), -1) if search and pages > left else waiting.priority
            waiting = queue.after(max(beyond, waiting.priority))
        return taken


class DecreasingFirstFit(Reserving):
    """What `s3` and `oracle` have in common: the largest reservation goes first."""

    search = True

    def priority(self, prompt: Prompt, forecast: tuple[float, ...], reserved: int, recent: Recent) -> Priority:  # noqa: ARG002
        return 0, -float(reserved), prompt.id


class S3(DecreasingFirstFit):
    """`s3`: reserves what the predicted class of lengths holds at most."""

    def reserve(self, prompt: Prompt) -> int:
        longest = self.longest(prompt)
        return prompt.tokens + (min(prompt.bucket, longest) if prompt.bucket else longest)

    def outgrown(self, running: Running) -> list[int]:
        over = running.column("cached") + np.maximum(running.column("unread"), 1) > running.column("reserved")
        return [int(id) for id in running.column("id")[over]]

    def steps_until_outgrown(self, running: Running) -> int | None:
        return int((running.column("reserved") - running.column("cached")).min()) if running.count else None

    def preempted(self, waiting: Waiting) -> tuple[Priority, int]:
        """Twice the output is reserved, and what there is at least: an engine may have generated more than was planned."""
        prompt = waiting.prompt
        doubled = prompt.tokens + max(2 * max(waiting.reserve - prompt.tokens, 1), waiting.generated)
        reserved = min(doubled, prompt.tokens + self.longest(prompt))
        return (0, -float(reserved), prompt.id), reserved


class Oracle(DecreasingFirstFit):
    """`oracle`: reserves the exact length."""

    needs_exact = True

    def reserve(self, prompt: Prompt) -> int:
        if prompt.exact < 1:
            raise InputError("exact", prompt.exact, "the output's tokens, which the policy oracle must be told")
        return prompt.tokens + min(prompt.exact, prompt.limit)


class Predicted(Policy):
    """`default`: admits by the predicted peak of the pages; the smallest predicted request goes first, with ageing."""

    by_priority = True
    fair = True
    shares = True
    targets = True

    def priority(self, prompt: Prompt, forecast: tuple[float, ...], reserved: int, recent: Recent) -> Priority:  # noqa: ARG002
        """A request of typical size is put back by `reorder_patience` delays, a larger one by up to LARGEST times as much.

        Requests that arrive later than that never overtake it, and where nobody waits nobody is put back. One with a
        target goes first by when its first token is due; others count as due LAX seconds after their arrival.
        """
        if prompt.ttft < FOREVER and not prompt.offline:
            return prompt.priority, due(prompt) - LAX, prompt.id
        large = size(prompt, forecast) / recent.size / max(prompt.utility, 1e-9)
        if prompt.offline:
            return MAX_PRIORITY + 1, -large, prompt.id
        put_back = self.rules.reorder_patience * recent.delay * min(large, LARGEST)
        return prompt.priority, prompt.arrival + put_back, prompt.id

    def choose(self, queue: WaitingQueue, view: View, room: int) -> list[Waiting]:
        free, queries, first = view.free, view.queries, queue.first()
        if first is None or view.new_pages(first) > free:
            return []
        mean_T, variance_T = predicted_pages(view, view.grid.horizons)
        pages_for_all = view.memory.pages - view.common.used
        taken: list[Waiting] = []
        coming, sharing = set[int](), False  # pages that those taken use, and whether one of them shares any
        for waiting, more_T, spread_T in _foreseen(queue, view):
            shared, tokens = view.in_use(waiting, coming), view.to_read(waiting, coming)
            pages = view.new_pages(waiting, coming)
            if len(taken) == room or queries <= 0 or pages > free:
                break
            if waiting.turn and tokens > queries and (sharing or (taken and shared)):
                break  # admitted before, it reads first, and nothing might be left for who is to share pages at once
            mean_T, variance_T = mean_T + more_T, variance_T + spread_T
            pages_for_all -= view.of_beginning(waiting) - shared
            peak = float((mean_T + view.safety * np.sqrt(variance_T)).max())
            crowded = peak > pages_for_all
            if view.pace is not None and not crowded:  # whether texts keep their pace if this one runs, too
                together = [*taken, waiting]
                cached = int((view.running.column("cached") + view.running.column("unread")).sum())
                cached += sum(each.first_tokens for each in together)
                tightest = min(each.prompt.tpot for each in together)
                crowded = not view.pace.allows(view.running.count + len(together), cached, tightest)
            if crowded and (view.running.count or taken):
                break
            if view.chances is not None and not view.chances.gain(taken, waiting):
                break
            taken.append(waiting)
            free, queries = free - pages, queries - tokens
            sharing = sharing or shared > 0
            coming.update(view.joined(waiting, coming))
        return taken


BY_NAME: dict[str, type[Policy]] = {
    "default": Predicted,
    "paged": OnDemand,
    "edf": EarliestDeadline,
    "past-future": PastFuture,
    "s3": S3,
    "orca": Reserving,
    "oracle": Oracle,
}


def make(rules: Rules) -> Policy:
    """Return the policy that the rules name, or the own one that they bring."""
    return BY_NAME[rules.policy](rules) if isinstance(rules.policy, str) else rules.policy(rules)


def size(prompt: Prompt, forecast: tuple[float, ...]) -> float:
    """Return the expected space-time of a request: the tokens that it holds, summed over its iterations."""
    output = mean(forecast)
    return output * (prompt.tokens + output / 2)


def peak(held_N: Floats, left_N: Floats) -> float:
    """Return the most tokens in the cache at any end of a sequence, if n generates `left_N` more.

    The future required memory of Gong et al.: when a sequence ends, those with no fewer tokens to come are still there,
    and each has grown by as many as it had.
    """
    order = np.argsort(-left_N, kind="stable")
    at_end_N = np.cumsum(held_N[order]) + np.arange(1, len(order) + 1) * left_N[order]
    return float(at_end_N.max(initial=0.0))


def drawn_left(
    view: View, id_N: NDArray[np.int64], generated_N: NDArray[np.int64], limit_N: NDArray[np.int64]
) -> Floats:
    """Return [N] the tokens to come: a length drawn from those of the latest outputs that are longer than `generated_N`."""
    if view.past is None or not len(view.past):
        most_N: Floats = np.maximum(limit_N - generated_N, 1).astype(float)
        return most_N
    row_G = view.past.row()
    below_N = view.grid.below(np.broadcast_to(row_G, (len(id_N), len(row_G))), generated_N[:, None].astype(float))[:, 0]
    share_N = below_N + (1 - below_N) * _uniform(id_N, generated_N)
    lengths_N = view.grid.tokens[np.minimum(np.searchsorted(row_G, share_N), len(row_G) - 1)]
    left_N: Floats = np.clip(lengths_N - generated_N, 1, np.maximum(limit_N - generated_N, 1))
    return left_N


def _uniform(id_N: NDArray[np.int64], generated_N: NDArray[np.int64]) -> Floats:
    """Return [N] numbers from 0 to 1 that look random and depend on these two alone (the mixer of splitmix64)."""
    with np.errstate(over="ignore"):
        bits_N = id_N.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + generated_N.astype(np.uint64)
        bits_N = (bits_N + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        bits_N = (bits_N ^ (bits_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits_N = (bits_N ^ (bits_N >> np.uint64(31))) >> np.uint64(11)
    uniform_N: Floats = bits_N.astype(float) / (1 << 53)
    return uniform_N


def _foreseen(queue: WaitingQueue, view: View) -> Iterator[tuple[Waiting, Floats, Floats]]:
    """Yield every waiting sequence with the mean [T] and variance [T] of its pages."""
    waiting = iter(queue)
    while group := list(islice(waiting, AHEAD)):
        yield from zip(group, *predicted_pages_each(group, view, view.grid.horizons), strict=True)


def predicted_pages(view: View, horizons_T: Floats) -> tuple[Floats, Floats]:
    """Return the mean [T] and variance [T] of the pages that the running sequences will hold, common ones apart."""
    running = view.running
    if not running.count:
        return np.zeros(len(horizons_T)), np.zeros(len(horizons_T))
    generated_N, tokens_N = running.column("generated"), running.column("cached") + running.column("unread")
    tokens_N = tokens_N - running.column("common") * view.memory.page_tokens
    alive_NT = view.grid.alive(running.rows, generated_N.astype(float), horizons_T)
    mean_NT, variance_NT = _moments(alive_NT, tokens_N.astype(float), horizons_T, view.memory.page_tokens)
    return mean_NT.sum(axis=0), variance_NT.sum(axis=0)


def predicted_pages_each(waiting: Sequence[Waiting], view: View, horizons_T: Floats) -> tuple[Floats, Floats]:
    """Return the mean [N, T] and variance [N, T] of the pages of each sequence if it began now, common ones apart."""
    rows_NG = np.array([sequence.row for sequence in waiting])
    generated_N = np.array([float(sequence.generated) for sequence in waiting])
    tokens_N = np.array(
        [float(each.cached + each.unread - view.of_beginning(each) * view.memory.page_tokens) for each in waiting]
    )
    alive_NT = view.grid.alive(rows_NG, generated_N, horizons_T)
    return _moments(alive_NT, tokens_N, horizons_T, view.memory.page_tokens)


def _moments(alive_NT: Floats, tokens_N: Floats, horizons_T: Floats, page_tokens: int) -> tuple[Floats, Floats]:
    """Return mean and variance [N, T] of the pages: all that a sequence needs by then, or none if it has ended."""
    pages_NT = (tokens_N[:, None] + horizons_T[None, :]) / page_tokens + 0.5  # the last page is half full on average
    expected_NT = alive_NT * pages_NT
    return expected_NT, expected_NT * (1 - alive_NT) * pages_NT
