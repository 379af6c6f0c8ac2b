"""Messages between a service and its child processes, and what a child says of an error."""

from __future__ import annotations

import io
import logging

import pytest

from pliant.errors import WorkerError
from pliant.serving.workers.child_process import HEADER, pack, read, receive, sentence


def test_messages_arrive_one_by_one_as_they_were_sent():
    messages = [("run", (1, [b"x" * 100_000])), None, {"a": 1}]
    stream = io.BytesIO(b"".join(map(pack, messages)))
    assert [receive(stream) for _ in messages] == messages
    assert stream.read() == b""


@pytest.mark.parametrize("missing", [1, 5, HEADER.size + 3])
def test_a_message_that_is_cut_off_is_the_end(missing):
    content = pack("a message of some length")
    with pytest.raises(EOFError):
        receive(io.BytesIO(content[:-missing] if missing < HEADER.size else content[:missing]))
    with pytest.raises(EOFError):
        receive(io.BytesIO())


def test_so_many_bytes_are_read_and_no_more():
    stream = io.BytesIO(b"abcdef")
    assert (read(stream, 4), stream.read()) == (b"abcd", b"ef")
    assert read(stream, 0) == b""


def test_an_error_of_ours_is_a_sentence_and_any_other_is_logged_as_a_fault(caplog):
    with caplog.at_level(logging.ERROR, "pliant.device"):
        assert sentence(WorkerError("no room"), "it failed") == "no room" and caplog.records == []
        assert sentence(KeyError("x"), "it failed") == "KeyError: 'x'"
    assert len(caplog.records) == 1 and "it failed\n" in caplog.text and "KeyError: 'x'" in caplog.text
