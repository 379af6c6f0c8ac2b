"""The two ends of a device process: messages arrive whole whichever way they go, and errors come back as sentences."""

from __future__ import annotations

import io
import pickle
import socket
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.serving.workers.child_process import receive
from pliant.serving.workers.device_process import SHARED_BYTES, ArrayInbox, ArrayOutbox, Device, main
from tests.fixtures.fakes import EchoModel


@pytest.fixture
def outbox():
    outbox = ArrayOutbox()
    yield outbox
    outbox.close()


def call(device: Device, verb: str, *arguments: object) -> tuple[bool, object]:
    return device.answer(device.read(pickle.dumps((verb, arguments))))[:2]


def test_a_device_builds_runs_updates_and_loads_a_model():
    device = Device()
    assert call(device, "build", EchoModel) == (True, None)
    assert call(device, "update", "more") == (True, None)
    assert call(device, "run", 3, ["x"]) == (True, ([("x", 3, ("more",))], 0.001))
    succeeded, seconds = call(device, "load", 5)
    assert succeeded and 0.01 <= seconds < 5  # the model takes a hundredth
    assert call(device, "run", 0, ["x"])[1][0] == [("x", 0, ("model 5",))]


def refuse():
    raise WorkerError("cpu has no room for the model")


def test_errors_come_back_as_sentences_and_the_device_lives_on(caplog):
    device = Device()
    assert call(device, "run", 0, ["x"]) == (False, "AssertionError: build comes first")
    assert call(device, "build", refuse) == (False, "cpu has no room for the model")
    call(device, "build", EchoModel)
    assert call(device, "run", 0, ["raise"]) == (False, "ValueError: no such payload")
    assert "the device process failed" in caplog.text  # with its trace, as this is a fault of ours
    assert call(device, "update", "bad") == (False, "ValueError: a bad update")
    assert call(device, "unheard of")[0] is False
    assert device.answer(device.read(b"no pickle"))[0] is False
    assert call(device, "run", 0, ["x"])[0] is True


@pytest.mark.parametrize(
    ("initialized", "works", "ends"), [(True, True, False), (True, False, True), (False, False, False)]
)
def test_a_process_whose_gpu_works_no_more_ends_so_that_it_is_restarted(monkeypatch, initialized, works, ends):
    calls = []

    def synchronize():
        calls.append("synchronize")
        if not works:
            raise RuntimeError("an illegal memory access")

    cuda = SimpleNamespace(is_initialized=lambda: initialized, synchronize=synchronize)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    device = Device()
    call(device, "build", EchoModel)
    if ends:
        with pytest.raises(SystemExit, match="does not work any more after an error of the model: no such payload"):
            call(device, "run", 0, ["raise"])
    else:
        assert call(device, "run", 0, ["raise"]) == (False, "ValueError: no such payload")
    assert calls == (["synchronize"] if initialized else [])
    assert call(device, "run", 0, ["x"])[0] is True  # a GPU is not asked after a launch that went well
    assert len(calls) == int(initialized)


def test_an_array_can_be_read_until_the_message_after_the_next_one(outbox):
    """A launch runs while the next one is sent."""
    stream = io.BytesIO()
    inbox, messages = ArrayInbox(stream, outbox.fds), []
    for number in (1, 2):
        stream.seek(0)
        stream.truncate()
        stream.write(outbox.pack([np.full(SHARED_BYTES, number, np.uint8)]))
        stream.seek(0)
        body, arrays = inbox.receive()
        messages += pickle.loads(body, buffers=arrays)
        assert stream.read() == b"", "nothing is left for the next message"
    assert [message.sum() for message in messages] == [SHARED_BYTES, 2 * SHARED_BYTES]


class Prepares(EchoModel):
    """Notes the thread in which payloads are prepared."""

    def prepare(self, setting, payloads):
        if "unfit" in payloads:
            raise ValueError("cannot be prepared")
        return [(payload, setting, threading.get_ident()) for payload in payloads]


def test_calls_are_answered_in_turn_and_the_next_launch_is_prepared_in_another_thread_while_one_runs(outbox):
    ours, theirs = socket.socketpair()

    def be_the_process():
        with theirs, theirs.makefile("rb") as incoming:
            main(theirs, incoming, *outbox.fds)

    process = threading.Thread(target=be_the_process)
    process.start()
    with ours, ours.makefile("rb") as answers:
        ours.sendall(outbox.pack(("build", (Prepares,))))
        assert receive(answers)[0]
        for setting, payload in ((2, "a"), (2, "unfit"), (3, "b")):
            ours.sendall(outbox.pack(("run", (setting, [payload]))))
        first, failed, third = receive(answers), receive(answers), receive(answers)
        ours.shutdown(socket.SHUT_WR)
        process.join(30)
    assert not process.is_alive(), "it ends when its parent closes the socket"
    ((a, *_),), ((b, *_),) = first[1][0], third[1][0]
    assert (a[:2], b[:2]) == (("a", 2), ("b", 3)) and a[2] != process.ident
    assert failed[0] is False and "cannot be prepared" in failed[1]
