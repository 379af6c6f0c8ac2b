"""Every way of attention over pages gives what plain attention gives; one that is wrong is left out and reported."""

from __future__ import annotations

from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pliant.errors import InputError, PliantError
from pliant.fallbacks import Collector
from pliant.packing.engine import page_attention
from pliant.packing.engine.page_attention import (
    Case as Shape,
)
from pliant.packing.engine.page_attention import (
    CompiledPageCache,
    GatheredPageCache,
    PageBatch,
    PageCache,
    VariedLengthPageCache,
    attention_of_transformers,
    check,
    chosen,
    page_cache,
)
from tests.fixtures.packing import varlen
from tests.fixtures.packing.varlen import FAULTS, PAGED_FAULTS

CPU = torch.device("cpu")
WIDTH, PAGE = 8, 4


class Case:
    """Sequences with so many cached tokens and so many queries each, their pages anywhere in the cache."""

    def __init__(
        self, kind: type[PageCache], sequences: list[tuple[int, int]], heads: int, groups: int, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        self.sequences, self.heads, self.groups = sequences, heads, groups
        queries = np.array([count for _, count in sequences])
        lengths = np.array([sum(pair) for pair in sequences])
        need = -(-lengths // PAGE)
        pages = rng.permutation(int(need.sum()) + 3)
        self.cache = kind(2, len(pages), page_attention.Case(PAGE, groups, 1, WIDTH, torch.float32, CPU))
        table = np.zeros((len(sequences), int(need.max())), np.int32)
        for row, (start, end) in enumerate(zip(np.cumsum(need) - need, np.cumsum(need), strict=True)):
            table[row, : end - start] = pages[start:end]
        torch.manual_seed(seed)
        self.keys = [torch.randn(2, int(length), groups, WIDTH) for length in lengths]
        self.queries = [torch.randn(int(count), heads, WIDTH) for count in queries]
        starts = np.concatenate([[0], np.cumsum(queries)])
        positions = np.concatenate([np.arange(a, a + b) for a, b in sequences])
        rows = np.repeat(np.arange(len(sequences)), queries)
        slots = table[rows, positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
        self.batch = PageBatch(starts, lengths, table, slots, self.cache)
        for row, (cached, _) in enumerate(sequences):  # what earlier iterations have stored
            for at in range(cached):
                self.cache.tensor_L2CPGD[1, :, table[row, at // PAGE], at % PAGE] = self.keys[row][:, at]

    def attend(self) -> Tensor:
        q_1HTD = torch.cat(self.queries).transpose(0, 1)[None]
        new = [keys[:, cached:] for keys, (cached, _) in zip(self.keys, self.sequences, strict=True)]
        k_1GTD, v_1GTD = torch.cat(new, dim=1).transpose(1, 2)[:, None]
        return self.batch.attend(1, q_1HTD, k_1GTD, v_1GTD, 0.3)[0]

    def plain(self) -> Tensor:
        """Return the attention by its definition, query by query and head by head."""
        out = []
        for (cached, _), (k_NGD, v_NGD), q_THD in zip(self.sequences, self.keys, self.queries, strict=True):
            for at, q_HD in enumerate(q_THD):
                seen = cached + at + 1
                for head, q_D in enumerate(q_HD):
                    group = head * self.groups // self.heads
                    weights = (0.3 * (k_NGD[:seen, group] @ q_D).double()).softmax(0)
                    out.append(weights @ v_NGD[:seen, group].double())
        return torch.stack(out).float().view(-1, self.heads, WIDTH)

    def pairs(self) -> int:
        return sum(cached + at + 1 for cached, count in self.sequences for at in range(count))


sequences = st.lists(st.tuples(st.integers(0, 150), st.integers(1, 90)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", [PageCache, CompiledPageCache])
@settings(max_examples=25, deadline=None)
@given(sequences, st.sampled_from([(4, 4), (6, 2), (5, 1)]), st.integers(0, 99))
def test_attention_over_pages_is_attention(kind, counts, heads, seed) -> None:
    case = Case(kind, counts, *heads, seed)
    torch.testing.assert_close(case.attend(), case.plain(), rtol=2e-5, atol=2e-6)


@settings(max_examples=25, deadline=None)
@given(sequences, st.integers(0, 99))
def test_the_compiled_loops_compute_the_pairs_that_are_needed_and_no_others(counts, seed) -> None:
    case = Case(CompiledPageCache, counts, 6, 2, seed)
    case.attend()
    assert case.cache.pairs == 6 * case.pairs()
    assert case.batch.needed_pairs() == case.pairs()


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_share_the_work_give_the_same_to_the_last_bit(threads) -> None:
    counts = [(3, 130), (70, 1), (0, 5), (9, 64)]
    alone = Case(CompiledPageCache, counts, 6, 2, 1)
    shared = Case(CompiledPageCache, counts, 6, 2, 1)
    shared.cache.prepare(threads)
    work, shares = shared.cache._divide(shared.batch)  # type: ignore[attr-defined]
    assert len(shares) == threads and shares[0][0] == 0 and shares[-1][1] == len(work)
    assert all(before[1] == after[0] for before, after in pairwise(shares))
    assert torch.equal(alone.attend(), shared.attend())
    assert alone.cache.pairs == shared.cache.pairs
    shared.cache.close()


def test_what_a_text_gets_does_not_depend_on_its_company() -> None:
    alone = Case(CompiledPageCache, [(70, 3)], 6, 2, 4)
    company = Case(CompiledPageCache, [(70, 3), (5, 100), (9, 1)], 6, 2, 4)
    company.keys[0], company.queries[0] = alone.keys[0], alone.queries[0]
    for at in range(70):
        page = company.batch.table_SM[0, at // PAGE]
        company.cache.tensor_L2CPGD[1, :, page, at % PAGE] = alone.keys[0][:, at]
    assert torch.equal(alone.attend(), company.attend()[:3])


def test_rows_that_pad_a_batch_go_to_the_page_behind_all_others() -> None:
    case = Case(CompiledPageCache, [(5, 2)], 4, 2, 6)
    before = case.cache.tensor_L2CPGD[:, :, :-1].clone()
    batch = case.batch
    spare = case.cache.pages * PAGE
    padded = PageBatch(
        batch.starts_S1, batch.lengths_S, batch.table_SM, np.append(batch.slots_T, [spare] * 3), case.cache
    )
    q, kv = torch.randn(1, 4, 5, WIDTH), torch.randn(1, 2, 5, WIDTH)
    out = padded.attend(0, q, kv, kv, None)
    assert out.shape == (1, 5, 4, WIDTH) and not out[0, 2:].any()
    changed = (case.cache.tensor_L2CPGD[:, :, :-1] != before).flatten(2).any(2)
    assert changed.tolist() == [[True, True], [False, False]]
    assert case.cache.tensor_L2CPGD[0, :, -1, 0].any()


@pytest.mark.parametrize("option", ["sliding_window", "softcap", "s_aux", "position_bias"])
def test_a_layer_that_needs_more_than_full_attention_is_refused(option) -> None:
    none = torch.zeros(1, 1, 1, 4)
    with pytest.raises(InputError, match=option):
        attention_of_transformers(None, none, none, none, None, **{option: 8})


PAGE = 4
KINDS = (VariedLengthPageCache, GatheredPageCache)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def use(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)


@pytest.mark.parametrize(
    ("device", "dtype", "width", "kind"),
    [
        ("cpu", torch.float32, 8, CompiledPageCache),
        ("cpu", torch.float32, 6, PageCache),
        ("cpu", torch.bfloat16, 8, PageCache),
        ("cpu", torch.float16, 8, PageCache),
    ],
)
def test_the_fastest_way_that_runs_is_taken(device, dtype, width, kind) -> None:
    cache = page_cache(2, 3, Shape(PAGE, 2, 2, width, dtype, torch.device(device)))
    assert type(cache) is kind
    assert (cache.pages, cache.pairs, bool(cache.tensor_L2CPGD.any())) == (3, 0, False), "what was tried left nothing"


@DTYPES
@pytest.mark.parametrize("page_tokens", [1, 16, 256])
@pytest.mark.parametrize("heads", [(1, 1), (2, 3)])
def test_right_attention_passes_in_every_precision_and_size_of_page(monkeypatch, dtype, page_tokens, heads) -> None:
    use(monkeypatch, varlen.varlen_attn)
    for kind in (*KINDS, PageCache):
        check(kind, Shape(page_tokens, *heads, 32, dtype, CPU))


@DTYPES
@pytest.mark.parametrize("page_tokens", [16, 256])
@pytest.mark.parametrize("fault", [*FAULTS, *PAGED_FAULTS])
def test_a_kernel_that_is_wrong_is_not_used_and_the_fallback_says_so(monkeypatch, fault, page_tokens, dtype) -> None:
    collector = Collector()
    use(monkeypatch, varlen.wrong(fault))
    kind = chosen(KINDS, Shape(page_tokens, 2, 3, 32, dtype, CPU))
    reported = collector.take()
    assert {fallback.kind for fallback in reported} == {"attention"}
    assert "VariedLengthPageCache is wrong: it is off by" in reported[0].reason
    if fault in PAGED_FAULTS:
        assert kind is GatheredPageCache and len(reported) == 1, "which gathers keys before it calls"
    else:
        assert kind is PageCache and "GatheredPageCache is wrong" in reported[1].reason
        assert "in plain torch, sequence by sequence" in reported[-1].reason


@pytest.mark.parametrize("error", [ImportError, TypeError, RuntimeError, ValueError])
def test_a_way_that_does_not_run_here_leaves_the_next_silently_and_plain_torch_with_a_report(
    monkeypatch, error
) -> None:
    @wraps(varlen.varlen_attn)
    def refuses(*given: Any, **options: Any) -> Any:
        if error is not ValueError or "block_table" in options:
            raise error("not here")
        return varlen.varlen_attn(*given, **options)

    collector = Collector()
    use(monkeypatch, refuses)
    kind = chosen(KINDS, Shape(16, 2, 1, 8, torch.float32, CPU))
    if error is ValueError:
        assert (kind, collector.take()) == (GatheredPageCache, ())
    else:
        (fallback,) = collector.take()
        assert kind is PageCache and fallback.kind == "attention"
        assert "VariedLengthPageCache failed: not here; GatheredPageCache failed: not here" in fallback.reason


@pytest.mark.parametrize("row", [0, -1])
def test_compiled_loops_that_are_wrong_in_a_row_are_not_used(monkeypatch, row) -> None:
    attend = CompiledPageCache.attend

    def spoilt(*given: Any) -> Any:
        out = attend(*given)
        out[row, 0, 0] += 0.001
        return out

    monkeypatch.setattr(CompiledPageCache, "attend", spoilt)
    assert type(page_cache(2, 3, Shape(PAGE, 2, 1, 8, torch.float32, CPU))) is PageCache


def test_where_even_plain_torch_is_wrong_the_engine_does_not_start(monkeypatch) -> None:
    attend = PageCache.attend

    def spoilt(cache: PageCache, layer: int, batch: Any, q_THD: Any, scale: float) -> Any:
        return attend(cache, layer, batch, q_THD, scale) * (1 if q_THD.dtype == torch.float32 else float("nan"))

    monkeypatch.setattr(PageCache, "attend", spoilt)
    with pytest.raises(PliantError, match=r"bfloat16 is wrong on cpu: it is off by nan.*Use another device"):
        page_cache(2, 3, Shape(PAGE, 2, 1, 8, torch.bfloat16, CPU))
