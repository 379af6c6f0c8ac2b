"""The demo's sizes of packing are settings of its flow, and what it says of a comparison is what was measured."""

from __future__ import annotations

import io
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

import flows.progress
from benchmarks.load_generator import Reply
from benchmarks.packing import demo
from benchmarks.packing.demo import OVERRIDES
from benchmarks.packing.live import OURS, RIVAL, Contest, Fared
from flows.packing import config
from pliant.protocol import Request
from pliant.report import Observation


def test_the_sizes_are_settings_of_the_flow_and_most_layers_join_at_last():
    told, usual = config.read(None, OVERRIDES), config.read()
    assert told.embedded.layers > usual.embedded.layers >= told.embedded.first
    assert told.embedded.joined < 0.1
    assert told.memory.pages == config.EMBEDDED_PAGES


def fared(policy: str, in_time: int, refused: int) -> Fared:
    """Of 100 chats so many are answered in time and so many refused, the others late."""
    request = Request(0, 0.0, 2.0, "tiny")
    ends = [1.0] * in_time + [3.0] * (100 - in_time - refused) + [None] * refused
    replies = tuple(Reply(Observation(request, end, setting=9), 200 if end else 503, 0.0, 0.0) for end in ends)
    return Fared(policy, (replies[:50], replies[50:]), 10.0, 0, refused)


@pytest.fixture
def said(monkeypatch):
    def run(ours: Fared, rival: Fared):
        result = Contest(40.0, 60.0, 1.0, 0.87, {OURS: ours, RIVAL: rival})
        packing = SimpleNamespace(name="tiny", memory=SimpleNamespace(pages=48, page_tokens=16))
        monkeypatch.setattr(demo, "live_packing", lambda: packing)
        monkeypatch.setattr(demo, "questions", lambda _seed: [])
        monkeypatch.setattr(demo, "contest", lambda *_: result)
        monkeypatch.setattr(demo, "record", lambda *_: "picture.png")
        monkeypatch.setattr(flows.progress, "stage", lambda _name: nullcontext(lambda *_: None))
        console = Console(file=io.StringIO(), width=1000)
        return demo.demo(SimpleNamespace(), console), console.file.getvalue()

    return run


def test_shares_accepted_kept_and_in_time_of_all_are_told_together_with_the_share_of_generation(said):
    compared, text = said(fared(OURS, 60, 30), fared(RIVAL, 40, 0))
    assert compared.ratio == pytest.approx(1.5) and compared.ahead
    assert "Of the processor time 87% is then generation" in text
    assert "60 chats/s come, 1.5 times as many, each to be answered within 1000 ms" in text
    assert "Pliant answers 60% in time, first come, first served 40%: 1.50x the answers" in text
    row = next(line for line in text.splitlines() if "Pliant" in line and "\u2502" in line)
    assert all(share in row for share in ("70.0%", "85.7%", "60.0%"))
