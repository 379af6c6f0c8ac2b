"""Which attention over pages is used: the fastest that runs and is right; one that is wrong is left out and reported."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
import torch

from pliant.errors import PliantError
from pliant.fallbacks import Collector
from pliant.packing.engine.page_attention import (
    Case,
    CompiledPageCache,
    GatheredPageCache,
    PageCache,
    VariedLengthPageCache,
    check,
    chosen,
    page_cache,
)
from tests.fixtures.packing import varlen
from tests.fixtures.packing.varlen import FAULTS, PAGED_FAULTS

CPU = torch.device("cpu")
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
    cache = page_cache(2, 3, Case(PAGE, 2, 2, width, dtype, torch.device(device)))
    assert type(cache) is kind
    assert (cache.pages, cache.pairs, bool(cache.tensor_L2CPGD.any())) == (3, 0, False), "what was tried left nothing"


@DTYPES
@pytest.mark.parametrize("page_tokens", [1, 16, 256])
@pytest.mark.parametrize("heads", [(1, 1), (2, 3)])
def test_right_attention_passes_in_every_precision_and_size_of_page(monkeypatch, dtype, page_tokens, heads) -> None:
    use(monkeypatch, varlen.varlen_attn)
    for kind in (*KINDS, PageCache):
        check(kind, Case(page_tokens, *heads, 32, dtype, CPU))


@DTYPES
@pytest.mark.parametrize("page_tokens", [16, 256])
@pytest.mark.parametrize("fault", [*FAULTS, *PAGED_FAULTS])
def test_a_kernel_that_is_wrong_is_not_used_and_the_fallback_says_so(monkeypatch, fault, page_tokens, dtype) -> None:
    collector = Collector()
    use(monkeypatch, varlen.wrong(fault))
    kind = chosen(KINDS, Case(page_tokens, 2, 3, 32, dtype, CPU))
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
    kind = chosen(KINDS, Case(16, 2, 1, 8, torch.float32, CPU))
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
    assert type(page_cache(2, 3, Case(PAGE, 2, 1, 8, torch.float32, CPU))) is PageCache


def test_where_even_plain_torch_is_wrong_the_engine_does_not_start(monkeypatch) -> None:
    attend = PageCache.attend

    def spoilt(cache: PageCache, layer: int, batch: Any, q_THD: Any, scale: float) -> Any:
        return attend(cache, layer, batch, q_THD, scale) * (1 if q_THD.dtype == torch.float32 else float("nan"))

    monkeypatch.setattr(PageCache, "attend", spoilt)
    with pytest.raises(PliantError, match=r"bfloat16 is wrong on cpu: it is off by nan.*Use another device"):
        page_cache(2, 3, Case(PAGE, 2, 1, 8, torch.bfloat16, CPU))
