"""Changes planted in a running service of the cascade: words that no level knows, then labels that disagree.

Texts are docstrings, and their packages are the classes. Clients report the right label of every answer. After the first
change every second word is written backwards. After the second one a part of the labels is another one: the levels are as
sure as before, and less often right.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.benchmarks.cascade.demo import OVERRIDES
from pliant.benchmarks.cascade.replay import TextExample
from pliant.benchmarks.demo.story_load import Mix, Said, Speech
from pliant.training import docstrings
from qa.stack.changes import Plan, Planted

TASK = "package"
FLIPPED = 5  # of so many texts one has another label
NEWEST = 600
"""Labels that are learnt from: the flow begins half a minute after the alarm, and older ones are of before the change."""
FLOW = "cascade"


def plan(home: Path) -> Plan:
    """Return the changes of the cascade."""
    data = docstrings.load(TASK, TASK)
    index = data.split.test
    labels = [data.classes[int(number)] for number in data.labels[index]]
    texts = [TextExample(text, name) for text, name in zip(data.texts(index), labels, strict=True)]
    foreign = [TextExample((backwards(each.text[0]), None), each.label) for each in texts]
    wrong = [
        TextExample(each.text, data.classes[(data.classes.index(str(each.label)) + 1) % len(data.classes)])
        if number % FLIPPED == 0
        else each
        for number, each in enumerate(foreign)
    ]
    feedback = {"outcomes": str(home / "outcomes" / "cascade"), "most": NEWEST}
    return Plan(
        speech=Speech("/v1/predict", body, read, label),
        before=Mix("texts", texts),
        planted=(
            Planted("cascade: new vocabulary, every second word backwards", Mix("other words", foreign)),
            Planted(f"cascade: miscalibration, {100 // FLIPPED}% of the labels are others", Mix("other labels", wrong)),
        ),
        rate=20.0,
        parameters={FLOW: {"overrides": {**OVERRIDES, "feedback": feedback}}},
        first="cascade/nightly",
        service={"keep_inputs": True, "trusted_labels": "anonymous"},
    )


def backwards(text: str) -> str:
    """Return a text whose every second word is written backwards."""
    words = text.split()
    words[1::2] = [word[::-1] for word in words[1::2]]
    return " ".join(words)


def body(example: TextExample, deadline: float) -> dict[str, Any]:
    """Return a request for one text."""
    return {"text": example.text[0], "task": TASK, "deadline": deadline}


def read(answer: Mapping[str, Any], example: TextExample) -> Said:
    """Return what an answer says."""
    (result,) = answer["answers"]
    return Said(int(result["versions"]["task"]), result["label"] == example.label, result["confidence"])


def label(answer: Mapping[str, Any], example: TextExample) -> Mapping[str, Any]:
    """Return the report of the right label."""
    (result,) = answer["answers"]
    return {"id": result["id"], "label": example.label}
