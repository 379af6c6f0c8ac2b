"""Content and answers of any size come through whole, in pieces that hold nobody up."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import WorkerError
from pliant.serving.workers import helper_process
from pliant.serving.workers.child_process import receive
from pliant.serving.workers.helper_process import LONG, HelperProcess, _read_answer, _send_answer

TEXTS = st.text(max_size=3) | st.sampled_from(["a" * (LONG + 1), "\u200b" * 3000, "\ud800" * 2000, "b" * LONG])
VALUES = st.recursive(st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner))


class Channel:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def sendall(self, data) -> None:
        self.sent.append(bytes(data))


@given(VALUES, st.integers(LONG, 10_000))
def test_an_answer_is_the_same_on_the_other_side(value, piece):
    channel = Channel()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper_process, "PIECE", piece)
        _send_answer(channel, value)

    async def received():
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(channel.sent))
        answer = await _read_answer(reader)
        reader.feed_eof()
        assert await reader.read() == b""
        return answer

    assert asyncio.run(received()) == value


def repeat(content: bytes, times: int) -> object:
    """Return the content so many times as text, or an error for none."""
    return content.decode() * times if times else ValueError("no times")


# A helper in a thread of the test, with a socket as a process has it


class Thread:
    """Stands for the process; killing it ends what it does at its socket."""

    pid = 77

    def __init__(self, target, end: socket.socket) -> None:
        self.calls, self._end = [], end
        self.thread = threading.Thread(target=target, daemon=True)
        self.thread.start()

    def kill(self) -> None:
        self.calls.append("kill")
        with suppress(OSError):  # it is closed
            self._end.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        self.calls.append("wait")
        self.thread.join(5)
        assert not self.thread.is_alive()


@pytest.fixture
def spawned(monkeypatch):
    """What was spawned: entries and threads. `be` is what a process does."""
    record = SimpleNamespace(entries=[], threads=[], ours=[], niceness=[], be=repeating)
    monkeypatch.setattr(helper_process.os, "nice", record.niceness.append)

    def spawn(entry):
        ours, theirs = socket.socketpair()

        def work():
            with theirs, theirs.makefile("rb") as incoming, suppress(EOFError, OSError):
                record.be(theirs, incoming)

        record.entries.append(entry)
        record.ours.append(ours)
        record.threads.append(Thread(work, theirs))
        return ours, record.threads[-1]

    monkeypatch.setattr(helper_process, "spawn", spawn)
    return record


def repeating(channel, incoming) -> None:
    helper_process.help_out(channel, incoming, repeat)


def never(channel, incoming) -> None:
    channel.sendall(b"!")
    incoming.read()


def leave(channel, incoming) -> None:
    channel.sendall(b"!")
    receive(incoming)


@pytest.mark.parametrize(
    ("be", "seconds", "error", "sentence"),
    [
        (never, 0.01, TimeoutError, "^$"),
        (leave, 60, WorkerError, "^the process a:b ended$"),
        (lambda channel, incoming: None, 60, WorkerError, "^the process a:b ended$"),
    ],
)
async def test_a_helper_that_fails_is_ended_and_the_next_message_has_another(spawned, be, seconds, error, sentence):
    helper = HelperProcess("a:b")
    spawned.be = be
    with pytest.raises(error, match=sentence):
        await helper.call(seconds, [b"x"], 1)
    assert helper.pid is None and spawned.threads[0].calls == ["kill", "wait"]
    spawned.be = repeating
    assert await helper.call(60, [b"x"], 3) == "xxx"
    helper.end()


async def test_a_caller_that_leaves_in_its_turn_ends_the_process_and_one_that_waits_for_its_turn_does_not(spawned):
    helper = HelperProcess("a:b")
    assert await helper.call(60, [b"x"], 1) == "x"
    spawned.be = never
    helper.end()
    first = asyncio.create_task(helper.call(60, [b"x"], 1))
    while helper.pid is None:
        await asyncio.sleep(0)
    second = asyncio.create_task(helper.call(60, [b"y"], 1))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert spawned.threads[1].calls == [] and len(spawned.threads) == 2
    spawned.be = repeating
    third = asyncio.create_task(helper.call(60, [b"z"], 1))
    await asyncio.sleep(0)
    first.cancel()
    assert await third == "z"
    assert spawned.threads[1].calls == ["kill", "wait"] and first.cancelled()
    helper.end()
