"""The process passes messages between engine and parent, reports what is wrong with its books, and ends if it has failed."""

from __future__ import annotations

import io
import pickle
import threading
from types import SimpleNamespace

import pytest

from pliant.errors import InputError
from pliant.packing.engine.submission import PIECE, Progress, TokenLogprobs
from pliant.serving.packing.engine import engine_process
from pliant.serving.packing.engine.engine_process import EngineServer, serve
from pliant.serving.workers.child_process import pack


class Sender:
    def __init__(self) -> None:
        self.sent: list[tuple] = []

    def put(self, kind, value=None):
        self.sent.append((kind, value))

    put_now = put


class Engine:
    exhausted = False  # it died for lack of memory

    def __init__(self, **troubles: Exception) -> None:
        self.troubles, self.calls = troubles, []

    def __getattr__(self, name: str):
        if name not in ("submit", "cancel", "check", "stop", "status"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            if name in self.troubles:
                raise self.troubles[name]
            return (
                SimpleNamespace(error="it broke", out_of_memory=self.exhausted, running=7) if name == "status" else None
            )

        return call


def text(id: int, grammar: str = "") -> SimpleNamespace:
    return SimpleNamespace(prompt=SimpleNamespace(id=id), sampling=SimpleNamespace(grammar=grammar))


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
    sender = run(engine, ("submit", (text(4),)), ("cancel", (4,)), ("poll", (9,)))
    assert [call[0] for call in engine.calls] == ["submit", "cancel", "check", "status", "stop"]
    assert engine.calls[1] == ("cancel", 4) and pickle.dumps(engine.calls[0][1])
    assert sender.sent[0] == ("ready", None)
    (kind, (number, _status, fault)) = sender.sent[1]
    assert (kind, number, fault) == ("report", 9, "")


def test_a_text_that_the_engine_refuses_is_rejected_by_its_id_and_others_go_on():
    engine = Engine(submit=InputError("prompt", "long", "shorter"))
    sender = run(engine, ("submit", (text(4),)), ("poll", (1,)))
    assert sender.sent[1] == ("rejected", (4, "prompt is long, but must be shorter"))
    assert sender.sent[2][0] == "report"


def test_log_probabilities_of_a_prompt_leave_as_bytes_in_pieces():
    known = tuple(TokenLogprobs(-float(at), ((at, -0.5), (7, -1.5))) for at in range(2000))
    update = Progress(3, (5,), "", 0.0, 0, 0, 1, prompt_logprobs=known)
    kind, (sent,) = engine_process.compact(("progress", [update]))
    assert kind == "progress" and len(sent.prompt_logprobs) == 2000
    assert tuple(sent.prompt_logprobs) == known
    assert [len(pickle.loads(piece)) for piece in sent.prompt_logprobs.pieces[:-1]] == [PIECE // 3] * 2
    assert engine_process.compact(("ready", None)) == ("ready", None)


def test_nobody_waits_for_the_grammar_of_another_text_and_it_can_be_cancelled_meanwhile():
    compiled, sender = threading.Event(), Sender()

    class Compiling(Engine):
        def submit(self, submission):
            if submission.sampling.grammar:
                compiled.wait(10)
            self.calls.append(("submit", submission.prompt.id))

    engine = Compiling()
    submitter = EngineServer(sender)
    submitter.engine = engine
    submitter.submit(text(1, "start: /a/"))
    submitter.submit(text(2))
    submitter.cancel(1)
    assert engine.calls == [("submit", 2)]
    compiled.set()
    submitter._compiling.shutdown()
    submitter.cancel(2)
    assert engine.calls == [("submit", 2), ("submit", 1), ("cancel", 1), ("cancel", 2)]
