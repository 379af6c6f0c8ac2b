"""Chats beyond what HTTP carries: a real service answers, whose engine computes nothing, so that its front door is full."""

from __future__ import annotations

import json

from benchmarks.door import overload
from benchmarks.door.overload import Message, Overload
from benchmarks.endpoint import launched
from benchmarks.packing.idle_engine import TOKENS
from pliant.progress import Progress, silent

SERVICE = "benchmarks.packing.door_service:PackingService"
DEADLINE = 0.25  # seconds
QUESTION = "How do I sort a list of words by their length, the longest first?"


def chat(model: str) -> Message:
    """Return a short chat with a model."""
    fields = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": TOKENS}
    return overload.post("/v1/chat/completions", json.dumps({**fields, "deadline": DEADLINE}).encode(), DEADLINE)


def measure(model: str, seconds: float, rounds: int, progress: Progress = silent) -> Overload:
    """Ask the champion's service, without its engine's work, the same short chat at several rates."""
    with launched("packing", {"any_profile": True, "refresh_seconds": 0.0}, SERVICE) as service:
        service.wait_until_ready()
        overload.leave_a_core(service.process.pid)
        return overload.measure(service.url, chat(model), seconds, rounds, progress)
