"""The process of an engine: it receives submissions and cancellations, and reports the progress of every iteration.

worker.py starts it (see serving/workers/child_process.py); the first message is the engine's build. The engine's thread
never waits for the parent: another thread sends its messages, and joins the progress that arrived while it was busy.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from pliant.serving.workers.child_process import pack, receive, sentence

if TYPE_CHECKING:
    from pliant.packing.engine.submission import Progress, Submission
    from pliant.serving.packing.messages import Build, Engine

STATUS_SECONDS = 0.2  # between two status messages, while there is progress


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
                for message in joined([self._waiting.get(), *self._gathered()]):
                    packed_message = pack(compact(message))
                    with self._sending:
                        self._channel.sendall(packed_message)
        except OSError:
            return  # the parent has closed the socket, which `main` notices too

    def _gathered(self) -> list[tuple[str, Any]]:
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]


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
    from pliant.packing.engine.logprobs import packed

    return kind, [replace(each, prompt_logprobs=packed(each.prompt_logprobs)) for each in value]


class ProgressReporter:
    """Sends the engine's progress to the parent, and its status at intervals."""

    def __init__(self, sender: MessageSender) -> None:
        self._sender, self._last_status_at = sender, 0.0
        self.engine: Engine | None = None

    def deliver(self, updates: list[Progress]) -> None:
        """Send progress; called in the engine's thread. If the engine has failed, end the process, which is restarted."""
        if any(progress.finished == "failed" for progress in updates):
            _end(self._sender, self.engine)
        if updates:
            self._sender.put("progress", updates)
        now = time.monotonic()
        if self.engine is not None and now - self._last_status_at > STATUS_SECONDS:
            self._last_status_at = now
            self._sender.put("status", self.engine.status())


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Run the engine that the first message builds, until `EOFError`: the parent has closed the socket."""
    serve(incoming, MessageSender(channel), receive(incoming))


def serve(incoming: IO[bytes], sender: MessageSender, build: Build) -> None:
    """Run an engine until the parent closes the socket, which raises `EOFError`."""
    reporter = ProgressReporter(sender)
    try:
        engine = build(reporter.deliver)
    except Exception as error:  # the boundary: the parent turns it into a WorkerError
        sender.put("failed", sentence(error, "the engine could not be built"))
        receive(incoming)  # the parent closes the socket
        return
    reporter.engine = engine
    sender.put("ready")
    submitter = Submitter(engine, sender)
    try:
        while True:
            _do(engine, submitter, sender, *receive(incoming))
    finally:
        engine.stop()


class Submitter:
    """Submits texts to an engine. Those with a grammar wait in a thread for its compilation, and no other text with them."""

    def __init__(self, engine: Engine, sender: MessageSender) -> None:
        self._engine, self._sender = engine, sender
        self._compiling = ThreadPoolExecutor(1, "grammars")
        self._open: dict[int, bool] = {}  # ids of those that are not submitted yet, and whether they were cancelled
        self._lock = threading.Lock()

    def submit(self, submission: Submission) -> None:
        if not submission.sampling.grammar:
            _submit(self._engine, self._sender, submission)
            return
        with self._lock:
            self._open[submission.prompt.id] = False
        self._compiling.submit(self._compile, submission)

    def cancel(self, id: int) -> None:
        with self._lock:
            if id in self._open:
                self._open[id] = True
                return
        self._engine.cancel(id)

    def _compile(self, submission: Submission) -> None:
        try:
            _submit(self._engine, self._sender, submission)
        except Exception as error:  # a bug, which must not leave the text without an end
            _end(self._sender, self._engine, f"{type(error).__name__}: {error}")
        with self._lock:
            cancelled = self._open.pop(submission.prompt.id)
        if cancelled:
            self._engine.cancel(submission.prompt.id)


def _do(engine: Engine, submitter: Submitter, sender: MessageSender, verb: str, arguments: Sequence[Any]) -> None:
    match verb:
        case "submit":
            submitter.submit(*arguments)
        case "cancel":
            submitter.cancel(*arguments)
        case "poll":
            accounting_error = _accounting_error(engine)
            sender.put("report", (*arguments, engine.status(), accounting_error))


def _submit(engine: Engine, sender: MessageSender, submission: Submission) -> None:
    from pliant.errors import InputError, WorkerError

    try:
        engine.submit(submission)
    except InputError as error:
        sender.put("rejected", (submission.prompt.id, str(error)))
    except WorkerError as error:
        _end(sender, engine, str(error))


def _end(sender: MessageSender, engine: Engine | None, reason: str = "") -> None:
    """End the process with its engine. Where that lacked memory, the parent gets the sequences that were too many."""
    status = engine.status() if engine is not None else None
    reason = reason or (status.error if status is not None else "the engine failed while it was built")
    logging.getLogger("pliant.device").error("the engine's process ends: %s", reason)
    if status is not None and status.out_of_memory:
        sender.put_now("out_of_memory", status.running)
    os._exit(1)


def _accounting_error(engine: Engine) -> str:
    try:
        engine.check()
    except AssertionError as error:
        return str(error) or "the pages in use do not match those of the outputs"
    return ""
