"""What may be a text or a label of a row, and the classes that labels are: texts, unless they are called numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SURROGATE = re.compile("[\ud800-\udfff]")
RAW = re.compile("[\udc80-\udcff]")  # a byte that was read with `surrogateescape`
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)  # without leading zeros
HIDDEN = "below 0 (a test split without its labels?)"


def text_fault(value: Any) -> str:
    """Return why a value can be no text; empty: it can."""
    if value is None:
        return "no text"
    if type(value) is not str:
        return f"{ascii(str(value))[:80]} is no text"
    if not value.strip():
        return "an empty text"
    if value.isascii() or not (half := SURROGATE.search(value)):
        return ""
    if RAW.fullmatch(half[0]):
        return f"the byte 0x{ord(half[0]) & 0xFF:x} is not UTF-8"
    return "half of a surrogate pair"


def label_fault(value: Any, names: Sequence[str], regression: bool) -> str:
    """Return why a value can be no label; empty: it can. `names`: what the numbers of the column stand for, if anything."""
    if value is None or value == "":
        return "no label"
    if names and not regression:
        return "" if 0 <= value < len(names) else f"label {value} is {HIDDEN if value < 0 else 'of no class'}"
    if regression:
        number = NUMBER.fullmatch(str(value)) and not isinstance(value, bool) and math.isfinite(float(value))
        return "" if number else f"label {ascii(str(value))[:80]} is no finite number"
    if isinstance(value, float):
        return f"label {value} is a fraction"
    if not isinstance(value, str | int):
        return f"label {ascii(str(value))[:80]} is no text and no whole number"
    return text_fault(str(value)).replace("an empty text", "no label")


def classes_of(values: Sequence[Any], names: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the numbers of sound labels, and their classes: the `names` that numbers stand for, or the labels as written.

    Whole numbers are in their order, if all are, else texts in theirs. True and false are called as in JSON.
    """
    if names:
        return np.asarray(values, dtype=np.int64), tuple(names)
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    distinct = set(texts)
    classes = sorted(distinct, key=int if all(map(WHOLE.fullmatch, distinct)) else None)
    number_of = {text: number for number, text in enumerate(classes)}
    return np.array([number_of[text] for text in texts], dtype=np.int64), tuple(classes)
