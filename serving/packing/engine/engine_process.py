"""An engine's process, from both sides: the service's, and that of the process itself, which needs no torch to begin.

It is started as every device process is (serving/workers/child_process.py), but messages go both ways at any time. To the
process: its build, then (verb, arguments) with the verbs `submit`, `cancel` and `poll`. From it: (kind, value) with the
kinds `ready` or `failed` (once, after the build), `progress` (one per iteration), `status`, `report` (the answer to `poll`),
`rejected` (a submission) and `out_of_memory` (its last, with the number of sequences that ran). The engine's thread never
waits for the parent: another thread sends its messages, and joins the progress that arrived while it was busy.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import pickle
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from pliant.errors import InputError, WorkerError
from pliant.packing.engine.submission import Progress, Status, Submission, packed
from pliant.packing.scheduling.journal import encode
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, StepInput, StepPlan
from pliant.serving.journal import FileRecorder
from pliant.serving.workers.child_process import HEADER, Interpreter, pack, receive, sentence, spawn
from pliant.serving.workers.devices import BuildPlan, DevicePlan, alone

END_SECONDS = 5.0  # that a process may take to close its journal after its socket is closed
STATUS_SECONDS = 0.2  # between two status messages, while there is progress
NO_STATUS = Status(False, "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)


class Engine(Protocol):
    """What runs in the process (pliant/packing/engine/runtime.py). Any thread may call any method."""

    def submit(self, submission: Submission) -> None:
        """Start an output. Raises `InputError` if it can never run, `WorkerError` if the engine has died."""

    def cancel(self, id: int) -> None: ...
    def status(self) -> Status: ...
    def stop(self) -> None: ...

    def check(self) -> None:
        """Raise `AssertionError` if the accounting of pages is wrong. Waits for an iteration, as no other method does."""


Deliver = Callable[[list[Progress]], None]
"""Called in the engine's thread with the progress of every iteration."""

Build = Callable[[Deliver], Engine]
"""Loads a model and starts its engine, in the engine's process. It is pickled by reference or as a frozen dataclass."""


@dataclass(frozen=True, slots=True)
class EngineBuild(BuildPlan):
    """Makes the engine in its process."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.engine.device:build"

    folder: Path
    digest: str
    memory: Memory
    rules: Rules
    plan: DevicePlan
    journal: Path | None
    precision: str = "float32"  # in which the plan was measured
    token_bytes: int = 0  # of one token's keys and values; 0: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmBuild(EngineBuild):
    """Makes vLLM the engine, in a process of vLLM's own environment."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.vllm.running:build"

    home: Path  # where models are written for vLLM
    processes: int = 1  # that share the model
    interpreter: Interpreter | None = None  # vLLM's; None: this one


@dataclass(frozen=True, slots=True)
class PredictorBuild(BuildPlan):
    """Makes the predictor of output lengths in its process, which answers calls as every device process does."""

    BUILDER: ClassVar[str] = "pliant.serving.packing.engine.device:build_predictor"

    folder: Path
    digest: str
    plan: DevicePlan


class EngineProcess:
    """An engine in a process of its own. `next_build` gives the build of every start.

    `on_message` is called with each message's kind and value; `on_end` once if the process dies by itself.
    """

    def __init__(self, next_build: Callable[[], Build], start_limit: float = 300.0) -> None:
        self.on_message: Callable[[str, Any], None] = lambda _kind, _value: None
        self.on_end: Callable[[], None] = lambda: None
        self._next_build, self._start_limit = next_build, start_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start from any state, and return when the engine runs. Raises `WorkerError`."""
        await self.stop()
        try:
            async with asyncio.timeout(self._start_limit):
                build, variables = alone(self._next_build(), os.environ)
                interpreter = getattr(build, "interpreter", None)
                entry = "pliant.serving.packing.engine.engine_process:main"
                connection, self._process = spawn(entry, variables=variables, interpreter=interpreter)
                reader, self._writer = await asyncio.open_connection(sock=connection)
                self._writer.write(pack(build))
                kind, value = await _receive(reader)
        except TimeoutError:
            raise await self._failed(f"was not ready within {self._start_limit:.0f} s") from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._failed("ended before it was ready") from None
        if kind != "ready":
            raise await self._failed(f"could not start: {value}")
        self._listening = asyncio.create_task(self._listen(reader))

    def send(self, verb: str, *arguments: Any) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack((verb, arguments)))

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Close the socket, upon which the process ends; kill it if it does not. Wait for its end."""
        process, writer, listening = self._process, self._writer, self._listening
        self._process = self._writer = self._listening = None
        if listening is not None and listening is not asyncio.current_task():
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        if writer is not None:
            writer.close()
        if process is not None:
            await asyncio.to_thread(_reap, process)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                self.on_message(*await _receive(reader))
                await asyncio.sleep(0)  # what has come is read without a pause else
        self.on_end()

    async def _failed(self, how: str) -> WorkerError:
        await self.stop()
        return WorkerError(f"the engine process {how}")


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _receive(reader: asyncio.StreamReader) -> Any:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return pickle.loads(await reader.readexactly(length))


