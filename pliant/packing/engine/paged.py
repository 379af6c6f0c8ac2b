"""The paged cache inside transformers' continuous batching: blocks in version 5.17, sectors of blocks in 5.23.

Like adapter.py it knows that engine's internals, but imports nothing of it. A page here is a block there: the keys and
values of `page_tokens` tokens of one sequence in all layers.
"""

from __future__ import annotations

from typing import Any

from pliant.errors import InputError


class PagedCache:
    """One interface to both versions of the cache.

    Raises `InputError` if some layer attends to a window only, since its pages are of another kind.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        self._sectors = hasattr(cache, "cache_allocators")
        groups = list(cache.cache_allocators.values()) if self._sectors else cache.group_cache_managers
        windows = groups[0].layer_type != "full_attention" if self._sectors else cache.num_sliding_attention_groups
        if len(groups) != 1 or windows:
            raise InputError("the model's attention", "limited to a window in some layers", "full in every layer")
        self._group = groups[0]
        self.table: dict[str, list[int]] = self._group.block_table  # pages of each request, in order

    @property
    def pages(self) -> int:
        return int(self._cache.num_blocks)

    @property
    def used(self) -> int:
        return sum(len(pages) for pages in self.table.values())

    @property
    def free(self) -> int:
        if not self._sectors:
            return int(self._cache.get_num_free_blocks())
        pool, group = self._cache.pool, self._group
        return int(pool.num_free_sectors * group.blocks_per_sector + pool.count_free_blocks(group.index))

    def views(self) -> list[Any]:
        """Return the cache's tensors; their first axis is pages, numbered as in `table`."""
        if self._sectors:
            return [self._group._copy_view]
        blocks = self._cache.num_blocks + 2  # the last two are padding
        return [tensor.view(blocks, -1) for tensor in (*self._cache.key_cache, *self._cache.value_cache)]

    def allocate(self, state: Any, tokens: int, missing: int) -> bool:
        """Allocate the `missing` pages for `tokens` more tokens of a request. Returns False if they are not free."""
        if self._sectors:
            return bool(self._cache.can_store_request_tokens(state, tokens))
        allocated = self._cache.allocate_blocks(missing, state.request_id, state.allocated_blocks)
        state.allocated_blocks += allocated or 0
        return allocated is not None

    def give_back(self, state: Any) -> None:
        """Free all pages of a request."""
        self._cache.free_blocks(state.request_id)
        state.allocated_blocks = 0

    def unpinned_pool(self, manager: Any, pages: int) -> None:
        """Give the engine's own swapping a pool of `pages` pages on a machine without an accelerator.

        Its own pool would be of pinned memory, which fails there. The older version does not swap then, but recomputes.
        """
        if not self._sectors:
            return
        cache, group = self._cache, self._group
        sectors = -(-pages // group.blocks_per_sector)
        manager._cpu_pool = type(cache.pool)(sectors, 1, num_reserved_sectors=0)
        manager._cpu_pool.set_blocks_per_sector(group.index, group.blocks_per_sector)
        kept = cache.cache_tensor.new_empty(sectors * cache.bytes_per_sector)
        manager._cpu_views[group.layer_type] = kept.view(-1, group.bytes_per_block)
