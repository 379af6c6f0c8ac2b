"""Which attention over pages is used: the fastest that runs here and is right here.

A kernel that runs may still be wrong on some device, in some version: it leaves rows as they were, mixes up sequences, or
gives NaN. So whenever an engine starts, each attention is compared with plain torch in float32 on the CPU, in a small
cache of its own, before it is used. It attends to three sequences: one whose queries cross the border of a page, one whose
last page holds a single token, and one that is read at once, longer than the blocks in which kernels read keys. Each query
is close to some key of its sequence (its own, the first, or one between), so that no page can be left out without a trace.

Shape suffixes: S sequences, N tokens of a sequence, H heads, G heads with keys, D width of a head, M pages of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliant import fallbacks
from pliant.errors import PliantError
from pliant.packing.engine.page_attention import (
    CompiledPageCache,
    GatheredPageCache,
    PageBatch,
    PageCache,
    VariedLengthPageCache,
)

TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.005}
"""Of what is attended to, which is about 1, by the precision of the cache: a few roundings of it."""
PEAK = 8.0  # score of the key that a query is close to; so about half of its attention is there
BLOCK = 64  # tokens whose keys a kernel reads together, at least


@dataclass(frozen=True, slots=True)
class Case:
    """What attention is chosen for. `heads` have keys of their own, each shared by `sharing` heads of queries."""

    page_tokens: int
    heads: int
    sharing: int
    width: int
    dtype: torch.dtype
    device: torch.device


class WrongAttentionError(Exception):
    """An attention ran and gave something else than plain torch."""


def page_cache(
    layers: int,
    pages: int,
    page_tokens: int,
    heads: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    sharing: int = 1,
) -> PageCache:
    """Return the cache with the fastest attention that runs and is right for these heads, this precision and this device.

    `heads` have keys of their own, and `sharing` heads of queries share each of them. Raises `PliantError` where not even
    plain torch is right.
    """
    kinds: Sequence[type[PageCache]] = ()
    if device.type == "cpu" and dtype == torch.float32 and width % 4 == 0:
        kinds = (CompiledPageCache,)
    elif device.type == "cuda" and dtype in (torch.bfloat16, torch.float16):
        kinds = (VariedLengthPageCache, GatheredPageCache)
    kind = chosen(kinds, Case(page_tokens, heads, sharing, width, dtype, device))
    return kind(layers, pages, page_tokens, heads, width, dtype, device)


def chosen(kinds: Sequence[type[PageCache]], case: Case) -> type[PageCache]:
    """Return the first of these kinds that runs and is right, else plain torch; one that is wrong is always reported.

    One that does not run is reported only where plain torch is left: torch's kernel takes no small pages, for example.
    """
    failed: list[str] = []
    for kind in kinds:
        try:
            check(kind, case)
        except WrongAttentionError as error:
            failed.append(f"{kind.__name__} is wrong: {error}")
            fallbacks.note("attention", f"attention over pages leaves out {failed[-1]}")
        except (
            ImportError,
            TypeError,
            RuntimeError,
            ValueError,
        ) as error:  # not in this version, or not on this device
            failed.append(f"{kind.__name__} failed: {error}")
        else:
            return kind
    if failed:
        reason = f"attention over pages runs in plain torch, sequence by sequence, since {'; '.join(failed)}"
        fallbacks.note("attention", reason)
    try:
        check(PageCache, case)
    except WrongAttentionError as error:
        raise PliantError(
            f"Plain torch's attention in {case.dtype} is wrong on {case.device}: {error}. Use another device."
        ) from error
    return PageCache


def check(kind: type[PageCache], case: Case) -> None:
    """Compare what a cache of this kind attends to with what plain torch does.

    Raises `WrongAttentionError` if they differ by more than rounding, and whatever the kernel raises.
    """
    worst = max(differences(kind, case), key=_badness)
    if not worst <= TOLERANCES[case.dtype]:  # NaN is not
        raise WrongAttentionError(f"it is off by {worst:.2g}, and rounding alone by at most {TOLERANCES[case.dtype]:g}")


def _badness(difference: float) -> float:
    return float("inf") if difference != difference else difference


def differences(kind: type[PageCache], case: Case) -> Iterator[float]:
    """Yield the largest difference of two iterations: the cached tokens are read, then those that follow."""
    page_tokens, heads, width = case.page_tokens, case.heads, case.width
    cached_S = [page_tokens - 1, 2 * page_tokens, 0]
    totals_S = [page_tokens + 1, 2 * page_tokens + 1, max(page_tokens, BLOCK) + 2]
    need_S = [-(-total // page_tokens) for total in totals_S]
    pages = np.arange(sum(need_S))[::-1]  # a page's number says nothing of its place
    table_SM = np.zeros((len(totals_S), max(need_S)), np.int32)
    for row, (end, need) in enumerate(zip(np.cumsum(need_S), need_S, strict=True)):
        table_SM[row, :need] = pages[end - need : end]
    sizes = 1, len(pages), page_tokens, heads, width
    cache, plain = kind(*sizes, case.dtype, case.device), PageCache(*sizes, torch.float32, torch.device("cpu"))
    texts = [_Text(total, heads, case.sharing, width, seed).to(case.dtype) for seed, total in enumerate(totals_S)]
    for begins, ends in (([0, 0], cached_S[:2]), (cached_S, totals_S)):
        batch = _batch(begins, ends, table_SM, page_tokens, cache)
        parts = [text.part(begin, end) for text, begin, end in zip(texts, begins, ends, strict=False)]
        query, key, value = (torch.cat(tensors, 1)[None] for tensors in zip(*parts, strict=True))
        scale = PEAK / width
        there = query.to(case.device), key.to(case.device), value.to(case.device)
        out = batch.attend(0, *there, scale).float().cpu()
        expected = replace(batch, cache=plain).attend(0, query.float(), key.float(), value.float(), scale)
        yield float((out - expected).abs().max())


class _Text:
    """Queries, keys and values of a sequence, each [H or G, N, D]; keys are as long as a vector of ones."""

    def __init__(self, total: int, groups: int, sharing: int, width: int, seed: int) -> None:
        drawn = torch.Generator().manual_seed(seed)
        key_GND = torch.randn(groups, total, width, generator=drawn)
        self.key = key_GND / key_GND.norm(dim=-1, keepdim=True) * width**0.5
        self.value = torch.randn(groups, total, width, generator=drawn)
        own_N = torch.arange(total)
        # By the number of the query, and of the head among those that share keys: its own key, the first, one between.
        targets = torch.stack(
            [torch.stack([own_N, 0 * own_N, own_N // 2])[(own_N + h) % 3, own_N] for h in range(sharing)]
        )
        self.query = self.key[:, targets].flatten(0, 1)

    def to(self, dtype: torch.dtype) -> _Text:
        self.query, self.key, self.value = (t.to(dtype) for t in (self.query, self.key, self.value))
        return self

    def part(self, begin: int, end: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.query[:, begin:end], self.key[:, begin:end], self.value[:, begin:end]


def _batch(
    begins: Sequence[int], ends: Sequence[int], table_SM: NDArray[np.int32], page_tokens: int, cache: PageCache
) -> PageBatch:
    queries = np.subtract(ends, begins)
    rows = np.repeat(np.arange(len(ends)), queries)
    positions = np.concatenate([np.arange(*pair) for pair in zip(begins, ends, strict=True)])
    slots = table_SM[rows, positions // page_tokens].astype(np.int64) * page_tokens + positions % page_tokens
    starts = np.concatenate([[0], np.cumsum(queries)])
    return PageBatch(starts, np.array(ends), table_SM[: len(ends)], slots, cache)
