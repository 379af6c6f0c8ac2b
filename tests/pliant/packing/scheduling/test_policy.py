"""The policies' choices against the plainest way of making them, and S3 against its paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pliant.packing.scheduling.forecast import QUANTILES, Grid
from pliant.packing.scheduling.policies import make, predicted_pages, predicted_pages_each
from pliant.packing.scheduling.policy import POLICIES, Rules, View
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.waiting_queue import Waiting, WaitingQueue
from tests.fixtures.packing.samples import Scene, play, prompt, scene, seeds

reserving = st.sampled_from(("s3", "oracle", "orca"))


def waiting(rng, id: int, rules: Rules) -> Waiting:
    """Return a waiting sequence: a new one, one with pages on the host, or one to read again; many reserve the same."""
    drawn = prompt(id, int(rng.integers(1, 20)), int(rng.integers(1, 30)), arrival=float(rng.integers(0, 9)))
    generated, hosted = int(rng.integers(0, drawn.limit)), bool(rng.random() < 0.5)
    reserve = drawn.tokens + int(rng.integers(1, 6)) * 5
    whole = drawn.tokens + generated
    cached, unread = (whole, 0) if hosted else (0, whole)
    key = -float(reserve) if rules.policy != "orca" else drawn.arrival
    return Waiting(drawn, (0, key, id), Grid(64).row(drawn.forecast, drawn.limit), reserve, generated, cached, unread)


def naive(items: list[Waiting], view: View, room: int, search: bool) -> list[int]:
    """First fit over all that wait, one after another, within reserved and free pages, queries and sequences."""
    left, free, queries, taken = view.memory.pages - view.reserved, view.free, view.queries, []
    for item in items:
        if len(taken) == room or queries <= 0:
            break
        pages, first = view.memory.need(item.reserve), view.memory.need(item.cached + max(item.unread, 1))
        if pages <= left and first <= free:
            taken.append(item.prompt.id)
            left, free, queries = left - pages, free - first, queries - max(item.unread, 1)
        elif not search:
            break
    return taken


@given(seeds, reserving)
def test_first_fit_decreasing_chooses_as_a_plain_list_does(seed, name):
    rng = np.random.default_rng(seed)
    rules, memory = Rules(name, 64), Memory(int(rng.integers(1, 60)), int(rng.integers(1, 8)), sequences=10)
    queue = WaitingQueue()
    for id in rng.permutation(int(rng.integers(0, 40))).tolist():
        queue.add(waiting(rng, id, rules))
    reserved = int(rng.integers(0, memory.pages + 1))
    free, queries = (
        int(rng.integers(0, memory.pages - reserved + 10)),
        int(rng.choice([rng.integers(-2, 12), rng.integers(0, 200)])),
    )
    view = View(memory, free, reserved, queries, memory.sequences, 0.0, Running(), Grid(64))
    chosen = [item.prompt.id for item in make(rules).admit(queue, view)]
    assert chosen == naive(sorted(queue, key=lambda item: item.priority), view, 10, name != "orca")


def test_who_outgrows_a_reservation_goes_to_the_host_and_comes_back_with_twice_the_output():
    load = Scene(64, Memory(16, 4, host_pages=16), (prompt(0, 4, 60, bucket=6),), {0: 60})
    scheduler = PackingScheduler(load.rules("s3"), load.memory)
    _, journal = play(load, scheduler)
    cached, at = [], 0
    for _, _, plan in journal:
        if plan.offloaded:
            cached.append(at)
        if not (plan.offloaded and not plan.admitted):
            at += 4 if plan.prefill_chunks else 1
    assert cached == [10, 16, 28, 52]  # 4 + 6, 12, 24, 48; the next is the limit
    assert not any(plan.discarded for _, _, plan in journal) and scheduler.swapped == sum(cached)


@given(seeds)
def test_no_sequence_of_s3_ever_holds_more_than_is_reserved_nor_is_stopped_before_its_end_needs_it(seed):
    load = scene(seed, deadlines=0)
    right = tuple(replace(prompt_, bucket=prompt_.exact) for prompt_ in load.prompts)
    _, journal = play(
        replace(load, prompts=right), PackingScheduler(load.rules("s3"), load.memory)
    )  # `play` checks the pages
    assert not any(plan.offloaded or plan.discarded for _, _, plan in journal)


@given(st.integers(1, 30), st.integers(1, 60), st.integers(1, 60))
def test_doubling_reaches_the_longest_output_and_stops_there(tokens, limit, bucket):
    s3, request = make(Rules("s3", 200)), prompt(1, tokens, limit, bucket=bucket)
    sequence = Waiting(request, (0, 0.0, 1), Grid(64).row(request.forecast, limit), s3.reserve(request))
    for _ in range(7):
        priority, more = s3.preempted(sequence)
        assert more - tokens == min(2 * (sequence.reserve - tokens), limit)
        assert priority == (0, -float(more), 1)
        sequence = replace(sequence, reserve=more)
    assert sequence.reserve == tokens + limit


def crowd(rng, count: int) -> Running:
    running = Running()
    for id in range(count):
        cached, unread = (int(x) for x in rng.integers(0, 30, 2) * (1, rng.random() < 0.3))
        group, key = int(rng.random() < 0.3), float(rng.integers(-3, 3))
        running.add((id, 1, cached, unread, 99, 99, int(rng.permutation(50)[0]), 9, group), key, np.zeros(96))
    return running


@given(seeds, st.integers(1, 20), st.integers(0, 80), st.sampled_from(tuple(POLICIES)))
def test_victims_free_enough_are_the_last_in_line_and_never_all(seed, count, pages, name):
    running = crowd(np.random.default_rng(seed), count)
    needed = running.needed(1, 4)
    chosen = make(Rules(name, 200)).victims(running, needed, pages)
    places = zip(*(running.column(name).tolist() for name in ("id", "group", "turn")), running.key, needed, strict=True)
    by_priority = name in ("default", "edf")
    rows = [(((group, key, turn) if by_priority else (turn,)), int(need), id) for id, group, turn, key, need in places]
    stays = sum(need for _, need, id in rows if id not in chosen)
    assert len(chosen) < count
    assert stays <= pages or len(chosen) == count - 1
    last = sorted((row for row in rows if row[2] in chosen), key=lambda row: row[0])
    assert all(row[0] <= last[0][0] for row in rows if row[2] not in chosen) if chosen else True
    if chosen:  # and not one too many
        assert stays + next(need for _, need, id in rows if id == chosen[-1]) > pages


# The admission of `default`


def view(memory: Memory, running: Running, safety: float = 0.0, context: int = 512) -> View:
    free = memory.pages - int(running.needed(1, memory.page_tokens).sum())
    return View(memory, free, 0, 10_000, memory.sequences, safety, running, Grid(context))


def spread(rng, longest: int) -> tuple[float, ...]:
    """Return the quantiles of a log-normal distribution, as a predictor does."""
    middle, width = rng.uniform(10, longest / 4), rng.uniform(0.2, 0.9)
    z = np.array([-1.645, -1.282, -0.674, 0, 0.674, 1.282, 1.645, 2.326])
    return tuple(np.clip(middle * np.exp(width * z), 1, longest).tolist())


def drawn(forecasts, limits, generated, rng, samples: int) -> np.ndarray:
    """Return outputs [samples, N] from the forecasts' distributions that are longer than what was generated."""
    lengths = np.empty((samples, len(forecasts)))
    for n, (quantiles, limit) in enumerate(zip(forecasts, limits, strict=True)):
        knots, levels = np.log([1.0, *quantiles, limit]), np.array([0.0, *QUANTILES, 1.0])
        least = np.interp(np.log(max(generated[n], 1)), knots, levels) if generated[n] else 0.0
        lengths[:, n] = np.exp(np.interp(rng.uniform(least, 1, samples), levels, knots))
    return lengths


