"""Changes planted in a running service of tokens: another mix of classes, then blurred pictures.

Pictures are handwritten digits of the profiling split, which no task was trained or tested with: their blurred copies are
new pictures, and the flow's gate tests with some of them. Clients report the right label of every answer.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageFilter

from pliant.benchmarks.demo.story_load import Mix, Speech
from pliant.benchmarks.load_generator import Example, examples
from pliant.benchmarks.tokens.demo import OVERRIDES
from pliant.benchmarks.tokens.rollback import TASK, body, read
from pliant.training.data import load
from qa.stack.changes import Plan, Planted

COMMON, TIMES = ("1", "7"), 5
"""Classes that the first change sends so many times as often."""
BLUR = 0.8  # pixels of pictures with 8 x 8
FLOW = "tokens"


def plan(home: Path) -> Plan:
    """Return the changes of tokens."""
    data = load(f"digits:{TASK}", TASK)
    pictures = examples(data, [int(i) for i in data.split.profiling])
    mixed = [picture for picture in pictures for _ in range(TIMES if picture.label in COMMON else 1)]
    learnt = {**OVERRIDES, "data": (f"digits:{TASK}",), "feedback": {"outcomes": str(home / "outcomes" / "tokens")}}
    return Plan(
        speech=Speech("/v1/predict", body, read, label),
        before=Mix("pictures of all classes", pictures),
        planted=(
            Planted(f"tokens: {' and '.join(COMMON)} {TIMES} times as often", Mix("another mix", mixed)),
            Planted(f"tokens: blur of {BLUR:g} pixels", Mix("blurred pictures", [blurred(each) for each in mixed])),
        ),
        rate=25.0,
        parameters={FLOW: {"overrides": learnt}},
        first="tokens/nightly",
        service={"keep_inputs": True, "trusted_labels": "anonymous"},
    )


def blurred(picture: Example) -> Example:
    """Return the picture through a Gaussian blur."""
    image = Image.open(io.BytesIO(base64.b64decode(picture.encoded))).filter(ImageFilter.GaussianBlur(BLUR))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return Example(base64.b64encode(buffer.getvalue()).decode(), picture.label)


def label(answer: Mapping[str, Any], picture: Example) -> Mapping[str, Any]:
    """Return the report of the right label."""
    return {"id": answer["id"], "label": picture.label}
