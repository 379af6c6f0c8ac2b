"""A service waits for its first release, where its settings say so, and no longer."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pliant.errors import RefusedError, RegistryError, UnreachableError
from serving.lifecycle import first_release
from serving.lifecycle.first_release import wait_for_release


class Registry:
    """Answers each question with the next of its answers: an error, or the models' aliases; a release if it is one."""

    def __init__(self, *answers) -> None:
        self.answers, self.asked = list(answers), []

    def release(self, system, which):
        self.asked.append((system, which))
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.now = answer
        return answer if isinstance(answer, str) else None

    def aliases(self, prefix, alias):
        assert (prefix, alias) == ("pliant-bins-", "champion")
        return self.now


def wait(registry, seconds=60.0, end=lambda: None):
    asyncio.run(wait_for_release(registry, "champion", "pliant-bins-", seconds, end))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(first_release, "POLL_SECONDS", 0.001)


@pytest.mark.parametrize("something", ["a release", {"pliant-bins-a": 1}])
def test_it_returns_as_soon_as_there_is_a_release_or_a_model_under_the_alias(something, caplog):
    registry = Registry({}, {}, UnreachableError("nobody answers"), RegistryError("nothing there"), something)
    wait(registry)
    assert registry.asked == [("bins", "champion")] * 5
    assert [record.getMessage() for record in caplog.records] == [
        "nothing to serve yet (no model pliant-bins-* has a version under the alias champion): "
        "the service waits, at most 60 s",
        "nothing to serve yet (nobody answers): the service waits, at most 60 s",
        "nothing to serve yet (nothing there): the service waits, at most 60 s",
    ]


def test_it_says_nothing_where_there_is_something_already(caplog):
    wait(Registry("a release"))
    assert not caplog.records


def test_after_its_time_it_leaves_it_to_loading_to_say_what_is_missing():
    registry = Registry({})
    wait(registry, 0.02)
    assert len(registry.asked) > 1


def test_a_registry_that_lets_nobody_in_is_not_waited_for():
    with pytest.raises(RefusedError, match="a wrong password"):
        wait(Registry(RefusedError("a wrong password")))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_handlers_are_given_back(number):
    class EndedError(Exception):
        pass

    def end():
        raise EndedError

    registry = Registry({})
    registry.release = lambda system, which: os.kill(os.getpid(), number)
    registry.now = {}
    before = signal.getsignal(number)
    with pytest.raises(EndedError):
        wait(registry, end=end)
    assert signal.getsignal(number) is before
