"""Arrivals, and what the client sees of streamed texts; the server is a stand-in."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from pliant.benchmarks.packing.vllm import load
from pliant.benchmarks.packing.vllm.load import Body, Chat
from pliant.errors import WorkerError

CHATS = [Chat((5, 6), "a"), Chat((7,), "b")]


def event(**choice) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@pytest.fixture
def server():
    """A server that records bodies, and answers with the events that the test puts there."""
    bodies, events = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200 if events else 400)
            self.end_headers()
            for piece in events or [b"a sentence that says why"]:
                self.wfile.write(piece)

        def log_message(self, *_args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.handle_error = lambda *_args: None  # a client that gives up
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", bodies, events
        http.shutdown()


def test_a_text_is_followed_to_its_end(server):
    url, bodies, events = server
    events += [event(token_ids=[1]), event(token_ids=[2, 3], finish_reason="stop"), b"data: [DONE]\n\n"]
    replies = load.send(url, CHATS, [0.0, 0.05], Body(9, "salt"))
    assert [reply.tokens for reply in replies] == [(1, 2, 3)] * 2
    assert all(0 <= reply.first <= reply.seconds for reply in replies)
    assert [reply.ended for reply in replies] == [reply.arrival + reply.seconds for reply in replies]
    first = next(body for body in bodies if body["prompt"] == [5, 6])
    assert (first["prompt"], first["max_tokens"], first["temperature"], first["cache_salt"]) == ([5, 6], 9, 0.0, "salt")


def test_alone_one_is_sent_after_the_other(server):
    url, bodies, events = server
    events.append(event(token_ids=[1], finish_reason="length"))
    load.alone(url, CHATS, Body(1, "alone"))
    assert [body["prompt"] for body in bodies] == [[5, 6], [7]]


@pytest.mark.parametrize(
    "broken", [[], [event(token_ids=[1])], [b'data: {"error": {"message": "no"}}\n\n']], ids=["refused", "cut", "error"]
)
def test_a_request_that_fails_fails_the_load(server, broken):
    url, _, events = server
    events += broken
    with pytest.raises(WorkerError, match="server"):
        load.send(url, CHATS, [0.0, 0.0], Body(9, "salt"))


def test_all_at_once_arrive_at_zero():
    assert load.times("at once", 5.0, 3, 0).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["Poisson", "bursty"])
def test_arrivals_have_exactly_the_rate_and_hang_on_the_seed(kind):
    times = load.times(kind, 4.0, 200, 1)
    assert times[-1] == pytest.approx(50.0)
    assert (np.diff(times) >= 0).all()
    assert times.tolist() == load.times(kind, 4.0, 200, 1).tolist() != load.times(kind, 4.0, 200, 2).tolist()


def test_bursty_gaps_spread_more_than_poissons():
    spread = {kind: np.diff(load.times(kind, 1.0, 2000, 0)).std() for kind in ("Poisson", "bursty")}
    assert spread["Poisson"] == pytest.approx(1.0, rel=0.1)
    assert spread["bursty"] == pytest.approx(2.0, rel=0.2)
