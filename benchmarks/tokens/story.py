"""What `pliant demo --story` needs of tokens: pictures before and after the change, its flows, its requests and answers.

Clients send handwritten digits of the profiling split, which no task was trained or tested with, and report the right label
of every answer. After the change the pictures are blurred: the champion is less often right, and a flow that learns from
the labels makes a task that is right about as often as before. The bad release has a head that has learnt next to nothing.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image, ImageFilter

from pliant.benchmarks.demo.story_load import Mix, Speech
from pliant.benchmarks.load_generator import IMAGES, Example, examples
from pliant.benchmarks.tokens.demo import OVERRIDES
from pliant.benchmarks.tokens.rollback import TASK, body, read
from pliant.registry.names import TOKENS_TASK
from pliant.training.data import load

MODEL = f"{TOKENS_TASK}{TASK}"
"""The registered model whose version every answer names."""
CHANGE = "the clients send blurred pictures"
BLUR = 0.8  # pixels of pictures with 8 x 8
QUICK: Mapping[str, Any] = {**OVERRIDES["task"], "points": False}
"""Gammas alone, whose heads take seconds to train."""
NEWEST = 300
"""Labels that are learnt from: those before them are of sharp pictures."""
SERVICE: Mapping[str, Any] = {"keep_inputs": True, "trusted_labels": "anonymous"}
"""Settings of a service whose clients, who have no keys, teach it."""


def first(home: Path) -> Mapping[str, Any]:
    """Return what trains a release, from the labels that a service with its state in `home` has kept."""
    feedback = {"outcomes": str(home / "outcomes" / "tokens")}
    return {**OVERRIDES, "data": (f"digits:{TASK}",), "feedback": feedback, "task": QUICK}


def after(home: Path) -> Mapping[str, Any]:
    """Return the same for after the change: from the newest labels alone."""
    release = first(home)
    return {**release, "feedback": {**release["feedback"], "most": NEWEST}}


def worse(home: Path) -> Mapping[str, Any]:
    """Return what trains a head that learns next to nothing: one step, from 20 pictures."""
    return {**first(home), "feedback": {}, "task": {**QUICK, "head_steps": 1, "head_images": 20}}


def mixes() -> tuple[Mix, Mix]:
    """Return the pictures that are sent before the change, and those after it."""
    data = load(f"digits:{TASK}", TASK)
    sharp = examples(data, [int(row) for row in data.split.profiling])
    return Mix("sharp pictures", sharp), Mix("blurred pictures", [blurred(each) for each in sharp])


def blurred(picture: Example) -> Example:
    """Return the picture through a Gaussian blur."""
    image = Image.open(io.BytesIO(base64.b64decode(picture.encoded))).filter(ImageFilter.GaussianBlur(BLUR))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return Example(base64.b64encode(buffer.getvalue()).decode(), picture.label)


def label(answer: Mapping[str, Any], picture: Example) -> Mapping[str, Any]:
    """Return the report of an answer's label."""
    return {"id": answer["id"], "label": picture.label}


SPEECH = Speech(IMAGES.path, body, read, label)
