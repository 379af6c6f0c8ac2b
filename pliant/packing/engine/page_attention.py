"""Attention of every sequence's queries to the keys and values in its own pages, and to nothing else.

Transformers' modules call `attend` through their interface for attention, once a layer. It stores the new keys and
values in their pages and computes the attention by one of three classes, which agree up to rounding: compiled loops on a
CPU in float32 (page_attention_kernel.py), torch's attention for sequences of various lengths on a GPU, and plain torch,
sequence by sequence, which is the reference. Keys that several heads share are never repeated, and no mask over all
pairs is ever made. The fastest that runs here and is right here is used.

A kernel that runs may still be wrong on some device, in some version: it leaves rows as they were, mixes up sequences, or
gives NaN. So whenever an engine starts, each attention is compared with plain torch in float32 on the CPU, in a small
cache of its own, before it is used. It attends to three sequences: one whose queries cross the border of a page, one whose
last page holds a single token, and one that is read at once, longer than the blocks in which kernels read keys. Each query
is close to some key of its sequence (its own, the first, or one between), so that no page can be left out without a trace.

Shape suffixes: T queries of an iteration, H heads, G heads with keys of their own, D width of a head, S sequences,
C pages of the cache, P tokens of a page, M pages of the longest sequence, I pieces of work, L layers, N tokens of a
sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from inspect import signature
from itertools import pairwise
from math import inf, isnan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pliant import fallbacks
from pliant.errors import InputError, PliantError

NAME = "pliant_pages"  # of this attention in transformers' registry
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Case:
    """What attention is chosen for. `heads` have keys of their own, each shared by `sharing` heads of queries."""

    page_tokens: int
    heads: int
    sharing: int
    width: int
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class PageBatch:
    """What one iteration reads and writes. The queries of a sequence are its newest tokens, one after another."""

    starts_S1: Ints  # of each sequence's queries among all, and the end
    lengths_S: Ints  # tokens of each sequence with those of this iteration
    table_SM: NDArray[np.int32]  # pages of each sequence in order
    slots_T: Ints  # where each query's key and value go: page * page_tokens + place
    cache: PageCache

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """Return the attention [1, T, H, D] of a layer. `query` is [1, H, T, D]; `key` and `value` are [1, G, T, D]."""
        q_THD, k_TGD, v_TGD = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
        cached = tuple(self.cache.tensor_L2CPGD.shape[4:])
        for new_TGD in (k_TGD, v_TGD):
            if new_TGD.shape[1:] != cached:
                value_GD = "{} heads of {} numbers".format(*new_TGD.shape[1:])
                raise InputError("a key or value of the model", value_GD, "{} heads of {} numbers".format(*cached))
        self.cache.store(layer, self, k_TGD, v_TGD)
        scale = q_THD.shape[-1] ** -0.5 if scale is None else scale
        return self.cache.attend(layer, self, q_THD, scale)[None]

    def needed_pairs(self) -> int:
        """Return the pairs of a query and a key that a head of one layer needs."""
        queries, lengths = np.diff(self.starts_S1), self.lengths_S
        return int((queries * (lengths - queries) + queries * (queries + 1) // 2).sum())


class PageCache:
    """Keys and values of all layers in `pages` pages, and one more page that takes what pads a batch.

    `pairs` counts those of a query and a key that were computed, for every head of every layer.
    """

    def __init__(self, layers: int, pages: int, case: Case) -> None:
        self.pages, self.page_tokens, self.width, self.pairs = pages, case.page_tokens, case.width, 0
        shape = layers, 2, pages + 1, case.page_tokens, case.heads, case.width
        self.tensor_L2CPGD = torch.zeros(shape, dtype=case.dtype, device=case.device)
        self._flat = self.tensor_L2CPGD.flatten(2, 3)

    def views(self) -> list[Tensor]:
        """Return tensors that together are the cache; their first axis is pages."""
        return [part for layer in self.tensor_L2CPGD for part in layer]

    def prepare(self, threads: int) -> None:
        """Prepare the thread that runs iterations; `threads` may share the work."""
        del threads

    def close(self) -> None:
        """End what `prepare` has started."""

    def store(self, layer: int, batch: PageBatch, k_TGD: Tensor, v_TGD: Tensor) -> None:
        """Put the keys and values of a batch into its pages."""
        slots_T = torch.from_numpy(batch.slots_T).to(k_TGD.device)
        self._flat[layer, 0].index_copy_(0, slots_T, k_TGD)
        self._flat[layer, 1].index_copy_(0, slots_T, v_TGD)

    def attend(self, layer: int, batch: PageBatch, q_THD: Tensor, scale: float) -> Tensor:
        """Return the attention [T, H, D], sequence by sequence: the reference for the other classes."""
        out_THD = torch.zeros_like(q_THD)
        for number, length in enumerate(batch.lengths_S.tolist()):
            start, end = batch.starts_S1[number : number + 2].tolist()
            pages = torch.from_numpy(batch.table_SM[number, : -(-length // self.page_tokens)].astype(np.int64))
            k_1GND, v_1GND = (
                part[pages.to(part.device)].flatten(0, 1)[:length].transpose(0, 1)[None]
                for part in self.tensor_L2CPGD[layer]
            )
            seen = None
            if end - start > 1:
                ones = torch.ones(end - start, length, dtype=torch.bool, device=q_THD.device)
                seen = ones.tril(length - (end - start))
            q_1HTD = q_THD[start:end].transpose(0, 1)[None]
            heads = {"enable_gqa": q_THD.shape[1] != k_1GND.shape[1]}
            attended = scaled_dot_product_attention(q_1HTD, k_1GND, v_1GND, seen, scale=scale, **heads)
            out_THD[start:end] = attended[0].transpose(0, 1)
            self.pairs += q_THD.shape[1] * (end - start) * length
        return out_THD


class CompiledPageCache(PageCache):
    """Attention by compiled loops: on a CPU, in float32."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        from pliant.packing.engine.page_attention_kernel import QUERIES, attention  # a bare GPU machine lacks numba

        self._attention: Callable[..., int] = attention(self.width, self.page_tokens)
        self._queries, self._helpers = QUERIES, 0
        self._pool: ThreadPoolExecutor | None = None
        self._parts = [(part[0].numpy(), part[1].numpy()) for part in self.tensor_L2CPGD]
        self._work: tuple[PageBatch, NDArray[np.int64], list[tuple[int, int]]] | None = None

    def prepare(self, threads: int) -> None:
        if threads > 1:
            self._helpers, self._pool = threads - 1, ThreadPoolExecutor(threads - 1, "page attention")

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def attend(self, layer: int, batch: PageBatch, q_THD: Tensor, scale: float) -> Tensor:
        out_THD = torch.zeros_like(q_THD)
        if self._work is None or self._work[0] is not batch:  # the same for all layers
            self._work = batch, *self._divide(batch)
        _, work_I4, shares = self._work
        keys, values = self._parts[layer]
        fixed = q_THD.numpy(), keys, values, batch.starts_S1, batch.lengths_S, batch.table_SM, work_I4

        def run(share: tuple[int, int]) -> int:
            return self._attention(*fixed, *share, scale, out_THD.numpy())

        if self._pool is None:
            self.pairs += sum(map(run, shares))
        else:
            others = [self._pool.submit(run, share) for share in shares[1:]]
            self.pairs += run(shares[0]) + sum(other.result() for other in others)
        return out_THD

    def _divide(self, batch: PageBatch) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
        """Return the pieces of work, and the range of them that each thread has: about as many pairs for all."""
        queries, groups = np.diff(batch.starts_S1), self.tensor_L2CPGD.shape[4]
        pieces = -(-queries // self._queries)
        sequence = np.repeat(np.arange(len(queries)), pieces)
        number = np.arange(len(sequence)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        first = number * self._queries
        last = np.minimum(first + self._queries, queries[sequence])
        work = np.stack([sequence, np.zeros_like(sequence), first, last], axis=1)
        work_I4 = np.repeat(work, groups, axis=0)
        work_I4[:, 1] = np.tile(np.arange(groups), len(sequence))
        if not self._helpers:
            return work_I4, [(0, len(work_I4))]
        seen = batch.lengths_S[work_I4[:, 0]] - queries[work_I4[:, 0]] + work_I4[:, 3]
        pairs = np.cumsum(seen * (work_I4[:, 3] - work_I4[:, 2]))
        threads = self._helpers + 1
        cuts = np.searchsorted(pairs, pairs[-1] * np.arange(1, threads) / threads).tolist()
        edges = [0, *cuts, len(work_I4)]
        return work_I4, [(low, high) for low, high in pairwise(edges) if high > low]


class VariedLengthPageCache(PageCache):
    """Attention by torch's kernel for sequences of various lengths, which reads pages by their table: on a GPU."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        from torch.nn.attention.varlen import varlen_attn

        self._attention: Any = varlen_attn
        # Torch 2.11 has no enable_gqa: its kernel takes keys that several heads share as they come. Where the kernel may
        # split a sequence's keys it leaves rows unwritten if these lie in pages (pytorch#194167, open in 2.14).
        known = signature(varlen_attn).parameters
        self._shares = "enable_gqa" in known
        self._whole = {"num_splits": 1} if "num_splits" in known else {}
        self._batch: PageBatch | None = None
        self._tensors: dict[str, Tensor] = {}
        self._most = 0, 0

    def store(self, layer: int, batch: PageBatch, k_TGD: Tensor, v_TGD: Tensor) -> None:
        self._move(batch, k_TGD.device)
        for part, new_TGD in zip(self._flat[layer], (k_TGD, v_TGD), strict=True):
            part.index_copy_(0, self._tensors["slots"], new_TGD)

    def attend(self, layer: int, batch: PageBatch, q_THD: Tensor, scale: float) -> Tensor:
        self._move(batch, q_THD.device)
        self.pairs += q_THD.shape[1] * batch.needed_pairs()
        out_THD = torch.zeros_like(q_THD)
        used = int(batch.starts_S1[-1])
        keys, ends, options = self._keys(layer)
        shared = {"enable_gqa": q_THD.shape[1] != self.tensor_L2CPGD.shape[4]} if self._shares else {}
        arguments = q_THD[:used], *keys, self._tensors["starts"], ends, *self._most
        out_THD[:used] = self._attention(
            *arguments, scale=scale, window_size=(-1, 0), **shared, **self._whole, **options
        )
        return out_THD

    def _keys(self, layer: int) -> tuple[Sequence[Tensor], Tensor | None, Mapping[str, Tensor]]:
        """Return keys and values, the first of each sequence's (None: by the table), and the table for the kernel."""
        table = {"seqused_k": self._tensors["lengths"], "block_table": self._tensors["table"]}
        return list(self.tensor_L2CPGD[layer]), None, table

    def _move(self, batch: PageBatch, device: torch.device) -> None:
        """Copy the batch's tables to the device, once an iteration."""
        if batch is self._batch:
            return
        arrays: dict[str, NDArray[Any]] = {
            "starts": batch.starts_S1,
            "lengths": batch.lengths_S,
            "table": batch.table_SM,
            "ends": np.concatenate([[0], np.cumsum(batch.lengths_S)]),
        }
        self._tensors = {name: torch.from_numpy(array.astype(np.int32)).to(device) for name, array in arrays.items()}
        wide = {"slots": batch.slots_T, **self._wide(batch)}
        self._tensors |= {name: torch.from_numpy(array).to(device) for name, array in wide.items()}
        self._batch, self._most = batch, (int(np.diff(batch.starts_S1).max()), int(batch.lengths_S.max()))

    def _wide(self, batch: PageBatch) -> Mapping[str, Ints]:
        """Return further tables of 64 bits."""
        del batch
        return {}


class GatheredPageCache(VariedLengthPageCache):
    """The same kernel after the keys of all sequences were gathered, for a device on which it takes no pages this small.

    A gather moves each key once more: with 128 sequences of 500 tokens and 8 heads of 64 in half precision 130 MB a layer
    and iteration, which should take 0.1 ms on an H100.
    """

    def _keys(self, layer: int) -> tuple[Sequence[Tensor], Tensor | None, Mapping[str, Tensor]]:
        parts = [part.index_select(0, self._tensors["seen"]) for part in self._flat[layer]]
        return parts, self._tensors["ends"], {}

    def _wide(self, batch: PageBatch) -> Mapping[str, Ints]:
        places_SMP = batch.table_SM[:, :, None].astype(np.int64) * self.page_tokens + np.arange(self.page_tokens)
        places_SN = places_SMP.reshape(len(batch.lengths_S), -1)
        return {"seen": places_SN[np.arange(places_SN.shape[1]) < batch.lengths_S[:, None]]}


def attention_of_transformers(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    pages: PageBatch | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute a layer's attention for transformers. Raises `InputError` for a layer that needs more than full attention."""
    del attention_mask, dropout
    for name in ("sliding_window", "softcap", "s_aux", "position_bias"):
        if options.get(name) is not None:
            raise InputError("the model's attention", f"one with {name}", "full in every layer, and plain")
    if not getattr(module, "is_causal", True) or options.get("is_causal") is False:
        raise InputError("the model's attention", "one in both directions", "to tokens before alone")
    if pages is None:
        raise InputError("the model's attention", "called without what the model was called with", "given all of it")
    return pages.attend(module.layer_idx, query, key, value, scaling), None


TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 0.04, torch.float16: 0.005}
"""Of what is attended to, which is about 1, by the precision of the cache: a few roundings of it."""
PEAK = 8.0  # score of the key that a query is close to; so about half of its attention is there
BLOCK = 64  # tokens whose keys a kernel reads together, at least


class WrongAttentionError(Exception):
    """An attention ran and gave something else than plain torch."""


def page_cache(layers: int, pages: int, case: Case) -> PageCache:
    """Return the cache with the fastest attention that runs and is right for this case.

    Raises `PliantError` where not even plain torch is right.
    """
    kinds: Sequence[type[PageCache]] = ()
    if case.device.type == "cpu" and case.dtype == torch.float32 and case.width % 4 == 0:
        kinds = (CompiledPageCache,)
    elif case.device.type == "cuda" and case.dtype in (torch.bfloat16, torch.float16):
        kinds = (VariedLengthPageCache, GatheredPageCache)
    return chosen(kinds, case)(layers, pages, case)


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
        except (ImportError, TypeError, RuntimeError, ValueError) as error:  # not in this version or on this device
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
    worst = max(differences(kind, case), key=lambda difference: inf if isnan(difference) else difference)
    if not worst <= TOLERANCES[case.dtype]:  # NaN is not
        raise WrongAttentionError(f"it is off by {worst:.2g}, and rounding alone by at most {TOLERANCES[case.dtype]:g}")


def differences(kind: type[PageCache], case: Case) -> Iterator[float]:
    """Yield the largest difference of two iterations: the cached tokens are read, then those that follow."""
    page_tokens = case.page_tokens
    cached_S = [page_tokens - 1, 2 * page_tokens, 0]
    totals_S = [page_tokens + 1, 2 * page_tokens + 1, max(page_tokens, BLOCK) + 2]
    need_S = [-(-total // page_tokens) for total in totals_S]
    pages = np.arange(sum(need_S))[::-1]  # a page's number says nothing of its place
    table_SM = np.zeros((len(totals_S), max(need_S)), np.int32)
    for row, (end, need) in enumerate(zip(np.cumsum(need_S), need_S, strict=True)):
        table_SM[row, :need] = pages[end - need : end]
    reference = replace(case, dtype=torch.float32, device=torch.device("cpu"))
    cache, plain = kind(1, len(pages), case), PageCache(1, len(pages), reference)
    texts = [_text(case, total, seed) for seed, total in enumerate(totals_S)]
    for begins, ends in (([0, 0], cached_S[:2]), (cached_S, totals_S)):
        batch = _batch(begins, ends, table_SM, page_tokens, cache)
        parts = [[part[:, begin:end] for part in text] for text, begin, end in zip(texts, begins, ends, strict=False)]
        query, key, value = (torch.cat(tensors, 1)[None] for tensors in zip(*parts, strict=True))
        scale = PEAK / case.width
        there = query.to(case.device), key.to(case.device), value.to(case.device)
        out = batch.attend(0, *there, scale).float().cpu()
        expected = replace(batch, cache=plain).attend(0, query.float(), key.float(), value.float(), scale)
        yield float((out - expected).abs().max())


def _text(case: Case, total: int, seed: int) -> list[Tensor]:
    """Return queries, keys and values of a sequence, each [H or G, N, D]; keys are as long as a vector of ones."""
    drawn = torch.Generator().manual_seed(seed)
    key_GND = torch.randn(case.heads, total, case.width, generator=drawn)
    key_GND = key_GND / key_GND.norm(dim=-1, keepdim=True) * case.width**0.5
    value_GND = torch.randn(case.heads, total, case.width, generator=drawn)
    own_N = torch.arange(total)
    # By the number of the query, and of the head among those that share keys: its own key, the first, one between.
    near = torch.stack([own_N, 0 * own_N, own_N // 2])
    targets = torch.stack([near[(own_N + head) % 3, own_N] for head in range(case.sharing)])
    query_HND = key_GND[:, targets].flatten(0, 1)
    return [part.to(case.dtype) for part in (query_HND, key_GND, value_GND)]


def _batch(
    begins: Sequence[int], ends: Sequence[int], table_SM: NDArray[np.int32], page_tokens: int, cache: PageCache
) -> PageBatch:
    queries = np.subtract(ends, begins)
    rows = np.repeat(np.arange(len(ends)), queries)
    positions = np.concatenate([np.arange(*pair) for pair in zip(begins, ends, strict=True)])
    slots = table_SM[rows, positions // page_tokens].astype(np.int64) * page_tokens + positions % page_tokens
    starts = np.concatenate([[0], np.cumsum(queries)])
    return PageBatch(starts, np.array(ends), table_SM[: len(ends)], slots, cache)
