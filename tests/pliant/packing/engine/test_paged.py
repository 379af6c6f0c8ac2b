"""One interface to the caches of two versions of transformers, which stand here as plain objects."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pliant.errors import InputError
from pliant.packing.engine.paged import PagedCache

TABLE = {"a": [4, 1], "b": [2], "c": []}


class Old:
    """Blocks, as in version 5.17: 5 of 6 values, and 2 of padding."""

    def __init__(self, windows: int = 0, groups: int = 1) -> None:
        self.num_blocks, self.num_sliding_attention_groups = 5, windows
        self.group_cache_managers = [SimpleNamespace(block_table=TABLE) for _ in range(groups)]
        self.key_cache, self.value_cache = ([torch.full((7, 2, 3), n)] for n in (1.0, 2.0))
        self.freed, self.allocated = [], []

    def get_num_free_blocks(self):
        return 2

    def allocate_blocks(self, count, request_id, allocated):
        self.allocated.append((count, request_id, allocated))
        return count if count <= 2 else None

    def free_blocks(self, request_id):
        self.freed.append(request_id)


class Pool:
    def __init__(self, sectors, groups, num_reserved_sectors):
        self.sizes, self.blocks = (sectors, groups, num_reserved_sectors), {}
        self.num_free_sectors = 3

    def count_free_blocks(self, index):
        return {7: 1}[index]

    def set_blocks_per_sector(self, index, blocks):
        self.blocks[index] = blocks


class New:
    """Sectors of 4 blocks, as in version 5.23."""

    def __init__(self, layer_type: str = "full_attention", groups: int = 1) -> None:
        view = torch.zeros(5, 6)
        group = SimpleNamespace(
            block_table=TABLE, layer_type=layer_type, blocks_per_sector=4, index=7, _copy_view=view, bytes_per_block=6
        )
        self.cache_allocators = dict.fromkeys(range(groups), group)
        self.num_blocks, self.pool = 20, Pool(9, 1, 0)
        self.cache_tensor, self.bytes_per_sector = torch.zeros(1, dtype=torch.uint8), 24
        self.freed = []

    def can_store_request_tokens(self, state, tokens):
        return tokens <= 3

    def free_blocks(self, request_id):
        self.freed.append(request_id)


def state() -> SimpleNamespace:
    return SimpleNamespace(request_id="a", allocated_blocks=3)


@pytest.mark.parametrize(("cache", "pages", "free"), [(Old(), 5, 2), (New(), 20, 3 * 4 + 1)])
def test_pages_are_counted_alike(cache, pages, free):
    paged = PagedCache(cache)
    assert (paged.pages, paged.used, paged.free) == (pages, 3, free)
    assert paged.table is TABLE


@pytest.mark.parametrize(
    "cache", [Old(windows=1), Old(groups=2), New("sliding_attention"), New(groups=2)], ids=lambda cache: "windows"
)
def test_a_model_that_attends_to_windows_is_refused(cache):
    with pytest.raises(InputError, match="the model's attention is limited to a window in some layers"):
        PagedCache(cache)


def test_views_have_a_row_a_page():
    cache = Old()
    views = PagedCache(cache).views()
    assert [tuple(view.shape) for view in views] == [(7, 6), (7, 6)]
    assert [view.unique().tolist() for view in views] == [[1.0], [2.0]]
    views[0][4] = 9  # it is the cache's own memory
    assert (cache.key_cache[0][4] == 9).all() and (cache.key_cache[0][3] == 1).all()
    (view,) = PagedCache(new := New()).views()
    assert view is new.cache_allocators[0]._copy_view


def test_pages_are_allocated_whole_or_not_at_all():
    cache, request = Old(), state()
    paged = PagedCache(cache)
    assert paged.allocate(request, 30, 2) is True and request.allocated_blocks == 5
    assert paged.allocate(request, 50, 3) is False and request.allocated_blocks == 5
    assert cache.allocated == [(2, "a", 3), (3, "a", 5)]
    assert PagedCache(New()).allocate(request, 3, 1) is True
    assert PagedCache(New()).allocate(request, 4, 1) is False


@pytest.mark.parametrize("cache", [Old(), New()])
def test_a_request_gives_all_its_pages_back(cache):
    request = state()
    PagedCache(cache).give_back(request)
    assert cache.freed == ["a"] and request.allocated_blocks == 0


@pytest.mark.parametrize(("pages", "sectors"), [(1, 1), (8, 2), (9, 3)])
def test_the_engines_own_swapping_gets_a_pool_of_whole_sectors_that_hold_the_pages(pages, sectors):
    manager = SimpleNamespace(_cpu_pool=None, _cpu_views={})
    PagedCache(New()).unpinned_pool(manager, pages)
    assert manager._cpu_pool.sizes == (sectors, 1, 0) and manager._cpu_pool.blocks == {7: 4}
    assert manager._cpu_views["full_attention"].shape == (sectors * 4, 6)


def test_the_older_version_does_not_swap():
    manager = SimpleNamespace(_cpu_pool=None)
    PagedCache(Old()).unpinned_pool(manager, 4)
    assert manager._cpu_pool is None
