"""The way back of an answer is measured from the decision until it is written, wherever that is decided."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.request_context import begin_way_back, current_way_back, note_decided, to_challenger
from tests.fixtures.fakes import run_virtually
from tests.serving.test_driver import Bench


def test_it_lasts_from_the_last_decision_until_the_answer_begins_and_is_measured_once():
    async def main() -> None:
        way = begin_way_back()
        way.decided()
        await asyncio.sleep(1.0)
        note_decided()
        await asyncio.sleep(0.25)
        assert way.written() == pytest.approx(0.25)
        note_decided()
        assert way.written() is None

    run_virtually(main())


def test_an_answer_without_a_decision_says_nothing():
    async def main() -> None:
        note_decided()  # nobody measures
        assert current_way_back() is None
        assert begin_way_back().written() is None

    run_virtually(main())


def test_a_copy_of_a_request_is_not_measured_and_a_task_of_it_is():
    async def main() -> None:
        way = begin_way_back()
        with to_challenger(copy=True):
            note_decided()
        assert way._decided is None
        await asyncio.create_task(asyncio.sleep(0.5, note_decided()))
        assert way.written() == pytest.approx(0.5)

    run_virtually(main())


def test_a_driver_notes_when_its_scheduler_answered_and_when_it_refused():
    async def main() -> None:
        bench = Bench()
        await bench.driver.start()
        for deadline in (10.0, -1.0):
            way = begin_way_back()
            await bench.ask("x", deadline=deadline)
            await asyncio.sleep(0.125)
            assert way.written() == pytest.approx(0.125)
        await bench.driver.stop()

    run_virtually(main())