@given(seeds)
def test_default_admits_in_the_order_of_the_line_as_long_as_the_predicted_peak_fits(seed):
    """Compared with the whole sum for every candidate."""
    rng = np.random.default_rng(seed)
    memory, rules, queue = Memory(int(rng.integers(40, 400)), 8), Rules("default", 512), WaitingQueue()
    running = Running()
    for n in range(int(rng.integers(0, 6))):
        running.add((100 + n, 5, 20, 0, 400, 0, n, 15, 0), 0.0, Grid(512).row(spread(rng, 400), 400))
    for id in range(12):
        forecast = spread(rng, 400)
        item = prompt(id, int(rng.integers(1, 60)), 400, forecast)
        queue.add(Waiting(item, (0, float(rng.random()), id), Grid(512).row(forecast, 400), 0, unread=item.tokens))
    seen = view(memory, running, safety=float(rng.uniform(0, 3)))
    chosen = [item.prompt.id for item in make(rules).admit(queue, seen)]
    order = list(queue)
    assert chosen == [item.prompt.id for item in order[: len(chosen)]]
    fitting = [fits(order[:count], seen, bool(running.count)) for count in range(1, len(order) + 1)]
    assert all(fitting[: len(chosen)]) and not any(fitting[len(chosen) : len(chosen) + 1])


def alone(item: Waiting, seen: View, horizons_T):
    mean_1T, variance_1T = predicted_pages_each([item], seen, horizons_T)
    return mean_1T[0], variance_1T[0]


def fits(taken: list[Waiting], seen: View, others: bool) -> bool:
    horizons_T = seen.grid.horizons
    moments = [predicted_pages(seen, horizons_T), *(alone(item, seen, horizons_T) for item in taken)]
    mean_T, variance_T = (np.sum(part, axis=0) for part in zip(*moments, strict=True))
    now = sum(seen.memory.need(item.unread) for item in taken) <= seen.free
    first = len(taken) == 1 and not others
    return now and (first or float(np.max(mean_T + seen.safety * np.sqrt(variance_T))) <= seen.memory.pages)
