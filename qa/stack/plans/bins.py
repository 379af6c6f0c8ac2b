"""Changes planted in a running service of bins: texts that are long, then texts of other packages, with other words.

Texts are docstrings, the encoder is a classifier of their packages. At first the clients send short ones of some packages.
"""

from __future__ import annotations

from pathlib import Path

from pliant.benchmarks.bins.demo import Example
from pliant.benchmarks.bins.story import PATH, STATUS, STREAM, after, body, read
from pliant.benchmarks.demo.story_load import Mix, Speech
from pliant.training import docstrings
from qa.stack.changes import Plan, Planted

OTHERS = ("sympy", "networkx")
"""Packages whose texts come with the second change."""
FLOW = "bins"


def plan(home: Path) -> Plan:
    """Return the changes of bins."""
    data = docstrings.load(STREAM, STREAM)
    index = data.split.test
    labels = [data.classes[int(number)] for number in data.labels[index]]
    examples = [Example(text, label) for (text, _), label in zip(data.texts(index), labels, strict=True)]
    examples.sort(key=lambda example: len(example.text))
    usual = [example for example in examples if example.label not in OTHERS]
    short, long = usual[: int(0.3 * len(usual))], usual[int(0.7 * len(usual)) : int(0.95 * len(usual))]
    other = [example for example in examples if example.label in OTHERS]
    return Plan(
        speech=Speech(PATH, body, read),
        before=Mix("short texts", short),
        planted=(
            Planted("bins: longer texts", Mix("long texts", long)),
            Planted("bins: new vocabulary, texts of other packages", Mix("texts of other packages", other)),
        ),
        rate=15.0,
        parameters={FLOW: {"overrides": after(home / "journals" / "bins.jsonl")}},
        first="bins/nightly",
        status=STATUS,
    )
