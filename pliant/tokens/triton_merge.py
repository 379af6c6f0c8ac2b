"""Merging tokens on a GPU in two launches, where torch's operators need some thirty.

The first kernel pairs the tokens of an image and says which row of the result each of them goes to; the second averages
rows. Nothing is sorted: the rank of a pair is the number of pairs that are more similar. Products are of three TF32 terms
where TF32 alone would round (https://triton-lang.org, `tl.dot`, `input_precision="tf32x3"`), so float32 stays float32.

Shape suffixes as in model.py; in kernels `i` counts even tokens, `j` odd ones, `m` rows of the result.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# Triton infers the types of its kernels.

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST = 512
"""Tokens of an image that the first kernel pairs: all even ones are in the registers of one program."""


@triton.jit(do_not_specialize=["N", "R", "sb", "sh", "sn"])
def match_kernel(
    key, dest, N, R, sb, sh, sn,
    H: tl.constexpr, E: tl.constexpr, EVEN: tl.constexpr, WIDE: tl.constexpr, COLS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write to dest [B, N] (int32) the row that each token goes to. One program an image.

    key [B, H, N, E] has strides sb, sh, sn and 1. EVEN and WIDE: powers of two, at least the even tokens and E.
    """
    b = tl.program_id(0)
    i = tl.arange(0, EVEN)
    e = tl.arange(0, WIDE)
    evens, odds = (N + 1) // 2, N // 2
    base = key + b.to(tl.int64) * sb + e[None, :]
    even = tl.zeros((EVEN, WIDE), tl.float32)
    for h in range(H):
        there = (i < evens)[:, None] & (e < E)[None, :]
        even += tl.load(base + h * sh + (2 * i)[:, None] * sn, mask=there, other=0.0).to(tl.float32)
    even = even / tl.maximum(tl.sqrt(tl.sum(even * even, 1)), 1e-6)[:, None]
    best = tl.full((EVEN,), -float("inf"), tl.float32)
    target = tl.zeros((EVEN,), tl.int32)
    for start in range(0, odds, COLS):
        j = start + tl.arange(0, COLS)
        odd = tl.zeros((COLS, WIDE), tl.float32)
        for h in range(H):
            there = (j < odds)[:, None] & (e < E)[None, :]
            odd += tl.load(base + h * sh + (2 * j + 1)[:, None] * sn, mask=there, other=0.0).to(tl.float32)
        odd = odd / tl.maximum(tl.sqrt(tl.sum(odd * odd, 1)), 1e-6)[:, None]
        score = tl.dot(even, tl.trans(odd), input_precision=PRECISION)
        score = tl.where((j < odds)[None, :], score, -float("inf"))
        most, at = tl.max(score, 1, return_indices=True)
        target = tl.where(most > best, start + at, target)
        best = tl.maximum(most, best)
    best = tl.where((i == 0) | (i >= evens), -float("inf"), best)  # the class token stays
    rank = tl.zeros((EVEN,), tl.int32)
    for start in range(0, evens, COLS):
        other = start + tl.arange(0, COLS)
        across = tl.sum(tl.where(i[:, None] == other[None, :], best[:, None], 0.0), 0)  # best, along the other axis
        first = (across[None, :] == best[:, None]) & (other[None, :] < i[:, None])
        ahead = ((across[None, :] > best[:, None]) | first) & (other < evens)[None, :]
        rank += tl.sum(ahead.to(tl.int32), 1)
    gone = (rank < R) & (i > 0) & (i < evens)
    place = tl.cumsum(((i < evens) & (gone == 0)).to(tl.int32), 0) - 1
    kept = evens - R
    tl.store(dest + b * N + 2 * i, tl.where(gone, kept + target, place), mask=i < evens)
    tl.store(dest + b * N + 2 * i + 1, kept + i, mask=i < odds)


