"""Content and answers of any size come through whole, in pieces that hold nobody up."""

from __future__ import annotations

import asyncio
import io
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.workers import helper_process
from serving.workers.helper_process import LONG, PIECE, HelperProcess, _read_answer, _send_answer, _some_at_a_time

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


def test_what_the_event_loop_unpickles_at_a_time_is_small():
    channel = Channel()
    _send_answer(channel, {"inputs": ["a" * 65_000] * 150, "image": "b" * 100_000, "n": list(range(1000))})
    assert max(map(len, channel.sent)) <= PIECE + 1000
    assert sum(map(len, channel.sent)) > 65_000 * 3  # texts that are equal may be one


@given(st.lists(st.integers(0, 2 * PIECE), max_size=20))
def test_texts_are_kept_in_order(sizes):
    texts = [str(index) * size for index, size in enumerate(sizes)]
    lists = list(_some_at_a_time(texts))
    assert [text for some in lists for text in some] == texts
    assert all(len(some) == 1 or sum(map(len, some)) <= PIECE for some in lists)


def repeat(content: bytes, times: int) -> object:
    """Return the content so many times as text, or an error for none."""
    return content.decode() * times if times else ValueError("no times")


def main(channel: socket.socket, incoming: io.BufferedReader) -> None:
    helper_process.help_out(channel, incoming, repeat)


def test_content_and_arguments_reach_the_process_and_its_exceptions_come_back():
    async def run() -> None:
        helper = HelperProcess(f"{__name__}:main")
        try:
            content = b"abc" * 1_000_000
            assert await helper.call(60, [content[:7], content[7:]], 2) == content.decode() * 2
            with pytest.raises(ValueError, match="no times"):
                await helper.call(60, [], 0)
            assert await helper.call(60, [b""], 1) == ""
        finally:
            helper._end()

    asyncio.run(run())
