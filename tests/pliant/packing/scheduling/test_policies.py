"""What each policy reserves, admits and preempts: by hand, against the plainest way of choosing, and against S3's paper."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import QUANTILES, WINDOW, Grid, Past
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policies import (
    KEPT_FREE,
    LARGEST,
    drawn_left,
    make,
    peak,
    predicted_pages,
    predicted_pages_each,
    size,
)
from pliant.packing.scheduling.policy import BOUNDS, POLICIES, Recent, Rules, Safety, View
from pliant.packing.scheduling.request import FOREVER, Memory, StepInput
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.targets import Clock
from pliant.packing.scheduling.waiting_queue import Waiting, WaitingQueue
from tests.fixtures.packing.samples import Scene, play, prompt, scene, seeds


def view(memory: Memory, running: Running, context: int = 64) -> View:
    free = memory.pages - int(running.needed(1, memory.page_tokens).sum())
    return View(memory, free, 0, 10_000, memory.sequences, 0.0, running, Grid(context))


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("policy", "best", "one of default, .*"),
        ("context", 1, "at least 2 tokens"),
        ("safety", float("inf"), "finite"),
        ("preemption_target", -0.01, "at least 0 and finite"),
        ("preemption_target", float("inf"), "at least 0 and finite"),
        ("turnover_preemptions", -0.01, "at least 0 and finite"),
        ("reorder_patience", -0.01, "at least 0 and finite"),
        ("reorder_patience", float("inf"), "at least 0 and finite"),
    ],
)
def test_a_rule_beyond_its_limits_is_refused_with_its_name_its_value_and_its_limit(field, value, limit):
    with pytest.raises(InputError, match=f"^{field} is {value}, but must be {limit}$"):
        Rules(**{field: value})


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_is_admitted_without_a_place_and_a_token_to_read(name):
    rules, queue = Rules(name, 64), WaitingQueue()
    request = prompt(1, exact=4)
    queue.add(Waiting(request, (0, 0.0, 1), Grid(64).row(request.forecast, 8), 12, unread=4))
    seen = replace(view(Memory(40, 4), Running()), room=1, queries=1)
    policy = make(rules)
    assert [item.prompt.id for item in policy.admit(queue, seen)] == [1]
    assert policy.admit(queue, replace(seen, room=0)) == policy.admit(queue, replace(seen, queries=0)) == []
    assert policy.admit(queue, replace(seen, room=-1)) == policy.admit(queue, replace(seen, queries=-1)) == []
    assert policy.admit(WaitingQueue(), seen) == []


def items(queue: WaitingQueue, count: int, **rest) -> WaitingQueue:
    for id in range(count):
        request = prompt(id, forecast=rest.get("forecast", 4.0), limit=rest.get("limit", 8))
        row = Grid(64).row(request.forecast, request.limit)
        queue.add(Waiting(request, (0, float(id), id), row, 12, 0, rest.get("cached", 0), rest.get("unread", 4)))
    return queue


def one_runs() -> Running:
    running = Running()
    running.add((99, 1, 4, 0, 8, 12, 1, 4, 0), 0.0, Grid(64).row((4.0,) * 8, 8))
    return running


@pytest.mark.parametrize(
    ("changes", "rest", "taken"),
    [
        ({"free": 20}, {}, 10),  # a hundredth of the pages is kept for who runs
        ({"free": 10}, {}, 0),
        ({"free": 20, "running": Running()}, {}, 20),  # nobody does
        ({"free": 500, "room": 7}, {}, 7),
        ({"free": 500, "queries": 8}, {}, 2),
        ({"free": 500, "queries": 9}, {}, 3),
        ({"free": 500, "queries": 9}, {"unread": 0, "cached": 8}, 9),  # who comes back with its pages reads one token
        ({"free": 19}, {"unread": 0, "cached": 8}, 3),  # and needs a third page for it
    ],
)
def test_on_demand_takes_who_fits_into_pages_places_and_tokens_and_keeps_a_hundredth_of_the_pages(changes, rest, taken):
    seen = replace(view(Memory(1000, 4), one_runs()), **changes)
    chosen = make(Rules("paged", 64)).admit(items(WaitingQueue(), 30, **rest), seen)
    assert [item.prompt.id for item in chosen] == list(range(taken))


@pytest.mark.parametrize(
    ("changes", "rest", "taken"),
    [
        ({"free": 3}, {}, 3),
        ({"free": 0}, {}, 0),
        ({"room": 7}, {}, 7),
        ({"queries": 8}, {}, 2),
        ({"queries": 9}, {}, 3),
        ({"queries": 9}, {"unread": 0, "cached": 8}, 9),
        ({"free": 8}, {"unread": 0, "cached": 8}, 2),
        # Each is foreseen with 21 tokens and half a page 17 iterations from now, the last horizon before its end.
        ({"memory": Memory(50, 4)}, {"forecast": 20.0, "limit": 20}, 9),
        ({"memory": Memory(5, 4), "running": Running()}, {"forecast": 20.0, "limit": 20}, 1),  # alone, come what may
        ({"memory": Memory(5, 4)}, {"forecast": 20.0, "limit": 20}, 0),
    ],
)
def test_by_default_pages_places_and_tokens_bound_who_joins_besides_the_peak_that_is_predicted(changes, rest, taken):
    seen = replace(view(Memory(1000, 4), one_runs()), **changes)
    chosen = make(Rules("default", 64)).admit(items(WaitingQueue(), 30, **rest), seen)
    assert [item.prompt.id for item in chosen] == list(range(taken))


def test_a_sequence_needs_its_tokens_and_half_a_page_as_long_as_it_lives():
    """Half of those of uniform logs live after 32 of 1024 tokens; the pages of one that may be gone vary."""
    running, row = Running(), Grid(1024).row(tuple(1024.0**level for level in QUANTILES), 1024)
    running.add((1, 1, 6, 2, 1024, 0, 1, 8, 0), 0.0, row)
    running.add((2, 32, 40, 0, 1024, 0, 2, 8, 0), 0.0, row)
    seen, horizons_T = view(Memory(1000, 4), running, context=1024), np.array([31.0, 32.0])
    alive_NT = np.array([[0.5, 1 - np.log2(33) / 10], [(1 - np.log2(63) / 10) / 0.5, 0.8]])
    pages_NT = np.array([[39 / 4 + 0.5, 40 / 4 + 0.5], [71 / 4 + 0.5, 72 / 4 + 0.5]])
    mean_T, variance_T = predicted_pages(seen, horizons_T)
    assert mean_T == pytest.approx((alive_NT * pages_NT).sum(axis=0), rel=1e-3)
    assert variance_T == pytest.approx((alive_NT * (1 - alive_NT) * pages_NT**2).sum(axis=0), rel=1e-3)
    empty = view(Memory(1000, 4), Running(), context=1024)
    assert [part.tolist() for part in predicted_pages(empty, horizons_T)] == [[0, 0], [0, 0]]


COMMON = (5, 6, 7, 8)  # pages of four tokens with which prompts begin


def alike(id: int, beginnings: tuple[int, ...] = COMMON, **state) -> Waiting:
    request = prompt(id, tokens=18, limit=8, forecast=4.0, beginnings=beginnings)
    return Waiting(request, (0, float(id), id), Grid(64).row(request.forecast, 8), 0, **{"unread": 18, **state})


def admitted(waiting: list[Waiting], seen: View) -> list[int]:
    queue = WaitingQueue()
    for sequence in waiting:
        queue.add(sequence)
    return [sequence.prompt.id for sequence in make(Rules("default", 64)).admit(queue, seen)]


def sharing(**state) -> View:
    return replace(view(Memory(60, 4), Running()), **{"at_once": True, **state})


def test_those_admitted_together_need_pages_for_what_they_do_not_share() -> None:
    queue = [alike(1), alike(2), alike(3, (5, 6, 9, 10)), alike(4, (1, 2, 3, 4))]
    assert admitted(queue, sharing(free=9)) == [1, 2, 3], "5 pages, 1 and 3"
    assert admitted(queue, sharing(free=8)) == [1, 2]
    assert admitted(queue, sharing(free=9, at_once=False)) == [1], "where one might pause nobody counts on the others"
    assert admitted(queue, sharing(queries=19)) == [1, 2], "18 tokens and 2"
    assert sharing().all_to_read(queue) == 18 + 2 + 10 + 18


def test_who_comes_back_from_the_host_shares_with_nobody_admitted_beside_it() -> None:
    back = alike(2, cached=8, unread=10)
    assert admitted([alike(1), back, alike(3)], sharing(free=10)) == [1, 2], "5 pages and all its 5"
    assert sharing().joined(back, ()) == []


def test_who_was_admitted_before_waits_where_it_would_read_before_those_that_share() -> None:
    again = alike(3, beginnings=(), turn=1, unread=30)
    assert admitted([alike(1), alike(2), again], sharing(queries=40)) == [1, 2]
    assert admitted([alike(1), again], sharing(queries=40)) == [1, 3], "nobody shares"
    assert admitted([alike(1), alike(3, turn=1, unread=36)], sharing(queries=20)) == [1], "it would read for the other"
    assert admitted([alike(3, turn=1, unread=36)], sharing(queries=20)) == [3]
    assert admitted([alike(1), alike(2), again], sharing(queries=50)) == [1, 2, 3], "all are read at once"


CONTEXT = 64
RECENTLY = Recent(size=10.0, delay=2.0)


def policy(name: str, **rest):
    return make(Rules(name, CONTEXT, **rest))


@pytest.mark.parametrize(
    ("name", "request_", "reserved"),
    [
        ("orca", {"tokens": 10, "limit": 20}, 30),
        ("orca", {"tokens": 10, "limit": 100}, CONTEXT),
        ("s3", {"tokens": 10, "limit": 20, "bucket": 8}, 18),
        ("s3", {"tokens": 10, "limit": 20, "bucket": 32}, 30),
        ("s3", {"tokens": 10, "limit": 20}, 30),
        ("oracle", {"tokens": 10, "limit": 20, "exact": 7}, 17),
        ("oracle", {"tokens": 10, "limit": 5, "exact": 7}, 15),
    ],
)
def test_what_is_reserved_is_prompt_and_output_within_limit_and_context(name, request_, reserved):
    assert policy(name).reserve(prompt(0, **request_)) == reserved


def test_the_largest_reservation_goes_first_or_who_came_first():
    early, late = prompt(1, arrival=1.0), prompt(2, arrival=2.0)
    for name in ("s3", "oracle"):
        assert policy(name).priority(late, (), 30, RECENTLY) < policy(name).priority(early, (), 20, RECENTLY)
        assert policy(name).priority(early, (), 20, RECENTLY) < policy(name).priority(late, (), 20, RECENTLY)
    for name in ("orca", "paged"):
        assert policy(name).priority(early, (), 20, RECENTLY) < policy(name).priority(late, (), 30, RECENTLY)


def test_by_default_a_request_is_put_back_by_its_size_up_to_a_limit():
    default = policy("default", reorder_patience=1.5)
    typical, twice, huge = ((float(tokens),) * 8 for tokens in (2, 4, 1000))
    assert size(prompt(0, tokens=4), typical) == 10.0
    assert default.priority(prompt(0, tokens=4, arrival=7.0), typical, 0, RECENTLY) == (0, 7.0 + 1.5 * 2.0 * 1.0, 0)
    assert default.priority(prompt(0, tokens=4, arrival=7.0), twice, 0, RECENTLY) == (0, 7.0 + 1.5 * 2.0 * 2.4, 0)
    assert default.priority(prompt(0, tokens=4), huge, 0, RECENTLY) == (0, 1.5 * 2.0 * LARGEST, 0)
    assert default.priority(prompt(0, tokens=4, utility=2.0), typical, 0, RECENTLY) == (0, 1.5, 0)
    assert default.priority(prompt(0, utility=0.0), typical, 0, RECENTLY) == (0, 1.5 * 2.0 * 5.0, 0), "as the largest"
    assert default.priority(prompt(9, offline=True, utility=2.0), typical, 0, RECENTLY) == (1001, -0.5, 9)


class Rows:
    """Rows of running sequences by column."""

    def __init__(self, **columns: list[int]) -> None:
        self._columns = {name: np.array(values) for name, values in columns.items()}
        self.count = len(next(iter(columns.values())))
        self.key = np.array(columns.get("key", []), dtype=float)

    def column(self, name: str):
        return self._columns[name]


def test_s3_preempts_what_outgrows_its_reservation_and_knows_when_that_will_be():
    running = Rows(id=[4, 5, 6, 7, 8], cached=[9, 10, 11, 7, 7], reserved=[10] * 5, unread=[0, 0, 0, 3, 4])
    assert policy("s3").outgrown(running) == [5, 6, 8]
    assert policy("s3").steps_until_outgrown(Rows(cached=[3, 7], reserved=[10, 9])) == 2
    assert policy("s3").steps_until_outgrown(SimpleNamespace(count=0)) is None
    assert policy("orca").outgrown(running) == [] and policy("orca").steps_until_outgrown(running) is None


def test_whoever_was_admitted_last_is_preempted_first_and_one_always_stays():
    running = Rows(id=[4, 5, 6], turn=[2, 3, 1])
    needed = np.array([3, 3, 3])
    paged = policy("paged")
    assert [paged.victims(running, needed, pages) for pages in (9, 8, 6, 5, 0)] == [[], [5], [5], [5, 4], [5, 4]]


def test_by_default_the_last_in_priority_is_preempted_first():
    running = Rows(id=[4, 5, 6, 7], turn=[1, 2, 3, 4], group=[0, 1, 0, 0], key=[5, 1, 7, 7])
    assert policy("default").last_first(running).tolist() == [1, 3, 2, 0]


def test_a_reservation_is_outgrown_by_the_next_token_of_who_generates_and_s3_knows_of_no_other():
    running = Rows(id=[4, 5], cached=[9, 9], reserved=[10, 10], unread=[0, 1])
    assert policy("s3").outgrown(running) == []
    assert policy("s3").steps_until_outgrown(running) == 1
    assert policy("oracle").outgrown(Rows(id=[4], cached=[10], reserved=[10], unread=[0])) == []


COST = LinearCost(base=1.0, query=0.1, sequence=0.0, token=0.0, pair=0.0, swap=0.01)  # seconds


def after_ends(between: float, clock: Clock | None, **rules) -> Safety:
    """A safety that began at 1 and has seen three ends, so many seconds apart, of which none lowers it."""
    safety = Safety(Rules(safety=1.0, preemption_target=0.0, **rules), clock)
    for number in range(3):
        safety.end(2, (number + 1) * between)
    return safety


@pytest.mark.parametrize(("between", "to_host", "added"), [(3.0, False, 0.1), (30.0, False, 0.01), (3.0, True, 0.02)])
def test_a_preemption_counts_by_its_seconds_over_those_between_two_ends(between, to_host, added):
    safety = after_ends(between, Clock(COST))
    safety.preempt(10, to_host, 2, 40)  # read again in 1 s, copied in 0.1 s each way
    assert safety.value == pytest.approx(1.0 + added)


@pytest.mark.parametrize("clock", [None, Clock(COST)])
def test_it_counts_as_one_without_a_clock_or_where_the_number_is_of_a_turnover(clock):
    safety = after_ends(60.0, clock, turnover_preemptions=0.3 if clock else 0.0)
    before = safety.value
    safety.preempt(10, False, 2, 40)
    assert safety.value == pytest.approx(before + 0.1)


def test_the_first_ends_and_dear_preemptions_move_it_within_bounds():
    safety = Safety(Rules(safety=1.0), Clock(COST))
    safety.preempt(10, False, 2, 40)
    assert safety.value == pytest.approx(1.1), "no time between two ends is known"
    safety = after_ends(0.001, Clock(COST))
    for _ in range(30):
        safety.preempt(1000, False, 2, 40)
    assert safety.value == BOUNDS[1]


GRID = Grid(200)
sequences = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), max_size=12)


def held_at_any_time(held: list[int], left: list[int]) -> int:
    """Generate a token of each sequence at a time; one that has ended holds nothing any more."""
    most = 0
    for time in range(1, max(left, default=0) + 1):
        most = max(most, sum(h + time for h, more in zip(held, left, strict=True) if more >= time))
    return most


@given(sequences)
def test_the_peak_is_the_most_that_is_ever_held(pairs):
    held, left = [h for h, _ in pairs], [more for _, more in pairs]
    assert peak(np.array(held, float), np.array(left, float)) == held_at_any_time(held, left)


def past_of(lengths) -> Past:
    past = Past(GRID)
    for tokens in lengths:
        past.add(int(tokens))
    return past


def past_view(past: Past) -> View:
    return View(Memory(100, 4), 100, 0, 512, 100, 0.0, Running(), GRID, past=past)


@given(seeds)
def test_a_drawn_length_is_more_than_there_is_and_at_most_the_limit(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 50))
    limits = rng.integers(1, 250, count)
    generated = np.minimum(rng.integers(0, 250, count), limits - 1)
    left = drawn_left(
        past_view(past_of(rng.integers(1, 200, rng.integers(0, 40)))), rng.integers(0, 10**9, count), generated, limits
    )
    assert left.shape == (count,) and (left >= 1).all() and (generated + left <= limits).all()


@pytest.mark.parametrize("generated", [0, 20, 60])
def test_drawn_lengths_are_distributed_as_those_of_the_past_that_are_longer(generated):
    rng = np.random.default_rng(5)
    outputs = np.clip(np.rint(np.exp(rng.normal(3.5, 0.6, WINDOW))), 1, 200)
    count = 4000
    left = drawn_left(past_view(past_of(outputs)), np.arange(count), np.full(count, generated), np.full(count, 200))
    longer = outputs[outputs > generated]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        real = np.quantile(longer, share)
        assert (generated + left <= real * 1.06 + 1).mean() == pytest.approx(share, abs=0.12)
    assert (generated + left).mean() == pytest.approx(longer.mean(), rel=0.08)


@given(seeds)
def test_the_past_is_the_share_of_the_latest_outputs_up_to_each_length(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 200, int(rng.choice([0, 1, 30, WINDOW + 50])))
    past = past_of(lengths)
    latest = lengths[-WINDOW:]
    assert len(past) == len(latest)
    expected = [(latest <= tokens + 1e-9).mean() if len(latest) else 0.0 for tokens in GRID.tokens]
    assert past.row() == pytest.approx(expected)


def test_past_future_admits_as_many_as_fit_by_their_limits_at_first_and_by_past_lengths_later():
    """A hundred pages of four tokens hold 388 tokens besides what is kept free."""
    scheduler = PackingScheduler(Rules("past-future", 200), Memory(100, 4))
    prompts = tuple(prompt(id, 10, 90) for id in range(40))
    first = scheduler.handle(StepInput(prompts), 0.0).admitted
    assert len(first) == int((1 - KEPT_FREE) * 400 // 100)
    scheduler.handle(StepInput(finished=first), 1.0)  # each has generated one token
    admitted = scheduler.handle(StepInput(cancelled=tuple(range(30, 40))), 2.0).admitted
    assert scheduler.running > 2 * len(first) and (admitted == () or admitted[0] > first[-1])
    scheduler.check()


def test_the_earliest_deadline_goes_first_and_the_latest_is_preempted():
    scheduler = PackingScheduler(Rules("edf", 64), Memory(12, 4, sequences=2))
    deadlines = {1: FOREVER, 2: 90.0, 3: 30.0, 4: 60.0}
    arrived = tuple(prompt(id, 4, 40, deadline=at, arrival=float(id)) for id, at in deadlines.items())
    assert scheduler.handle(StepInput(arrived), 5.0).admitted == (3, 4)
    gone = []
    for now in range(30):
        plan = scheduler.handle(StepInput(), 6.0 + now / 10)
        scheduler.check()
        gone += plan.discarded
        if gone:
            break
    assert gone == [4]


reserving = st.sampled_from(("s3", "oracle", "orca"))


def drawn_waiting(rng, id: int, rules: Rules) -> Waiting:
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
    left, free, queries = view.memory.pages - view.reserved, view.free, view.queries
    taken: list[int] = []
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
        queue.add(drawn_waiting(rng, id, rules))
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


def crowded_view(memory: Memory, running: Running, safety: float = 0.0, context: int = 512) -> View:
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
    seen = crowded_view(memory, running, safety=float(rng.uniform(0, 3)))
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
