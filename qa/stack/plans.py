"""What each system's clients send, and the changes that are planted in its running service.

bins: texts are docstrings, the encoder is a classifier of their packages; at first the clients send short ones of some
packages, then long ones, then those of other packages, with other words.

cascade: docstrings, and their packages are the classes. After the first change every second word is written backwards. After
the second half of the labels are others: the levels are as sure as before, and less often right.

packing: held-out questions of the embedded corpus. How long an answer is follows from a question's form and from the
temperature, of which a predictor sees nothing, and how long a prompt is from what it is about. What answers a form has the
first predictor has learnt already: there the gate is right to refuse a further one.

tokens: handwritten digits of the profiling split, which no task was trained or tested with: their blurred copies are new
pictures, and the flow's gate tests with some of them.

Clients of cascade and tokens report right labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from pliant.benchmarks.bins.demo import OVERRIDES as BINS
from pliant.benchmarks.bins.demo import Example, held_out
from pliant.benchmarks.cascade.demo import OVERRIDES as CASCADE
from pliant.benchmarks.cascade.demo import TextExample
from pliant.benchmarks.demo.story_load import Mix, Said, Speech
from pliant.benchmarks.packing.demo import OVERRIDES as PACKING
from pliant.benchmarks.tokens import story
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


STREAM, OTHERS = "package", ("sympy", "networkx")
"""A stream, and the packages whose texts are sent after the second change alone."""


def bins(home: Path) -> Plan:
    """Longer texts, then those of OTHERS."""
    texts = sorted(held_out(STREAM), key=lambda example: len(example.text))
    usual, other = ([each for each in texts if (each.label in OTHERS) is of] for of in (False, True))
    lengths = [f"journal:{home / 'journals' / 'bins.jsonl'}", "data"]
    observed = {**BINS, "streams": [{**stream, "lengths": lengths} for stream in BINS["streams"]]}

    def body(example: Example, deadline: float) -> dict[str, Any]:
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [example.text]}
        return {"inputs": [tensor], "parameters": {"deadline": deadline}}

    def read(answer: Mapping[str, Any], example: Example) -> Said:
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        return Said(int(answer["model_version"]), outputs["label"][0] == example.label, max(outputs["scores"]))

    return Plan(
        speech=Speech(f"/v2/models/{STREAM}/infer", body, read),
        before=Mix("short texts", usual[: int(0.3 * len(usual))]),
        planted=(
            Mix("bins: longer texts", usual[int(0.7 * len(usual)) : int(0.95 * len(usual))]),
            Mix("bins: new vocabulary, texts of other packages", other),
        ),
        rate=15.0,
        parameters={"bins": {"overrides": observed}},
        status="/status",
    )


CASCADE_TASK = "package"
FLIPPED = 2  # of so many texts one has another label
NEWEST = 600
"""Labels that are learnt from: of 150 s. A run soon after the change has older ones among them, too, and may be refused."""


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
        service=story.SERVICE,
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


def tokens(home: Path) -> Plan:
    """Another mix of classes, then blurred pictures."""
    pictures = story.mixes()[0].examples
    mixed = [picture for picture in pictures for _ in range(TIMES if picture.label in COMMON else 1)]
    return Plan(
        speech=story.SPEECH,
        before=Mix("pictures of all classes", pictures),
        planted=(
            Mix(f"tokens: {' and '.join(COMMON)} {TIMES} times as often", mixed),
            Mix(f"tokens: blur of {story.BLUR:g} pixels", [story.blurred(each) for each in mixed]),
        ),
        rate=25.0,
        parameters={"tokens": {"overrides": story.first(home)}},
        service=story.SERVICE,
    )


PLANS: Mapping[str, Callable[[Path], Plan]] = {"tokens": tokens, "bins": bins, "cascade": cascade, "packing": packing}
"""System -> what gives its plan, with the folder of its state."""
