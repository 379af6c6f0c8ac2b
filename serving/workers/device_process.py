"""The process that owns a device: it builds a model and then answers one call at a time.

worker.py starts it (see child_process.py) with shared memory beside the socket. Large arrays of a message to the process
lie in that memory until the next message.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import IO, Any, Protocol

from pliant.fallbacks import Collector, Fallback
from serving.workers.child_process import pack, read, sentence

FRAME = struct.Struct("!QI?")  # bytes of the pickle, number of separate arrays, whether these are in shared memory
SIZE = "Q"  # bytes of each of those arrays
SHARED_BYTES = 64 * 1024  # smaller arrays (in total) follow the pickle on the socket


class Model(Protocol):
    """What runs on a device."""

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Return one output per payload, in order, and the seconds that the device took."""

    def update(self, value: Any) -> None:
        """Change the model for all later runs."""

    def load(self, number: int) -> None:
        """Replace the loaded model by model `number`."""


Build = Callable[[], Model]
"""Loads a model and warms it up, in the device process. It is pickled by reference or as a frozen dataclass."""


Reply = tuple[bool, Any, tuple[Fallback, ...]]


class ArrayOutbox:
    """The parent's end of the shared memory, which holds one message at a time and grows with the largest."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("pliant")
        self._memory: mmap.mmap | None = None

    def pack(self, message: object) -> bytes:
        """Return the bytes of a message for the socket. Large arrays are written to the shared memory instead."""
        apart: list[pickle.PickleBuffer] = []
        body = pickle.dumps(message, protocol=5, buffer_callback=apart.append)
        arrays = [buffer.raw() for buffer in apart]
        sizes = [array.nbytes for array in arrays]
        total = sum(sizes)
        shared = total >= SHARED_BYTES
        if shared:
            self._put(arrays, total)
        head = FRAME.pack(len(body), len(sizes), shared) + struct.pack(f"!{len(sizes)}{SIZE}", *sizes)
        return b"".join([head, body] if shared else [head, body, *arrays])

    def _put(self, arrays: Sequence[memoryview], total: int) -> None:
        if self._memory is None or len(self._memory) < total:
            os.ftruncate(self.fd, total)
            self._memory = mmap.mmap(self.fd, total)
        at = 0
        for array in arrays:
            self._memory[at : at + array.nbytes] = array
            at += array.nbytes

    def close(self) -> None:
        os.close(self.fd)


class ArrayInbox:
    """The device process's end of the socket and the shared memory."""

    def __init__(self, incoming: IO[bytes], fd: int) -> None:
        self._incoming, self._fd = incoming, fd
        self._memory = memoryview(b"")

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return a pickle and its arrays. Raises `EOFError` if the parent has closed the socket."""
        length, count, shared = FRAME.unpack(read(self._incoming, FRAME.size))
        kind = f"!{count}{SIZE}"
        sizes = struct.unpack(kind, read(self._incoming, struct.calcsize(kind)))
        body, total = read(self._incoming, length), sum(sizes)
        arrays = self._shared(total) if shared else memoryview(bytearray(read(self._incoming, total)))
        ends = list(accumulate(sizes))
        return body, [arrays[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def _shared(self, total: int) -> memoryview:
        if len(self._memory) < total:  # it has grown; arrays of the old mapping keep it alive
            self._memory = memoryview(mmap.mmap(self._fd, 0))
        return self._memory


class Device:
    """The calls that the parent can make, one at a time and all on one thread."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._fallbacks = Collector()

    def reply(self, body: bytes, arrays: Sequence[memoryview] = ()) -> Reply:
        """Make a pickled call.

        Return whether it succeeded, its result or the message of its error, and the fallbacks since the reply before.
        """
        try:
            verb, arguments = pickle.loads(body, buffers=arrays)
            succeeded, value = True, getattr(self, verb)(*arguments)
        except Exception as error:  # the boundary: the parent turns it into a WorkerError
            succeeded, value = False, sentence(error, "the device process failed")
        return succeeded, value, self._fallbacks.take()

    def build(self, build: Build) -> None:
        self._model = build()
        gc.collect()
        gc.freeze()  # so that no later collection visits the model's many objects during a launch

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        try:
            return self._built().run(setting, payloads)
        except Exception as error:
            if not _device_works():
                raise SystemExit(f"the device does not work any more after an error of the model: {error}") from error
            raise

    def update(self, value: Any) -> None:
        self._built().update(value)

    def load(self, number: int) -> float:
        started = time.perf_counter()
        self._built().load(number)
        return time.perf_counter() - started

    def _built(self) -> Model:
        assert self._model is not None, "build comes first"
        return self._model


def _device_works() -> bool:
    """Return whether a GPU that torch uses still works: after some errors every later call of the process fails."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except Exception:  # whatever it raises, the process is of no use any more
        return False
    return True


def main(channel: socket.socket, incoming: IO[bytes], shared_memory: int) -> None:
    """Answer calls until `EOFError`, which is raised when the parent closes the socket."""
    device, inbox = Device(), ArrayInbox(incoming, shared_memory)
    while True:
        channel.sendall(pack(device.reply(*inbox.receive())))
