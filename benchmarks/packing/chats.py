"""Chats for the champion on the embedded corpus: the questions, and how they are sent over HTTP.

Questions are the held-out ones of the embedded corpus, each with a seed of its own, so that every policy makes the same
texts (where the model's scores do not hang on a last bit). Nothing is streamed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.benchmarks.load_generator import Form, Parsed
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.packing import champions
from pliant.packing.artifact import Packing
from pliant.protocol import Request
from pliant.training.packing import corpus

MOST_QUESTIONS = 2000


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    seed: int


def live_packing() -> Packing:
    """Return the champion on the embedded corpus. Raises `RegistryError` without one."""
    for packing in champions.champion_artifacts(settings.read()).values():
        return packing
    raise RegistryError("the registry holds no champion of the packing system: run `pliant train packing` first")


def questions(seed: int = 0) -> list[Question]:
    """Return the questions of the held-out turns, in random order."""
    texts = sorted({turn.ask for turn in corpus.select(corpus.load(), "test")})
    order = np.random.default_rng(seed).permutation(len(texts))[:MOST_QUESTIONS]
    return [Question(texts[i], number) for number, i in enumerate(order)]


def form(model: str, temperature: float) -> Form:
    """Return the form of question `i` of the pool for request `i`, with the request's deadline.

    A reply's setting holds the output's tokens.
    """

    def body(request: Request, question: Question) -> bytes:
        messages = [{"role": "user", "content": question.text}]
        fields = {"model": model, "messages": messages, "temperature": temperature, "seed": question.seed}
        return json.dumps({**fields, "deadline": request.deadline - request.arrival}).encode()

    def read(answer: Any, _question: Question) -> Parsed:
        return Parsed(True, int(answer["usage"]["completion_tokens"]), None, float("nan"))

    def choose(request: Request, pool: Sequence[Question], _rng: np.random.Generator) -> Question:
        return pool[request.id % len(pool)]

    return Form(body, read, "/v1/chat/completions", choose)
