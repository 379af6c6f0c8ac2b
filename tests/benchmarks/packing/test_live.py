"""What the live comparison of two policies asks of both, and how it counts; the picture of it."""

from __future__ import annotations

import pytest

from pliant.benchmarks.load_generator import Reply
from pliant.benchmarks.packing.live import HEADINGS, OURS, ContestConfig, Fared
from pliant.protocol import Request
from pliant.report import Observation

CONFIG = ContestConfig(stretches=3, chats=300, overload=1.5, places=40)


def _reply(arrival: float, took: float | None, tokens: int = 10, deadline: float = 2.0) -> Reply:
    answered = None if took is None else arrival + took
    seen = Observation(Request(0, arrival, arrival + deadline, "tiny"), answered, setting=tokens)
    return Reply(seen, 200 if took else 503, 0.0, float("nan"))


def _fared(policy: str, *took: float | None, refused: int = 0) -> Fared:
    return Fared(policy, (tuple(_reply(float(at), one) for at, one in enumerate(took)),), 10.0, 3, refused)


def test_who_is_answered_after_the_deadline_or_never_does_not_count():
    found = _fared(OURS, 0.5, 1.5, 2.5, None)
    assert found.in_time == 0.5
    assert found.took.tolist() == pytest.approx([0.5, 1.5])
    row = dict(zip(HEADINGS, found.row(), strict=True))
    assert (row["of all in time"], row["in time/s"], row["tokens/s in time"]) == ("50.0%", "0.2", "2")
