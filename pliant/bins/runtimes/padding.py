"""The arrays of a shape from the texts of a launch: checks what fits, and pads the rest.

Native code of static shapes reads and writes by address, so arrays of another size must never reach it.

Shape suffixes: B texts, N tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from pliant.errors import InputError

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""Ids and types of the tokens of one text, special tokens included: both [N]."""

Batch = dict[str, NDArray[np.int64]]
"""By argument of the model, [B, N] each: `input_ids`, `attention_mask`, and `token_type_ids` where it takes them."""


OUTPUT, TOKENS = "output", "tokens"
"""Names of a compiled model's outputs: embeddings or logits, and the embeddings of all tokens."""


def check(shape: Shape, payloads: Sequence[Payload]) -> None:
    """Check that the texts fit the shape.

    Raises `InputError` for no text or too many, and for a text without tokens, with too many, or with another number of
    types.
    """
    if not 1 <= len(payloads) <= shape.batch:
        raise InputError("payloads", f"{len(payloads)} texts", f"1 to {shape.batch} for {size_text(shape)}")
    for ids, types in payloads:
        if ids.ndim != 1 or not 1 <= len(ids) <= shape.length:
            raise InputError("text", f"{ids.size} tokens long", f"1 to {shape.length} for {size_text(shape)}")
        if types.shape != ids.shape:
            raise InputError("types", f"of shape {types.shape}", f"one a token, {ids.shape}")


def padded(shape: Shape, payloads: Sequence[Payload], pad: int, typed: bool) -> Batch:
    """Return the padded arrays: of exactly a static shape's size, or as large as a dynamic one's texts need.

    A row without a text repeats the first one, as a mean over padding alone is undefined.
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


def size_text(shape: Shape) -> str:
    """Return the shape in words, such as "4 x 128"."""
    return f"{'at most ' if shape.dynamic else ''}{shape.batch} x {shape.length}"
