"""Texts of a launch as the arrays that a shape takes: checks what fits, pads the rest. Knows no model and no device.

Static shapes of native code read and write by address: what does not fit must never reach them.

Shape suffixes: B texts, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from pliant.errors import InputError

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""Ids and types of the tokens of one text, special ones included: both [N]."""

Batch = dict[str, NDArray[np.int64]]
"""By the names of the model's arguments, [B, N] each: `input_ids`, `attention_mask` and where taken `token_type_ids`."""


def check(shape: Shape, payloads: Sequence[Payload]) -> None:
    """Raises `InputError` for no text, too many, and a text without tokens, with too many or with another count of types."""
    if not 1 <= len(payloads) <= shape.batch:
        raise InputError("payloads", f"{len(payloads)} texts", f"1 to {shape.batch} for {told(shape)}")
    for ids, types in payloads:
        if ids.ndim != 1 or not 1 <= len(ids) <= shape.length:
            raise InputError("text", f"{ids.size} tokens long", f"1 to {shape.length} for {told(shape)}")
        if types.shape != ids.shape:
            raise InputError("types", f"of shape {types.shape}", f"one a token, {ids.shape}")


def padded(shape: Shape, payloads: Sequence[Payload], pad: int, typed: bool) -> Batch:
    """A static shape's arrays have exactly that shape, a dynamic one's the number of texts and the longest one's tokens.

    A row without a text repeats the first one: rows of padding alone would be averages over nothing.
    """
    rows, length = (shape.batch, shape.length)
    if shape.dynamic:
        rows, length = len(payloads), max(len(ids) for ids, _ in payloads)
    id_BN = np.full((rows, length), pad, dtype=np.int64)
    valid_BN, type_BN = np.zeros_like(id_BN), np.zeros_like(id_BN)
    for row in range(rows):
        ids, types = payloads[row] if row < len(payloads) else payloads[0]
        id_BN[row, : len(ids)], type_BN[row, : len(ids)], valid_BN[row, : len(ids)] = ids, types, 1
    return {"input_ids": id_BN, "attention_mask": valid_BN} | ({"token_type_ids": type_BN} if typed else {})


def told(shape: Shape) -> str:
    return f"{'at most ' if shape.dynamic else ''}{shape.batch} x {shape.length}"
