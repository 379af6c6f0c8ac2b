"""Completions are those of plain generation, in the order of the prompts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pliant.errors import InputError, WorkerError
from pliant.packing.engine import complete as module
from pliant.packing.engine.complete import complete
from pliant.packing.engine.submission import Progress
from tests.fixtures.packing.generators import CONTEXT, ENDS, HOSTED, LIMIT, SCARCE, generated, prompts, tiny_generator


@pytest.mark.parametrize("memory", [SCARCE, HOSTED])
def test_greedy_completions_are_those_of_plain_generation_however_little_memory_there_is(memory):
    texts = prompts(20)
    completions = complete(tiny_generator(), texts, memory, LIMIT)
    assert [completion.tokens for completion in completions] == generated(tiny_generator(), texts)
    for completion in completions:
        assert completion.finished == ("stop" if completion.tokens[-1] in ENDS else "length")
        assert completion.finished == "stop" or len(completion.tokens) == LIMIT


@pytest.mark.parametrize("ids", [(), (1,) * CONTEXT])
def test_a_prompt_that_leaves_no_token_is_refused_by_its_number(ids):
    with pytest.raises(InputError, match="prompt 1 is"):
        complete(tiny_generator(), [(1, 2), ids], HOSTED)


@pytest.fixture
def engine(monkeypatch):
    """Stand in for the engine: it notes what it is made of and given, and reports what `news` says of it all."""
    seen = SimpleNamespace(options=None, submitted=[], calls=[], news=[])

    class Engine:
        def __init__(self, *options):
            seen.options, self._deliver = options, options[3]

        def start(self):
            seen.calls.append("start")

        def submit(self, submission):
            seen.submitted.append(submission)
            if isinstance(seen.news, Exception):
                raise seen.news
            if len(seen.submitted) == 2:
                for reports in seen.news:
                    self._deliver(reports)

        def stop(self):
            seen.calls.append("stop")

    monkeypatch.setattr(module, "Engine", Engine)
    return seen


def report(id: int, tokens: tuple[int, ...], finished: str = "") -> Progress:
    return Progress(id, tokens, finished, 0.0, 0, 0, 0)


def test_an_engine_that_ends_a_prompt_otherwise_or_falls_silent_or_dies_is_an_error_and_is_stopped(engine, monkeypatch):
    engine.news = [[report(0, (6,), "failed"), report(1, (6,), "cancelled")]]
    with pytest.raises(WorkerError, match=r"^the engine ended a prompt as cancelled, failed and not by itself$"):
        complete(tiny_generator(), [(1, 2), (3,)], HOSTED)
    engine.submitted.clear()
    engine.news = [[report(0, (6,), "stop")]]
    monkeypatch.setattr(module, "SILENCE", 0.01)
    with pytest.raises(WorkerError, match=r"^the engine has made no token in 0 seconds and is given up$"):
        complete(tiny_generator(), [(1, 2), (3,)], HOSTED)
    engine.submitted.clear()
    engine.news = WorkerError("the engine has stopped")
    with pytest.raises(WorkerError, match="the engine has stopped"):
        complete(tiny_generator(), [(1, 2), (3,)], HOSTED)
    assert engine.calls == ["start", "stop"] * 3
