"""Dispatch and service of a whole trace in compiled code: as pliant/simulator.py with the scheduler, but far faster.

Placement "single" (a runtime and a queue per device, swaps in turn) and "shared" (one queue); batch size 1, service
times exactly the profile's, nothing dropped. It agrees with the scheduler in virtual time
(tests/pliant/bins/test_replay.py). Plans are judged by it, and traces of millions of requests simulated.

State of "single", in arrays of the caller that are changed in place, `loads` and `pending`:

 holds [W] runtime of each device, -1 while it gets no requests; free_at [W] seconds; out [W] requests outstanding;
 heap [R, W], size [R], pos [W]: per runtime its devices in a binary heap by load, then number;
 ends [n], ended_by [n], count [1]: heap of the ends of outstanding requests.
"""

# mypy: ignore-errors
# numba infers the types

from __future__ import annotations

from heapq import heappop, heappush

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COMPLETION = 0
LAMBDA, ALPHA, MAX_SEEN = 0.85, 0.9, 6
LATE = 1e12


@numba.njit(cache=True)
def _before(a, b, by_time, free_at, out):
    """Return whether device `a` stands before device `b` in a heap."""
    if by_time:
        return free_at[a] < free_at[b] or (free_at[a] == free_at[b] and a < b)
    return out[a] < out[b] or (out[a] == out[b] and a < b)