@triton.jit(do_not_specialize=["N", "M"])
def average_kernel(
    x, attended, size, dest, out, new_size, log_size, N, M, D,
    SIZED: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the means of x + attended [B, N, D] by `dest` to out [B, M, D], their sizes, and the logarithms of these.

    One program for ROWS rows and COLS columns of an image. Not SIZED: each token stands for itself, and `size` is unread.
    """
    b = tl.program_id(0)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(2) * COLS + tl.arange(0, COLS)
    from_image, to_image = b.to(tl.int64) * N * D, b.to(tl.int64) * M * D
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, N, STEP):
        n = start + tl.arange(0, STEP)
        row = tl.load(dest + b * N + n, mask=n < N, other=-1)
        count = tl.load(size + b * N + n, mask=n < N, other=0.0) if SIZED else tl.where(n < N, 1.0, 0.0)
        place = from_image + n[:, None] * D + c[None, :]
        there = (n < N)[:, None] & (c < D)[None, :]
        value = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
        value += tl.load(attended + place, mask=there, other=0.0).to(tl.float32)
        value = value.to(x.dtype.element_ty).to(tl.float32)  # as if the sum had been stored
        share = tl.where(row[None, :] == m[:, None], count[None, :], 0.0)
        total += tl.sum(share, 1)
        sums += tl.dot(share, value, input_precision=PRECISION)
    total = tl.maximum(total, 1e-6)
    mean = (sums / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + to_image + m[:, None] * D + c[None, :], mean, mask=(m < M)[:, None] & (c < D)[None, :])
    if tl.program_id(2) == 0:
        tl.store(new_size + b * M + m, total, mask=m < M)
        tl.store(log_size + b * M + m, tl.log(total).to(log_size.dtype.element_ty), mask=m < M)


def match_constants(tokens: int, heads: int, width: int) -> dict[str, Any]:
    """Return the constants of `match_kernel` for keys of this shape, and its `num_warps`."""
    even, wide = (max(16, triton.next_power_of_2(count)) for count in ((tokens + 1) // 2, width))
    constants = {"H": heads, "E": width, "EVEN": even, "WIDE": wide, "PRECISION": "tf32x3"}
    columns = 64 if even <= 128 and wide <= 64 else 32
    return constants | {"COLS": columns, "num_warps": min(16, max(4, even * wide // 1024))}


def average_constants(dtype: torch.dtype, sized: bool) -> dict[str, Any]:
    """Return the constants of `average_kernel`, and its `num_warps`.

    Two bytes of a token and whole sizes up to 2,048 are exact in TF32, so one term does.
    """
    precision = "tf32x3" if dtype == torch.float32 else "tf32"
    return {"SIZED": sized, "ROWS": 64, "COLS": 64, "STEP": 32, "PRECISION": precision, "num_warps": 4}


def merge_in_two_launches(
    x_BND: Tensor, attended_BND: Tensor, size_BN1: Tensor | None, key_BHNE: Tensor, merged: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Add what was attended to and merge `merged` tokens away, as `match` and `merge` of model.py do.

    Returns tokens [B, N - merged, D], their sizes (float32) and the logarithms of these in the tokens' type, both
    [B, N - merged, 1]. `size_BN1` None: each token stands for itself. Raises `ValueError` for more than MOST tokens.
    """
    batch, tokens, width = x_BND.shape
    if tokens > MOST:
        raise ValueError(f"an image has {tokens} tokens, and the kernel pairs at most {MOST}")
    x_BND, attended_BND, left = x_BND.contiguous(), attended_BND.contiguous(), tokens - merged
    if key_BHNE.stride(3) != 1:
        key_BHNE = key_BHNE.contiguous()
    dest_BN = torch.empty(batch, tokens, dtype=torch.int32, device=x_BND.device)
    strides = key_BHNE.stride(0), key_BHNE.stride(1), key_BHNE.stride(2)
    constants = match_constants(tokens, key_BHNE.shape[1], key_BHNE.shape[3])
    match_kernel[(batch,)](key_BHNE, dest_BN, tokens, merged, *strides, **constants)
    out_BND = x_BND.new_empty(batch, left, width)
    new_BN1, log_BN1 = x_BND.new_empty(batch, left, 1, dtype=torch.float32), x_BND.new_empty(batch, left, 1)
    constants = average_constants(x_BND.dtype, size_BN1 is not None)
    grid = batch, triton.cdiv(left, constants["ROWS"]), triton.cdiv(width, constants["COLS"])
    size = dest_BN if size_BN1 is None else size_BN1
    average_kernel[grid](
        x_BND, attended_BND, size, dest_BN, out_BND, new_BN1, log_BN1, tokens, left, width, **constants
    )
    return out_BND, new_BN1, log_BN1
