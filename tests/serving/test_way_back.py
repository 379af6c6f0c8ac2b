"""The way back of an answer is measured from the decision until it is written, wherever that is decided."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.request_context import begin_way_back, note_decided
from tests.fixtures.fakes import run_virtually


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
