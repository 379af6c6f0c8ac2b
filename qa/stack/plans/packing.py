"""Changes planted in a running service of packing: freer answers to some questions, long questions, and long answers.

Questions are those of the embedded corpus that were held out of training. How long an answer is follows from a question's
form and from the temperature, of which a predictor sees nothing, and how long a prompt is from what it is about. What
answers a form has the first predictor has learnt already: there the gate is right to refuse a further one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

from pliant.benchmarks.demo.story_load import Mix, Said, Speech
from pliant.benchmarks.packing.demo import OVERRIDES
from pliant.training.packing import corpus
from qa.stack.changes import Plan, Planted

SHORT, LONG = ("kind", "count", "summary"), ("three", "detail", "parameters")
"""Forms of questions, by the length of their answers."""
USUAL, FREE = 0.7, 1.3
"""Temperatures. At 1.1 the answers to the same questions are 3.5 times as long (54 tokens in the mean), at 1.5 11 times."""
FREED = ("kind",)
"""Forms of questions that come to be asked at the second: from the question follows then how long its answer is."""
FLOW, RETRAIN = "packing", "packing-retrain"


def plan(home: Path) -> Plan:
    """Return the changes of packing."""
    del home
    turns = sorted({(len(turn.ask), turn.ask, turn.form) for turn in corpus.select(corpus.load(), "test")})
    brief, wordy = turns[: len(turns) // 2], turns[len(turns) // 2 :]
    kept = tuple(form for form in SHORT if form not in FREED)
    freed = _questions(brief, FREED, FREE) + _questions(brief, kept, USUAL)
    return Plan(
        speech=Speech("/v1/chat/completions", body, read),
        before=Mix("short answers", _questions(brief, SHORT, USUAL)),
        planted=(
            Planted("packing: longer outputs, of some questions at a higher temperature", Mix("free", freed)),
            Planted("packing: longer texts, as prompts", Mix("long questions", _questions(wordy, LONG, USUAL))),
            Planted("packing: longer outputs", Mix("long answers", _questions(brief, LONG, USUAL)), known=True),
        ),
        rate=3.0,
        parameters={FLOW: {"overrides": OVERRIDES}, RETRAIN: {"overrides": OVERRIDES}},
        first="packing/nightly",
        service={"observe": True, "watch_burn_in": 150},
    )


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    seed: int
    temperature: float


def _questions(turns: list[tuple[int, str, str]], forms: tuple[str, ...], temperature: float) -> list[Question]:
    return [Question(ask, number, temperature) for number, (_, ask, form) in enumerate(turns) if form in forms]


def body(question: Question, deadline: float) -> dict[str, Any]:
    """Return a chat of one question."""
    messages = [{"role": "user", "content": question.text}]
    return {"messages": messages, "temperature": question.temperature, "seed": question.seed, "deadline": deadline}


def read(answer: Mapping[str, Any], question: Question) -> Said:
    """Return that there was an answer: no text is right or wrong here."""
    del question
    return Said(0, bool(answer["choices"]), nan)