@numba.njit(cache=True)
def _settle(r, at, by_time, loads):
    """Restore the heap of runtime `r` after the load of the device at place `at` has changed."""
    _, free_at, out, heap, size, pos = loads
    w = heap[r, at]
    while at > 0 and _before(w, heap[r, (at - 1) // 2], by_time, free_at, out):
        heap[r, at] = heap[r, (at - 1) // 2]
        pos[heap[r, at]] = at
        at = (at - 1) // 2
    while True:
        child = 2 * at + 1
        if child >= size[r]:
            break
        if child + 1 < size[r] and _before(heap[r, child + 1], heap[r, child], by_time, free_at, out):
            child += 1
        if not _before(heap[r, child], w, by_time, free_at, out):
            break
        heap[r, at] = heap[r, child]
        pos[heap[r, at]] = at
        at = child
    heap[r, at] = w
    pos[w] = at


@numba.njit(cache=True)
def join(w, r, by_time, loads):
    """Let device `w` hold runtime `r` from now on."""
    holds, _, _, heap, size, pos = loads
    holds[w] = r
    heap[r, size[r]] = w
    pos[w] = size[r]
    size[r] += 1
    _settle(r, pos[w], by_time, loads)


@numba.njit(cache=True)
def leave(w, by_time, loads):
    """Give device `w` no more requests."""
    holds, _, _, heap, size, pos = loads
    r = holds[w]
    at = pos[w]
    size[r] -= 1
    holds[w] = -1
    if at < size[r]:
        heap[r, at] = heap[r, size[r]]
        pos[heap[r, at]] = at
        _settle(r, at, by_time, loads)


@numba.njit(cache=True)
def choose(policy, first, end, now, seconds, capacity, loads):
    """Return the device that the request goes to (see pliant/bins/dispatch.py), or -1."""
    _, free_at, out, heap, size, _ = loads
    best, fallback, lam, seen, least = -1, -1, LAMBDA, 0, np.inf
    for r in range(first, end):
        if size[r] == 0:
            continue
        w = heap[r, 0]
        if fallback < 0:
            fallback = w
        if policy == COMPLETION:
            ends = max(free_at[w], now) + seconds[r]
            if ends < least:
                best, least = w, ends
        else:
            if out[w] / capacity[r] < lam:
                return w
            lam *= ALPHA
            seen += 1
            if seen == MAX_SEEN:
                break
    return best if best >= 0 else fallback


@numba.njit(cache=True)
def _push_end(at, w, pending):
    """Add the end of a request on device `w` to the heap."""
    ends, ended_by, count = pending
    i = count[0]
    count[0] += 1
    while i > 0 and ends[(i - 1) // 2] > at:
        ends[i], ended_by[i] = ends[(i - 1) // 2], ended_by[(i - 1) // 2]
        i = (i - 1) // 2
    ends[i], ended_by[i] = at, w


@numba.njit(cache=True)
def _pop_end(pending):
    """Remove the earliest end from the heap, and return its device."""
    ends, ended_by, count = pending
    device = ended_by[0]
    count[0] -= 1
    last, w, i = ends[count[0]], ended_by[count[0]], 0
    while True:
        child = 2 * i + 1
        if child >= count[0]:
            break
        if child + 1 < count[0] and ends[child + 1] < ends[child]:
            child += 1
        if ends[child] >= last:
            break
        ends[i], ended_by[i] = ends[child], ended_by[child]
        i = child
    ends[i], ended_by[i] = last, w
    return device


@numba.njit(cache=True)
def serve_single(policy, times, ranges, services, loads, pending, swaps, done):
    """Serve requests in order of `times`; `done` [n] gets when each ends.

    `ranges`: [n] first runtime that is long enough, and [n] one beyond the last. `services`: [n] seconds on a runtime where
    [R] says so, otherwise [R] seconds; and [R] capacity. `loads`: (holds, free_at, out, heap, size, pos); `pending`: (ends,
    ended_by, count). `swaps`: from a time on (the last), these devices load these runtimes in turn, so many of them at a
    time, in so many seconds each; what is not through at the last request is finished at once.
    """
    (first, end), (own, dynamic, seconds, capacity) = ranges, services
    holds, free_at, out, _, _, pos = loads
    swap_worker, swap_to, at_once, load_seconds, begin = swaps
    by_time = policy == COMPLETION
    loading_at = np.full(at_once, np.inf)
    loading = np.full(at_once, -1)
    turn = 0
    now = begin
    for k in range(len(times) + 1):
        arrival = times[k] if k < len(times) else np.inf
        while True:  # loads that begin or end before this arrival
            slot = np.argmin(loading_at)
            if loading_at[slot] <= arrival and loading[slot] >= 0:
                now = loading_at[slot]
                swap = loading[slot]
                _release(now, by_time, loads, pending)
                join(swap_worker[swap], swap_to[swap], by_time, loads)
                loading_at[slot], loading[slot] = np.inf, -1
            free = -1
            for slot in range(at_once):
                if loading[slot] < 0:
                    free = slot
                    break
            if free >= 0 and turn < len(swap_worker):
                w = swap_worker[turn]
                if holds[w] >= 0:
                    leave(w, by_time, loads)
                free_at[w] = max(free_at[w], now) + load_seconds
                loading_at[free], loading[free] = free_at[w], turn
                turn += 1
            elif loading_at.min() > arrival or loading_at.min() == np.inf:
                break
        if k == len(times):
            break
        now = arrival
        _release(now, by_time, loads, pending)
        w = choose(policy, first[k], end[k], now, seconds, capacity, loads)
        if w < 0:
            done[k] = np.inf
            continue
        r = holds[w]
        free_at[w] = max(free_at[w], now) + (own[k] if dynamic[r] else seconds[r])
        done[k] = free_at[w]
        if not by_time:
            out[w] += 1
            _push_end(done[k], w, pending)
        _settle(r, pos[w], by_time, loads)


@numba.njit(cache=True)
def _release(now, by_time, loads, pending):
    """Take the requests that have ended off their devices' loads, where these are numbers of requests."""
    holds, _, out, _, _, pos = loads
    ends, _, count = pending
    while not by_time and count[0] > 0 and ends[0] <= now:
        w = _pop_end(pending)
        out[w] -= 1
        if holds[w] >= 0:
            _settle(holds[w], pos[w], False, loads)


@numba.njit(cache=True)
def serve_shared(times, seconds, patience, until, devices, done):
    """Serve requests from one queue on `devices` that each hold every runtime, in the order of pliant/bins/shared.py.

    `seconds` [n] of each request alone, `patience` [n], `until` [n] when each must have ended; `done` [n] gets when it
    does.
    """
    queue = [(0.0, 0)]
    queue.clear()
    busy = [(0.0, 0)]
    busy.clear()
    k, free = 0, devices
    while k < len(times) or len(queue) > 0:
        if len(busy) > 0 and (k == len(times) or busy[0][0] <= times[k]):
            now = heappop(busy)[0]
            free += 1
        else:
            now = times[k]
            heappush(queue, (now + patience[k] * seconds[k], k))
            k += 1
        while free > 0 and len(queue) > 0:
            place, request = heappop(queue)
            if place < LATE and now >= until[request] - seconds[request]:
                heappush(queue, (place + LATE, request))
                continue
            free -= 1
            done[request] = now + seconds[request]
            heappush(busy, (done[request], request))
