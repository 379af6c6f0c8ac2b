"""The process passes messages between engine and parent, reports what is wrong with its books, and ends if it has failed."""

from __future__ import annotations

import io
import pickle
from types import SimpleNamespace

import pytest

from pliant.errors import InputError, WorkerError
from serving.packing.engine import engine_process
from serving.packing.engine.engine_process import STATUS_SECONDS, ProgressReporter, serve
from serving.workers.child_process import pack


class Sender:
    def __init__(self) -> None:
        self.sent: list[tuple] = []

    def put(self, kind, value=None):
        self.sent.append((kind, value))


class Engine:
    def __init__(self, **troubles: Exception) -> None:
        self.troubles, self.calls = troubles, []

    def __getattr__(self, name: str):
        if name not in ("submit", "cancel", "check", "stop", "status"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            if name in self.troubles:
                raise self.troubles[name]
            return SimpleNamespace(error="out of memory") if name == "status" else None

        return call


class Ended(BaseException):
    pass


@pytest.fixture(autouse=True)
def ends(monkeypatch):
    def end(status):
        raise Ended(status)

    monkeypatch.setattr(engine_process.os, "_exit", end)


def run(engine: Engine, *messages: tuple) -> Sender:
    """Serve these messages until the parent closes the socket."""
    sender = Sender()
    incoming = io.BytesIO(b"".join(pack(message) for message in messages))
    with pytest.raises(EOFError):
        serve(incoming, sender, lambda _deliver: engine)
    assert engine.calls[-1] == ("stop",)
    return sender


def test_messages_reach_the_engine_in_order_and_it_stops_with_its_parent():
    engine = Engine()
    text = SimpleNamespace(prompt=SimpleNamespace(id=4))
    sender = run(engine, ("submit", (text,)), ("cancel", (4,)), ("poll", (9,)))
    assert [call[0] for call in engine.calls] == ["submit", "cancel", "check", "status", "stop"]
    assert engine.calls[1] == ("cancel", 4) and pickle.dumps(engine.calls[0][1])
    assert sender.sent[0] == ("ready", None)
    (kind, (number, _status, fault)) = sender.sent[1]
    assert (kind, number, fault) == ("report", 9, "")


@pytest.mark.parametrize(
    ("error", "fault"), [("sequence 3: 2 pages", "sequence 3: 2 pages"), ("", "the pages in use do")]
)
def test_a_report_says_what_is_wrong_with_the_books(error, fault):
    sender = run(Engine(check=AssertionError(error) if error else AssertionError()), ("poll", (1,)))
    assert sender.sent[1][1][2].startswith(fault)


def test_a_text_that_the_engine_refuses_is_rejected_by_its_id_and_others_go_on():
    engine = Engine(submit=InputError("prompt", "long", "shorter"))
    sender = run(engine, ("submit", (SimpleNamespace(prompt=SimpleNamespace(id=4)),)), ("poll", (1,)))
    assert sender.sent[1] == ("rejected", (4, "prompt is long, but must be shorter"))
    assert sender.sent[2][0] == "report"


def test_an_engine_that_has_died_ends_its_process():
    engine = Engine(submit=WorkerError("dead"))
    incoming = io.BytesIO(pack(("submit", (SimpleNamespace(prompt=SimpleNamespace(id=4)),))))
    with pytest.raises(Ended, match="1"):
        serve(incoming, Sender(), lambda _deliver: engine)


def test_an_engine_that_cannot_be_built_says_why_once():
    def build(_deliver):
        raise InputError("memory", 0, "at least 1")

    sender = Sender()
    serve(io.BytesIO(pack(("poll", (1,)))), sender, build)
    assert sender.sent == [("failed", "memory is 0, but must be at least 1")]


def progress(finished: str = "") -> SimpleNamespace:
    return SimpleNamespace(finished=finished)


def test_progress_is_sent_at_once_and_the_status_now_and_then(monkeypatch):
    sender, now = Sender(), [100.0]
    monkeypatch.setattr(engine_process.time, "monotonic", lambda: now[0])
    reporter = ProgressReporter(sender)
    reporter.deliver([progress()])  # before the engine is there
    reporter.engine = Engine()
    for seconds in (0.0, STATUS_SECONDS / 2, STATUS_SECONDS + 0.01):
        now[0] = 100.0 + seconds
        reporter.deliver([progress("stop")])
    assert [kind for kind, _ in sender.sent] == ["progress", "progress", "status", "progress", "progress", "status"]


def test_a_failed_output_ends_the_process_before_anything_is_sent():
    sender = Sender()
    reporter = ProgressReporter(sender)
    with pytest.raises(Ended):
        reporter.deliver([progress(), progress("failed")])
    assert sender.sent == []
