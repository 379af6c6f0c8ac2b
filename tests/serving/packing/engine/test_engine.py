"""Engines whose workers die, hang or cannot start: every output goes on, or ends with a message; several are used as one."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import WorkerError
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.endpoint import EnginePool
from pliant.serving.packing.engine.engine import (
    CLEAR,
    EngineDriver,
    EngineGroup,
    EngineLimits,
    InFlightOutput,
    Suspects,
)
from pliant.serving.packing.engine.engine_process import EngineProcess
from pliant.serving.packing.text import Detokenizer, Writer
from tests.fixtures.fakes import run_virtually, until
from tests.fixtures.packing.fakes import REFUSED, TALE, FakeBuild, FakeWorker, new_tokenizer, submit

IDS = count()
LIMITS = EngineLimits(silence=0.2, drain=5.0, retry=0.01)


def scenario(test, count: int = 1):
    """Run on a loop of its own, with a started driver and its worker, or a group of several with theirs."""

    async def run():
        workers = [FakeWorker(lambda: None) for _ in range(count)]
        drivers = [EngineDriver(worker, asyncio.get_running_loop().time, LIMITS) for worker in workers]
        engine = drivers[0] if count == 1 else EngineGroup([("cpu", driver) for driver in drivers])
        await engine.start()
        try:
            await asyncio.wait_for(test(engine, workers[0] if count == 1 else workers), 20)
        finally:
            for worker in workers:
                worker.trouble, worker.held = "", False
            await engine.stop()
        assert all(worker.stopped for worker in workers) and engine.pending == 0

    @wraps(test)
    def wrapped():
        run_virtually(run())

    del wrapped.__wrapped__  # its parameters are no fixtures
    return wrapped


with_two = partial(scenario, count=2)


def new_output(
    _driver, limit=200, stops=(), temperature=0.0, seed=0, ids=(5, 6, 7), forecast=8.0, id=None, **tenant
) -> InFlightOutput:
    prompt = Prompt(next(IDS) if id is None else id, 0.0, len(ids), limit, (forecast,) * 8, **tenant)
    writer = Writer(Detokenizer(new_tokenizer(), ids), stops)
    sampling = Sampling(temperature=temperature, seed=seed)
    return InFlightOutput(Submission(prompt, ids, sampling), writer, frozenset({0}), lambda _flight: None)


@scenario
async def test_outputs_come_token_by_token_to_their_own_ends(driver, worker):
    whole, short = new_output(driver), new_output(driver, limit=3)
    submit(driver, [whole, short])
    assert driver.waiting == 2
    await until(lambda: whole.finish and short.finish)
    assert (whole.finish, whole.writer.take(), short.finish, len(short.tokens)) == ("stop", TALE, "length", 3)
    assert (whole.queued, whole.preemptions, whole.recomputed) == (0.25, 1, 3)
    assert driver.pending == 0


@scenario
async def test_outputs_go_on_with_their_tokens_when_the_process_dies(driver, worker):
    one, other = new_output(driver), new_output(driver, limit=40, temperature=1.0, seed=3)
    submit(driver, [one, other])
    await until(lambda: len(one.tokens) > 5)
    worker.die()
    made = len(one.tokens)
    await until(lambda: one.finish and other.finish)
    again = next(args[0] for verb, args in worker.sent[2:] if verb == "submit" and args[0].prompt.id == one.id)
    assert (again.generated, again.ids) == (made, (5, 6, 7, *one.tokens[:made]))
    assert (one.writer.take(), len(other.tokens)) == (TALE, 40)
    undisturbed = new_output(driver, limit=40, temperature=1.0, seed=3)
    submit(driver, [undisturbed])
    await until(lambda: undisturbed.finish)
    assert undisturbed.tokens == other.tokens


@scenario
async def test_after_a_lack_of_memory_the_next_process_takes_half_the_sequences_and_no_output_is_blamed(driver, worker):
    driver.sequences.value = driver.sequences.planned = 16
    worker.next_build = lambda: driver.sequences.value
    worker.held = True
    outputs = [new_output(driver) for _ in range(12)]
    submit(driver, outputs)
    for running in (12, 6, 3):
        worker.on_message("out_of_memory", running)
        worker.die()
        await until(lambda: driver.ready)
    assert worker.builds[1:] == [6, 3, 1] and driver.sequences.exhausted == 3
    assert [output.crashes for output in outputs] == [0] * 12
    worker.held = False
    await until(lambda: all(output.finish for output in outputs))
    assert {output.writer.take() for output in outputs} == {TALE}


@scenario
async def test_of_many_outputs_only_the_one_that_kills_processes_fails(driver, worker):
    outputs = [new_output(driver) for _ in range(12)]
    bad = outputs[7]
    send, deaths = worker.send, 0

    def send_and_die(verb, *arguments):
        nonlocal deaths
        send(verb, *arguments)
        if verb == "submit" and arguments[0].prompt.id == bad.id:
            deaths += 1
            asyncio.get_running_loop().call_soon(worker.die)

    worker.send = send_and_die
    submit(driver, outputs)
    await until(lambda: all(output.finish for output in outputs))
    assert bad.finish == "failed" and "died 3 times while it generated this output" in bad.fault
    assert deaths == 3
    assert {output.writer.take() for output in outputs if output is not bad} == {TALE}
    assert driver.pending == 0


@scenario
async def test_a_process_that_says_nothing_is_ended_and_its_outputs_go_on(driver, worker):
    worker.held = True
    one = new_output(driver)
    submit(driver, [one])
    await until(lambda: one.crashes == 1)
    worker.held = False
    await until(lambda: one.finish)
    assert one.writer.take() == TALE


@scenario
async def test_where_the_process_cannot_be_started_nobody_is_kept_waiting(driver, worker):
    one = new_output(driver)
    submit(driver, [one])
    worker.trouble = "no room"
    worker.die()
    await until(lambda: one.finish)
    assert (one.finish, one.fault) == ("cancelled", "the engine's process cannot be started")
    with pytest.raises(WorkerError, match="cannot be started"):
        submit(driver, [new_output(driver)])
    worker.trouble = ""
    await until(lambda: driver.ready)
    later = new_output(driver)
    submit(driver, [later])
    await until(lambda: later.finish)
    assert later.finish == "stop"


@scenario
async def test_what_the_engine_takes_not_is_failed_alone(driver, worker):
    bad, good = new_output(driver, ids=(REFUSED, 5)), new_output(driver)
    submit(driver, [bad, good])
    await until(lambda: good.finish)
    assert (bad.finish, good.finish) == ("failed", "stop") and "ids is 9" in bad.fault


@scenario
async def test_an_output_whose_text_cannot_be_made_fails_alone(driver, worker):
    broken, good = new_output(driver), new_output(driver)
    broken.writer = None
    submit(driver, [broken, good])
    await until(lambda: good.finish)
    assert (broken.finish, good.finish) == ("failed", "stop") and "text could not be decoded" in broken.fault
    await until(lambda: driver.pending == 0)


@pytest.mark.virtual
async def test_stopping_waits_for_what_is_on_its_way_and_takes_nothing_more():
    worker = FakeWorker(lambda: None)
    driver = EngineDriver(worker, asyncio.get_running_loop().time, LIMITS)
    await driver.start()
    one = new_output(driver)
    submit(driver, [one])
    stopping = asyncio.create_task(driver.stop())
    await asyncio.sleep(0)
    with pytest.raises(WorkerError, match="is stopping"):
        submit(driver, [new_output(driver)])
    await stopping
    assert one.writer.take() == TALE


# A full queue


def finishes(outputs) -> list[str]:
    return [output.finish for output in outputs]


@scenario
async def test_a_full_queue_gives_up_the_newest_of_the_tenant_with_the_most_for_its_weight(driver, worker):
    worker.held = True
    flood = [new_output(driver, tenant="flood") for _ in range(5)]
    heavy = [new_output(driver, tenant="heavy", weight=4.0) for _ in range(6)]
    submit(driver, [*flood, *heavy])
    assert driver.surplus(1, 12, "ann", 1.0) == []
    assert driver.surplus(3, 12, "ann", 1.0) == [flood[4], flood[3]]
    assert driver.surplus(5, 12, "ann", 1.0) is None, "ann would have as many"
    assert driver.surplus(3, 12, "flood", 1.0) is None, "the new ones are the newest of the fullest"
    assert driver.waiting == 11, "nothing has been dropped yet"
    for output in driver.surplus(3, 12, "ann", 1.0):
        driver.drop(output)
    assert finishes(flood) == ["", "", "", "full", "full"] and not any(finishes(heavy))
    assert driver.waiting == 9
    assert driver.surplus(3, 12, "ann", 1.0) == []
    worker.held = False
    await until(lambda: driver.pending == 0)
    assert finishes(flood) == ["stop"] * 3 + ["full"] * 2


NUMBERS = count()


@dataclass(eq=False)
class Output:
    id: int = field(default_factory=lambda: next(NUMBERS))
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    crashes: int = 0


@given(st.integers(1, 6), st.data())
def test_the_poisonous_output_alone_is_given_up_whoever_else_is_there(size, data):
    outputs = [Output() for _ in range(size)]
    poison = data.draw(st.sampled_from(outputs))
    suspects, given_up = Suspects(), []
    for _ in range(10 * size):
        suspects.next()
        running = [output for output in outputs if not suspects.holds(output) and not output.finish]
        if poison in running:
            for output in suspects.died([output for output in outputs if not output.finish]):
                output.finish = "failed"
                suspects.forget(output)
                given_up.append(output)
        for output in running:
            if output is not poison and not suspects.holds(output):
                output.tokens += [0] * CLEAR
                suspects.advanced(output)
    assert given_up == [poison]
    assert not any(map(suspects.holds, outputs))


def output_of(group, predicted: float, tenant: str = "") -> InFlightOutput:
    return new_output(group, forecast=predicted, id=group.next_id(), tenant=tenant)


def places(group, outputs) -> list[int]:
    return [next(number for number, engine in enumerate(group.engines) if engine.holds(output)) for output in outputs]


@with_two
async def test_each_output_goes_to_the_engine_with_the_fewest_tokens_left_as_predicted(group, workers):
    for worker in workers:
        worker.held = True
    first = [output_of(group, predicted) for predicted in (100.0, 20.0, 20.0, 20.0)]
    group.submit(first)
    assert places(group, first) == [0, 1, 1, 1]
    later = [output_of(group, 50.0), output_of(group, 1.0)]
    group.submit(later)
    assert places(group, later) == [1, 0]
    assert [engine.load for engine in group.engines] == [103.0 + 4.0, 3 * 23.0 + 53.0]
    assert (group.pending, group.waiting) == (6, 6)
    assert len({output.id for output in (*first, *later)}) == 6


@with_two
async def test_while_one_restarts_the_other_gets_all_and_what_the_dead_one_had_goes_on(group, workers):
    workers[0].held = True
    had = output_of(group, 10.0)
    group.submit([had])
    workers[0].trouble = "no device"
    workers[0].die()
    assert group.ready and group.alive
    outputs = [output_of(group, 500.0) for _ in range(3)]
    group.submit(outputs)
    assert places(group, outputs) == [1, 1, 1] and places(group, [had]) == [0]
    workers[0].trouble, workers[0].held = "", False
    await until(lambda: had.finish and all(output.finish for output in outputs))
    assert had.writer.take() == TALE


@with_two
async def test_without_any_engine_an_output_is_refused(group, workers):
    for worker in workers:
        worker.trouble = "no device"
        worker.die()
    assert not group.ready
    await until(lambda: not group.alive)
    with pytest.raises(WorkerError, match="cannot be started"):
        group.submit([output_of(group, 1.0)])


@with_two
async def test_the_queue_is_limited_in_all_and_room_is_made_in_the_longest_line(group, workers):
    for worker in workers:
        worker.held = True
    group.submit([output_of(group, predicted, "greedy") for predicted in (90.0, 20.0, 20.0, 20.0)])
    assert group.surplus(2, 6, "modest", 1.0) == []
    surplus = group.surplus(2, 5, "modest", 1.0)
    assert len(surplus) == 1 and places(group, surplus) == [1]
    assert group.surplus(2, 5, "greedy", 1.0) is None
    assert group.waiting == 4


class Part:
    """An engine or a forecaster, which may fail to start."""

    def __init__(self, error: WorkerError | None = None) -> None:
        self.error, self.started = error, False

    async def start(self) -> None:
        await asyncio.sleep(0)
        self.started = True
        if self.error is not None:
            raise self.error


async def test_no_engine_takes_a_gpus_memory_before_the_predictors_have_theirs():
    engines, forecasters = [Part(), Part()], [Part(WorkerError("no room for the predictor")), Part()]
    pairs = zip(engines, forecasters, strict=True)
    handlers = [SimpleNamespace(engine=each, forecaster=other) for each, other in pairs]
    with pytest.raises(WorkerError, match="no room for the predictor"):
        await EnginePool(handlers, forecasters_first=True).start()
    assert [part.started for part in (*engines, *forecasters)] == [False, False, True, True]


PROCESS_LIMITS = EngineLimits(retry=0.05)


def driving(test, build: FakeBuild, limits: EngineLimits = PROCESS_LIMITS):
    async def run():
        worker = EngineProcess(lambda: build)
        driver = EngineDriver(worker, asyncio.get_running_loop().time, limits)
        await driver.start()
        try:
            await asyncio.wait_for(test(driver, worker), 300)
        finally:
            await driver.stop()

    asyncio.run(run())


def test_a_process_sends_tokens_and_reports_its_accounting_of_pages():
    async def test(driver, worker):
        outputs = [new_output(driver) for _ in range(20)]
        submit(driver, outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE}
        report = await driver.poll()
        assert (report.accounting_error, report.status.pages_used) == ("", 0) and report.status.iterations > 0
        gone = new_output(driver)
        submit(driver, [gone])
        await until(lambda: gone.tokens)
        driver.cancel(gone)
        await until(lambda: driver.pending == 0)
        assert driver.status.pages == 64  # told now and then without being asked

    driving(test, FakeBuild())


def test_a_process_that_lacks_memory_is_replaced_by_one_with_fewer_sequences(tmp_path):
    async def test(driver, worker):
        driver.sequences.value = driver.sequences.planned = 64
        outputs = [new_output(driver) for _ in range(8)]
        submit(driver, outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE} and {one.crashes for one in outputs} == {0}
        assert (driver.sequences.value, driver.sequences.exhausted) == (int(lacked.read_text()) // 2, 1)

    lacked = tmp_path / "lacked"
    driving(test, FakeBuild(lacked=lacked))


class Exiting:
    """A build that ends its process."""

    def __call__(self, _deliver):
        os._exit(1)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (FakeBuild(refuses=True), "could not start: memory is 0, but must be at least 1"),
        (Exiting(), "ended before it was ready"),
    ],
)
async def test_a_start_that_fails_leaves_no_process_and_says_how(build, sentence):
    worker = EngineProcess(lambda: build)
    with pytest.raises(WorkerError, match=sentence):
        await worker.start()
    assert worker.pid is None and len(asyncio.all_tasks()) == 1
