"""The bins system's part of the demo, with stand-ins for the endpoints: who is asked what, in which order, what is told."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pliant.benchmarks.bins import demo
from pliant.benchmarks.bins.demo import OTHER, OURS, OVERRIDES, POLICIES, Compared, Example, measure, table
from pliant.protocol import Request
from pliant.report import Observation
from pliant.training import docstrings
from tests.fixtures.bins.scenarios import bins

POOL = [Example("word " * (1 + n % 40), "a" if n % 2 else "b") for n in range(100)]


@contextmanager
def standing_in(asked: list[tuple[str, dict]], policy: str):
    """Answers every text at once with the label "a", and notes the body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            asked.append((policy, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            said = json.dumps([{"label": "a"}]).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def measured(monkeypatch):
    asked: list[tuple[str, dict]] = []

    @contextmanager
    def serving_each(system, options, _progress):
        assert system == "bins" and {own["refresh_seconds"] for own in options.values()} == {0.0}
        with ExitStack() as stack:
            yield {name: stack.enter_context(standing_in(asked, own["policy"])) for name, own in options.items()}

    monkeypatch.setattr(demo, "serving_each", serving_each)
    monkeypatch.setattr(demo, "PROBE", 1.0)  # a busy machine may answer nothing within less
    monkeypatch.setattr(demo, "SECONDS", 0.1)
    return measure(bins(slo=5.0), POOL), asked


def test_both_policies_are_asked_the_same_texts_in_turns_that_begin_with_another_each_time(measured):
    compared, asked = measured
    turns = [(policy, body["inputs"]) for policy, body in asked if body["deadline"] == 5.0]
    order = [policy for at, (policy, _) in enumerate(turns) if at == 0 or turns[at - 1][0] != policy]
    first, second = POLICIES[OURS], POLICIES[OTHER]
    # Neighbouring turns of one endpoint run together in the list: ours, other, other, ours, ours, other.
    assert order == [first, second, first, second]
    texts = {policy: sorted(text for of, text in turns if of == policy) for policy in (first, second)}
    assert texts[first] == texts[second]
    assert len(compared.seen(OURS)) == len(compared.seen(OTHER)) == len(texts[first])


def seen(in_time: int, late: int, dropped: int) -> tuple[Observation, ...]:
    fates = [{"answered": 0.1}] * in_time + [{"answered": 0.3}] * late + [{"dropped": "504"}] * dropped
    return tuple(Observation(Request(i, 0.0, 0.2, "mail"), **fate) for i, fate in enumerate(fates))


def test_a_request_without_an_answer_counts_as_all_its_time_and_the_lead_is_the_median_of_the_turns():
    ours, other = [seen(9, 1, 0), seen(8, 0, 2), seen(10, 0, 0)], [seen(5, 1, 4), seen(8, 0, 2), seen(8, 2, 0)]
    compared = Compared(50.0, {OURS: tuple(ours), OTHER: tuple(other)})
    assert compared.in_time(OURS) == pytest.approx(0.9)
    assert [compared.mean(OTHER, turn) for turn in range(3)] == pytest.approx([0.16, 0.12, 0.14])
    assert compared.mean(OURS) == pytest.approx((0.12 + 0.12 + 0.1) / 3)
    assert compared.lead == pytest.approx(0.16 / 0.12)
    cells = [list(column.cells) for column in table(compared).columns]
    assert cells[:4] == [[OURS, OTHER], ["30", "30"], ["90.0%", "70.0%"], ["113.3", "140.0"]]


def test_no_text_that_the_demo_asks_was_learnt_from():
    """The flow cuts the splits of the whole corpus; the demo asks from the whole test split."""
    limit = OVERRIDES["streams"][0]["limit"]
    told, whole = docstrings.load("package", limit=limit), docstrings.load("package")
    learnt = {told.first[row] for row in told.split.fit}
    assert not learnt & {whole.first[row] for row in whole.split.test}