def recorder(path: Path) -> Callable[[float, StepInput, StepPlan], None]:
    """Return what writes entries to the file until the process ends; the journal of a former run is kept.

    Raises `InputError` where the file cannot be made.
    """
    file = FileRecorder(path, lambda entry: encode(*entry))
    atexit.register(file.close)
    return lambda now, step_input, plan: file((now, step_input, plan))


class MessageSender:
    """Sends messages in the order of `put`, which any thread may call, from a thread of its own."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._sending = channel, threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def put(self, kind: str, value: Any = None) -> None:
        self._waiting.put((kind, value))

    def put_now(self, kind: str, value: Any = None) -> None:
        """Send a message before those that wait, and return when it is sent."""
        with suppress(OSError), self._sending:
            self._channel.sendall(pack((kind, value)))

    def _send(self) -> None:
        try:
            while True:
                first = self._waiting.get()
                more = [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]
                for message in joined([first, *more]):
                    packed_message = pack(compact(message))
                    with self._sending:
                        self._channel.sendall(packed_message)
        except OSError:
            return  # the parent has closed the socket, which `main` notices too


def joined(messages: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the messages with consecutive progress joined into one message."""
    messages_out: list[tuple[str, Any]] = []
    for kind, value in messages:
        if kind == "progress" and messages_out and messages_out[-1][0] == "progress":
            messages_out[-1] = kind, [*messages_out[-1][1], *value]
        else:
            messages_out.append((kind, value))
    return messages_out


def compact(message: tuple[str, Any]) -> tuple[str, Any]:
    """Return the message with the log-probabilities of prompts as bytes: the parent's event loop reads them in pieces."""
    kind, value = message
    if kind != "progress" or not any(progress.prompt_logprobs for progress in value):
        return message
    return kind, [replace(each, prompt_logprobs=packed(each.prompt_logprobs)) for each in value]


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Run the engine that the first message builds, until `EOFError`: the parent has closed the socket."""
    serve(incoming, MessageSender(channel), receive(incoming))


def serve(incoming: IO[bytes], sender: MessageSender, build: Build) -> None:
    """Run an engine until the parent closes the socket, which raises `EOFError`."""
    server = EngineServer(sender)
    try:
        engine = server.engine = build(server.deliver)
    except Exception as error:  # the boundary: the parent turns it into a WorkerError
        sender.put("failed", sentence(error, "the engine could not be built"))
        receive(incoming)  # the parent closes the socket
        return
    sender.put("ready")
    try:
        while True:
            verb, arguments = receive(incoming)
            match verb:
                case "submit":
                    server.submit(*arguments)
                case "cancel":
                    server.cancel(*arguments)
                case "poll":
                    fault = ""  # of the accounting of pages
                    try:
                        engine.check()  # first: it waits for an iteration
                    except AssertionError as error:
                        fault = str(error) or "the pages in use do not match those of the outputs"
                    sender.put("report", (*arguments, engine.status(), fault))
    finally:
        engine.stop()


class EngineServer:
    """Submits texts to an engine, and sends the parent its progress, and its status at intervals.

    Texts with a grammar wait in a thread for its compilation, and no other text with them.
    """

    def __init__(self, sender: MessageSender) -> None:
        self.engine: Engine | None = None
        self._sender, self._last_status_at = sender, 0.0
        self._compiling = ThreadPoolExecutor(1, "grammars")
        self._open: dict[int, bool] = {}  # ids of those that are not submitted yet, and whether they were cancelled
        self._lock = threading.Lock()

    def deliver(self, updates: list[Progress]) -> None:
        """Send progress; called in the engine's thread. If the engine has failed, end the process, which is restarted."""
        if any(progress.finished == "failed" for progress in updates):
            self._end()
        if updates:
            self._sender.put("progress", updates)
        now = time.monotonic()
        if self.engine is not None and now - self._last_status_at > STATUS_SECONDS:
            self._last_status_at = now
            self._sender.put("status", self.engine.status())

    def submit(self, submission: Submission) -> None:
        if not submission.sampling.grammar:
            self._submit(submission)
            return
        with self._lock:
            self._open[submission.prompt.id] = False
        self._compiling.submit(self._compile, submission)

    def cancel(self, id: int) -> None:
        assert self.engine is not None
        with self._lock:
            if id in self._open:
                self._open[id] = True
                return
        self.engine.cancel(id)

    def _compile(self, submission: Submission) -> None:
        try:
            self._submit(submission)
        except Exception as error:  # a bug, which must not leave the text without an end
            self._end(f"{type(error).__name__}: {error}")
        with self._lock:
            cancelled = self._open.pop(submission.prompt.id)
        if cancelled:
            self.cancel(submission.prompt.id)

    def _submit(self, submission: Submission) -> None:
        assert self.engine is not None
        try:
            self.engine.submit(submission)
        except InputError as error:
            self._sender.put("rejected", (submission.prompt.id, str(error)))
        except WorkerError as error:
            self._end(str(error))

    def _end(self, reason: str = "") -> None:
        """End the process with its engine. Where that lacked memory, the parent gets the sequences that were too many."""
        status = self.engine.status() if self.engine is not None else None
        reason = reason or (status.error if status is not None else "the engine failed while it was built")
        logging.getLogger("pliant.device").error("the engine's process ends: %s", reason)
        if status is not None and status.out_of_memory:
            self._sender.put_now("out_of_memory", status.running)
        os._exit(1)
