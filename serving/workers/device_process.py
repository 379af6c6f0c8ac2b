"""The process that owns a device: it builds a model and then answers one call at a time.

worker.py starts it (see child_process.py) with two pieces of shared memory beside the socket. Large arrays of the messages
to the process lie in one and the other by turns, so that a launch can be sent while the one before it runs: a thread reads
it meanwhile, and lets the model prepare it.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from queue import SimpleQueue
from typing import IO, Any, Protocol, runtime_checkable

from pliant.fallbacks import Collector, Fallback
from pliant.serving.workers.child_process import pack, read, sentence

FRAME = struct.Struct("!QI?")  # bytes of the pickle, number of separate arrays, whether these are in shared memory
SIZE = "Q"  # bytes of each of those arrays
MEMORIES = 2  # a launch that runs, and the next one
SHARED_BYTES = 64 * 1024  # smaller arrays (in total) follow the pickle on the socket


class Model(Protocol):
    """What runs on a device."""

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Return one output per payload, in order, and the seconds that the device took."""

    def update(self, value: Any) -> None:
        """Change the model for all later runs."""

    def load(self, number: int) -> None:
        """Replace the loaded model by model `number`."""


@runtime_checkable
class Preparing(Protocol):
    """A model that does a part of a run beforehand."""

    def prepare(self, setting: int, payloads: Sequence[Any]) -> Sequence[Any]:
        """Return what `run` takes in place of the payloads. Called in another thread, during the run before."""


Build = Callable[[], Model]
"""Loads a model and warms it up, in the device process. It is pickled by reference or as a frozen dataclass."""


Reply = tuple[bool, Any, tuple[Fallback, ...]]


class ArrayOutbox:
    """The parent's end of the shared memories, each of which holds one message at a time and grows with the largest.

    At most two messages may be without a reply.
    """

    def __init__(self) -> None:
        self.fds = tuple(os.memfd_create("pliant") for _ in range(MEMORIES))
        self._memories: list[mmap.mmap | None] = [None] * MEMORIES
        self._turn = 0

    def pack(self, message: object) -> bytes:
        """Return the bytes of a message for the socket. Large arrays are written to the shared memory instead."""
        apart: list[pickle.PickleBuffer] = []
        body = pickle.dumps(message, protocol=5, buffer_callback=apart.append)
        arrays = [buffer.raw() for buffer in apart]
        sizes = [array.nbytes for array in arrays]
        total = sum(sizes)
        shared = total >= SHARED_BYTES
        if shared:
            turn, self._turn = self._turn, (self._turn + 1) % MEMORIES
            memory = self._memories[turn]
            if memory is None or len(memory) < total:
                os.ftruncate(self.fds[turn], total)
                memory = self._memories[turn] = mmap.mmap(self.fds[turn], total)
            for end, array in zip(accumulate(sizes), arrays, strict=True):
                memory[end - array.nbytes : end] = array
        head = FRAME.pack(len(body), len(sizes), shared) + struct.pack(f"!{len(sizes)}{SIZE}", *sizes)
        return b"".join([head, body] if shared else [head, body, *arrays])

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


class ArrayInbox:
    """The device process's end of the socket and the shared memories."""

    def __init__(self, incoming: IO[bytes], fds: Sequence[int]) -> None:
        self._incoming, self._fds = incoming, fds
        self._memories = [memoryview(b"")] * len(fds)
        self._turn = 0

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """Return a pickle and its arrays. Raises `EOFError` if the parent has closed the socket."""
        length, count, shared = FRAME.unpack(read(self._incoming, FRAME.size))
        kind = f"!{count}{SIZE}"
        sizes = struct.unpack(kind, read(self._incoming, struct.calcsize(kind)))
        body, total = read(self._incoming, length), sum(sizes)
        if not shared:
            arrays = memoryview(bytearray(read(self._incoming, total)))
        else:
            turn, self._turn = self._turn, (self._turn + 1) % len(self._fds)
            if len(self._memories[turn]) < total:  # it has grown; arrays of the old mapping keep it alive
                self._memories[turn] = memoryview(mmap.mmap(self._fds[turn], 0))
            arrays = self._memories[turn]
        return body, [arrays[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of `Device`'s methods."""

    verb: str
    arguments: tuple[Any, ...]


class Device:
    """The calls that the parent can make, one at a time and all on one thread; another may read the next one meanwhile."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._fallbacks = Collector()

    def read(self, body: bytes, arrays: Sequence[memoryview] = ()) -> Call:
        """Return the call of a message, prepared by the model where it does that."""
        try:
            verb, arguments = pickle.loads(body, buffers=arrays)
            model: object = self._model
            if verb == "run" and isinstance(model, Preparing):
                setting, payloads = arguments
                arguments = setting, model.prepare(setting, payloads)
            return Call(verb, arguments)
        except Exception as error:
            return Call("fail", (error,))

    def answer(self, call: Call) -> Reply:
        """Make a call.

        Return whether it succeeded, its result or the message of its error, and the fallbacks since the reply before.
        """
        try:
            succeeded, value = True, getattr(self, call.verb)(*call.arguments)
        except Exception as error:  # the boundary: the parent turns it into a WorkerError
            succeeded, value = False, sentence(error, "the device process failed")
        return succeeded, value, self._fallbacks.take()

    def fail(self, error: Exception) -> None:
        """Raise the error of a message that could not be read."""
        raise error

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


def main(channel: socket.socket, incoming: IO[bytes], *shared_memory: int) -> None:
    """Answer calls until the parent closes the socket."""
    device, inbox = Device(), ArrayInbox(incoming, shared_memory)
    calls: SimpleQueue[Call | None] = SimpleQueue()  # None: the parent has closed the socket

    def read_on() -> None:
        try:
            with suppress(EOFError, OSError):
                while True:
                    calls.put(device.read(*inbox.receive()))
        finally:
            calls.put(None)

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        while (call := calls.get()) is not None:
            channel.sendall(pack(device.answer(call)))
    finally:
        with suppress(OSError):  # the parent may have closed it
            channel.shutdown(socket.SHUT_RDWR)  # so that the reader ends, too
        reader.join()
