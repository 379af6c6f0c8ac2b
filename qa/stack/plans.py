"""What each system's clients send, and the changes that are planted in its running service.

bins: texts are docstrings, the encoder is a classifier of their packages; at first the clients send short ones of some
packages, then long ones, then those of other packages, with other words.

cascade: docstrings, and their packages are the classes. After the first change every second word is written backwards. After
the second a part of the labels is another one: the levels are as sure as before, and less often right.

packing: held-out questions of the embedded corpus. How long an answer is follows from a question's form and from the
temperature, of which a predictor sees nothing, and how long a prompt is from what it is about. What answers a form has the
first predictor has learnt already: there the gate is right to refuse a further one.

tokens: handwritten digits of the profiling split, which no task was trained or tested with: their blurred copies are new
pictures, and the flow's gate tests with some of them.

Clients of cascade and tokens report the right label of every answer.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from PIL import Image, ImageFilter

from pliant.benchmarks.bins import story as bins_story
from pliant.benchmarks.bins.demo import held_out
from pliant.benchmarks.cascade.demo import OVERRIDES as CASCADE
from pliant.benchmarks.cascade.demo import TextExample
from pliant.benchmarks.demo.story_load import Mix, Said, Speech
from pliant.benchmarks.load_generator import Example, examples
from pliant.benchmarks.packing.demo import OVERRIDES as PACKING
from pliant.benchmarks.tokens import rollback as tokens_speech
from pliant.benchmarks.tokens.demo import OVERRIDES as TOKENS
from pliant.training.data import load
from pliant.training.packing import corpus


@dataclass(frozen=True, slots=True)
class Plan:
    """What a system's clients do. `planted`: by the names of the changes, what is sent from then on.

    `known`: the change of which the first release has nothing to learn. `parameters`: name of a flow that runs at night ->
    its parameters. `status`: path of the service's status; `service`: settings of the service.
    """

    speech: Speech
    before: Mix
    planted: Sequence[Mix]
    rate: float  # requests/s
    parameters: Mapping[str, Mapping[str, Any]]
    known: str = ""
    status: str = "/v1/status"
    service: Mapping[str, Any] = field(default_factory=dict)


LEARNS: Mapping[str, Any] = {"keep_inputs": True, "trusted_labels": "anonymous"}
"""Settings of a service whose clients teach it."""


OTHERS = ("sympy", "networkx")
"""Packages whose texts are sent after the second change alone."""


def bins(home: Path) -> Plan:
    """Longer texts, then those of OTHERS."""
    texts = sorted(held_out(bins_story.STREAM), key=lambda example: len(example.text))
    usual, other = ([each for each in texts if (each.label in OTHERS) is of] for of in (False, True))
    return Plan(
        speech=Speech(bins_story.PATH, bins_story.body, bins_story.read),
        before=Mix("short texts", usual[: int(0.3 * len(usual))]),
        planted=(
            Mix("bins: longer texts", usual[int(0.7 * len(usual)) : int(0.95 * len(usual))]),
            Mix("bins: new vocabulary, texts of other packages", other),
        ),
        rate=15.0,
        parameters={"bins": {"overrides": bins_story.after(home / "journals" / "bins.jsonl")}},
        status=bins_story.STATUS,
    )


CASCADE_TASK = "package"
FLIPPED = 5  # of so many texts one has another label
NEWEST = 600
"""Labels that are learnt from: the flow begins half a minute after the alarm, and older ones are of before the change."""


def cascade(home: Path) -> Plan:
    """Words that no level knows, then labels that disagree."""
    texts = [TextExample((each.text, None), each.label) for each in held_out(CASCADE_TASK)]
    classes = sorted({each.label for each in texts})

    def backwards(text: str) -> str:
        """Return a text whose every second word is written backwards."""
        words = text.split()
        words[1::2] = [word[::-1] for word in words[1::2]]
        return " ".join(words)

    foreign = [TextExample((backwards(each.text[0]), None), each.label) for each in texts]
    wrong = [
        TextExample(each.text, classes[(classes.index(each.label) + 1) % len(classes)])
        if number % FLIPPED == 0
        else each
        for number, each in enumerate(foreign)
    ]
    feedback = {"outcomes": str(home / "outcomes" / "cascade"), "most": NEWEST}

    def body(example: TextExample, deadline: float) -> dict[str, Any]:
        return {"text": example.text[0], "task": CASCADE_TASK, "deadline": deadline}

    def read(answer: Mapping[str, Any], example: TextExample) -> Said:
        (result,) = answer["answers"]
        return Said(int(result["versions"]["task"]), result["label"] == example.label, result["confidence"])

    def label(answer: Mapping[str, Any], example: TextExample) -> Mapping[str, Any]:
        return {"id": answer["answers"][0]["id"], "label": example.label}

    return Plan(
        speech=Speech("/v1/predict", body, read, label),
        before=Mix("texts", texts),
        planted=(
            Mix("cascade: new vocabulary, every second word backwards", foreign),
            Mix(f"cascade: miscalibration, {100 // FLIPPED}% of the labels are others", wrong),
        ),
        rate=20.0,
        parameters={"cascade": {"overrides": {**CASCADE, "feedback": feedback, "learn": {"rows": 200}}}},
        service=LEARNS,
    )


SHORT, LONG = ("kind", "count", "summary"), ("three", "detail", "parameters")
"""Forms of questions, by the length of their answers."""
USUAL, FREE = 0.7, 1.3
"""Temperatures. At 1.1 the answers to the same questions are 3.5 times as long (54 tokens in the mean), at 1.5 11 times."""
FREED = ("kind",)
"""Forms of questions that come to be asked at the second: from the question follows then how long its answer is."""


def packing(_home: Path) -> Plan:
    """Freer answers to some questions, long questions, and long answers."""
    turns = sorted({(len(turn.ask), turn.ask, turn.form) for turn in corpus.select(corpus.load(), "test")})
    brief, wordy = turns[: len(turns) // 2], turns[len(turns) // 2 :]

    def asked(some: list[tuple[int, str, str]], forms: Sequence[str], temperature: float) -> list[Mapping[str, Any]]:
        return [
            {"messages": [{"role": "user", "content": ask}], "temperature": temperature, "seed": number}
            for number, (_, ask, form) in enumerate(some)
            if form in forms
        ]

    def body(question: Mapping[str, Any], deadline: float) -> dict[str, Any]:
        return {**question, "deadline": deadline}

    def read(answer: Mapping[str, Any], _question: Any) -> Said:
        return Said(0, bool(answer["choices"]), nan)  # no text is right or wrong here

    kept = tuple(form for form in SHORT if form not in FREED)
    freed = asked(brief, FREED, FREE) + asked(brief, kept, USUAL)
    return Plan(
        speech=Speech("/v1/chat/completions", body, read),
        before=Mix("short answers", asked(brief, SHORT, USUAL)),
        planted=(
            Mix("packing: longer outputs, of some questions at a higher temperature", freed),
            Mix("packing: longer texts, as prompts", asked(wordy, LONG, USUAL)),
            Mix("packing: longer outputs", asked(brief, LONG, USUAL)),
        ),
        known="packing: longer outputs",
        rate=3.0,
        parameters={name: {"overrides": PACKING} for name in ("packing", "packing-retrain")},
        service={"observe": True, "watch_burn_in": 150},
    )


COMMON, TIMES = ("1", "7"), 5
"""Classes that the first change sends so many times as often."""
BLUR = 0.8  # pixels of pictures with 8 x 8


def tokens(home: Path) -> Plan:
    """Another mix of classes, then blurred pictures."""
    task = tokens_speech.TASK
    data = load(f"digits:{task}", task)
    pictures = examples(data, [int(i) for i in data.split.profiling])
    mixed = [picture for picture in pictures for _ in range(TIMES if picture.label in COMMON else 1)]
    learnt = {**TOKENS, "data": (f"digits:{task}",), "feedback": {"outcomes": str(home / "outcomes" / "tokens")}}

    def label(answer: Mapping[str, Any], picture: Example) -> Mapping[str, Any]:
        return {"id": answer["id"], "label": picture.label}

    return Plan(
        speech=Speech("/v1/predict", tokens_speech.body, tokens_speech.read, label),
        before=Mix("pictures of all classes", pictures),
        planted=(
            Mix(f"tokens: {' and '.join(COMMON)} {TIMES} times as often", mixed),
            Mix(f"tokens: blur of {BLUR:g} pixels", [blurred(each) for each in mixed]),
        ),
        rate=25.0,
        parameters={"tokens": {"overrides": learnt}},
        service=LEARNS,
    )


def blurred(picture: Example) -> Example:
    """Return the picture through a Gaussian blur."""
    image = Image.open(io.BytesIO(base64.b64decode(picture.encoded))).filter(ImageFilter.GaussianBlur(BLUR))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return Example(base64.b64encode(buffer.getvalue()).decode(), picture.label)


PLANS: Mapping[str, Callable[[Path], Plan]] = {"tokens": tokens, "bins": bins, "cascade": cascade, "packing": packing}
"""System -> what gives its plan, with the folder of its state."""
