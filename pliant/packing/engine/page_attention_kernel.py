"""Attention over pages on a CPU, compiled by numba. page_attention.py says what is computed, and has it in plain torch.

A piece of work is one group of heads that share keys (grouped-query attention), and up to `QUERIES` queries of one
sequence. It reads the sequence's keys and values in blocks of `BLOCK` tokens, each once for all its queries and heads,
and keeps a running softmax (Milakov and Gimelshein, 2018; as FlashAttention, 2022). Queries never meet a key behind
them, so as many pairs are computed as are needed. Exponentials are powers of 2: the integer part becomes the exponent
of a float, and a polynomial gives the rest, with a relative error below 2e-7, since a call of `exp` an element would take as
long as all products.

Shape suffixes: T queries of an iteration, H heads, G heads with keys of their own, D width of a head, S sequences,
C pages of the cache, P tokens of a page, M pages of the longest sequence, I pieces of work.
"""

# mypy: ignore-errors
# numba infers the types

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numba
import numpy as np

BLOCK = 64  # tokens whose keys are read together: 16 kB of a head of 64, half of a first-level cache
QUERIES = 64  # of one piece of work
MANY = 8  # rows (queries times heads) from which on copying a block of keys transposed pays
LOG2E = np.float32(1.4426950408889634)
LOWEST = np.float32(-126.0)  # exponent of the smallest normal float; powers below it count as that one
NONE = np.float32(-3.0e38)  # below every score
E1, E2, E3, E4, E5, E6 = (np.float32(np.log(2.0) ** n / d) for n, d in enumerate((1, 2, 6, 24, 120, 720), 1))
"""Of the Taylor series of 2 ** x, used from -0.5 to 0.5."""

_numba = numba.njit(fastmath=True, nogil=True, error_model="numpy", cache=True)


@_numba
def _power2(x):
    """Return 2 ** x for one number, which is at most 0."""
    return np.float32(2.0) ** max(x, LOWEST)


@_numba
def _powers2(score, bits, exponent, count, top):
    """Replace `count` scores by 2 ** (score - top), and return their sum. `exponent` views `bits` as floats."""
    for j in range(count):
        x = max(score[j] - top, LOWEST)
        whole = np.rint(x)
        bits[j] = (np.int32(whole) + np.int32(127)) << np.int32(23)
        r = x - whole
        score[j] = np.float32(1.0) + r * (E1 + r * (E2 + r * (E3 + r * (E4 + r * (E5 + r * E6)))))
    total = np.float32(0.0)
    for j in range(count):
        score[j] *= exponent[j]
        total += score[j]
    return total


@lru_cache
def attention(width: int, page_tokens: int) -> Callable[..., Any]:
    """Return the compiled attention for heads of `width`, a multiple of 4, and pages of `page_tokens`.

    It takes q_THD, k_CPGD, v_CPGD, starts_S1 (the first query of each sequence, and the end), lengths_S (tokens with
    those of this iteration), table_SM (pages in order), work_I4 (sequence, group, first query, end), the pieces from
    `first` to `last`, the scale of scores, and out_THD, which it fills for those pieces. It returns the pairs of a
    query and a key that were computed, counted for every head. It holds no lock of Python, so threads may share the
    pieces.
    """
    D, P = width, page_tokens

    @_numba
    def attend(q_THD, k_CPGD, v_CPGD, starts_S1, lengths_S, table_SM, work_I4, first, last, scale, out_THD):
        heads = q_THD.shape[1] // k_CPGD.shape[2]  # of a group
        score, bits, query = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.int32), np.empty(D, np.float32)
        exponent, keys = bits.view(np.float32), np.empty((D, BLOCK), np.float32)
        page, place = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
        most = QUERIES * heads
        sums, top, total = np.empty((most, D), np.float32), np.empty(most, np.float32), np.empty(most, np.float32)
        factor, pairs = np.float32(scale) * LOG2E, 0
        for piece in range(first, last):
            sequence, group = work_I4[piece, 0], work_I4[piece, 1]
            begin = starts_S1[sequence] + work_I4[piece, 2]
            rows = (work_I4[piece, 3] - work_I4[piece, 2]) * heads
            # Tokens that the first query of the piece meets; each further one meets one more.
            seen = lengths_S[sequence] - (starts_S1[sequence + 1] - begin) + 1
            for row in range(rows):
                top[row], total[row] = NONE, np.float32(0.0)
                for d in range(D):
                    sums[row, d] = np.float32(0.0)
            for block in range(0, seen + (rows - 1) // heads, BLOCK):
                count = min(BLOCK, seen + (rows - 1) // heads - block)
                for j in range(count):
                    page[j], place[j] = table_SM[sequence, (block + j) // P], (block + j) % P
                if rows >= MANY:
                    for j in range(count):
                        for d in range(D):
                            keys[d, j] = k_CPGD[page[j], place[j], group, d]
                for row in range(rows):
                    met = min(count, seen + row // heads - block)
                    if met <= 0:
                        continue
                    pairs += met
                    t, h = begin + row // heads, group * heads + row % heads
                    for d in range(D):
                        query[d] = q_THD[t, h, d] * factor
                    if rows >= MANY:
                        for j in range(met):
                            score[j] = np.float32(0.0)
                        for d in range(0, D, 4):
                            q0, q1, q2, q3 = query[d], query[d + 1], query[d + 2], query[d + 3]
                            for j in range(met):
                                near, far = (
                                    q0 * keys[d, j] + q1 * keys[d + 1, j],
                                    q2 * keys[d + 2, j] + q3 * keys[d + 3, j],
                                )
                                score[j] += near + far
                    else:
                        for j in range(met):
                            product = np.float32(0.0)
                            for d in range(D):
                                product += query[d] * k_CPGD[page[j], place[j], group, d]
                            score[j] = product
                    best = top[row]
                    for j in range(met):
                        best = max(best, score[j])
                    if best > top[row]:
                        shrink = _power2(top[row] - best)
                        top[row], total[row] = best, total[row] * shrink
                        for d in range(D):
                            sums[row, d] *= shrink
                    total[row] += _powers2(score, bits, exponent, met, best)
                    j = 0
                    while j + 4 <= met:
                        s0, s1, s2, s3 = score[j], score[j + 1], score[j + 2], score[j + 3]
                        c0, c1, c2, c3 = page[j], page[j + 1], page[j + 2], page[j + 3]
                        p0, p1, p2, p3 = place[j], place[j + 1], place[j + 2], place[j + 3]
                        for d in range(D):
                            near = s0 * v_CPGD[c0, p0, group, d] + s1 * v_CPGD[c1, p1, group, d]
                            far = s2 * v_CPGD[c2, p2, group, d] + s3 * v_CPGD[c3, p3, group, d]
                            sums[row, d] += near + far
                        j += 4
                    while j < met:
                        for d in range(D):
                            sums[row, d] += score[j] * v_CPGD[page[j], place[j], group, d]
                        j += 1
            for row in range(rows):
                inverse = np.float32(1.0) / total[row]
                for d in range(D):
                    out_THD[begin + row // heads, group * heads + row % heads, d] = sums[row, d] * inverse
        return pairs

    return attend
