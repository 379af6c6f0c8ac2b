"""Operating points of a frozen vision transformer: its picture's size, the blocks that run, what merges, what a head reads.

A point is cheaper than the plain net in five ways that add up: a smaller picture has fewer tokens from the start; squares of
four patches may be averaged before the first block; the last blocks may be left out; tokens merge in a few blocks (ToMe,
Bolya et al. 2023, section 3, which merges in every block); and a head that reads the class token alone needs no other token
of the last block. Which of them pays is measured on each device: this file only says what there is to measure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np

from pliant.errors import InputError

CLASS, MEAN, BOTH = READS = "class", "mean", "both"
"""What a head may read: the class token, the mean of the patches, or both, the class token in front."""

Merges = tuple[tuple[int, int], ...]
FIRST_POINT = 101
"""From this number on settings are operating points; below they are gammas."""

MOST = 8
"""Settings that a profile offers, at most, gamma 0 among them where it is worth it."""

LITTLE = 0.003
"""Share of what all settings on the hulls are worth that may be lost by leaving some out."""

GOALS = (0.68, 0.52)
"""Shares of their blocks' arithmetic that candidates merge down to: 10 and 15 tokens merged in each of 12 blocks."""

SIZES = (1, 5 / 7, 4 / 7, 1 / 2)
"""Sizes of candidates as shares of the net's own: 224, 160, 128 and 112 pixels."""

MERGING = (1 / 12, 3 / 12, 5 / 12, 7 / 12)
"""Depths of the blocks in which candidates merge."""

ALIGNED = 8
"""Tokens left after a candidate's merge are a multiple of this: attention pads masks of other lengths on a GPU."""


@dataclass(frozen=True, slots=True)
class Dimensions:
    """What the arithmetic of a plain vision transformer depends on."""

    size: int  # pixels of a picture's side
    patch: int  # pixels of a patch's side
    width: int  # of a token
    hidden: int  # width inside an MLP
    depth: int  # blocks

    def tokens(self, size: int) -> int:
        """Return the tokens of a picture whose side has `size` pixels, the class token among them."""
        return 1 + (size // self.patch) ** 2


@dataclass(frozen=True, slots=True)
class Point:
    """How a forward runs. Raises `InputError`, by the field's name, for a point that no net could run."""

    size: int  # pixels of the picture's side
    blocks: int  # that run; the final norm follows the last of them
    merges: Merges = ()  # (block from 0, tokens merged away in it), in the order of blocks
    reads: str = CLASS  # one of READS
    pooled: bool = False  # whether each square of four patches is averaged before the first block

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InputError("size", self.size, "at least 1 pixel")
        if self.blocks < 1:
            raise InputError("blocks", self.blocks, "at least 1")
        where = [block for block, _ in self.merges]
        if where != sorted(set(where)) or not set(where) <= set(range(self.blocks - 1)):
            raise InputError("merges", self.merges, f"in ascending blocks before the last of {self.blocks}")
        if any(count < 1 for _, count in self.merges):
            raise InputError("merges", self.merges, "of at least 1 token each")
        if self.reads not in READS:
            raise InputError("reads", self.reads, f"one of {', '.join(READS)}")

    def __str__(self) -> str:
        merged = f", {sum(count for _, count in self.merges)} tokens merged" if self.merges else ""
        pooled = ", patches averaged by fours" if self.pooled else ""
        return f"{self.size} px, {self.blocks} blocks{pooled}{merged}, reads {self.reads}"

    def check(self, net: Dimensions) -> None:
        """Raise `InputError`, by the field's name, where this net cannot run the point."""
        if self.size < net.patch or self.size % net.patch:
            raise InputError("size", self.size, f"a multiple of the patches' {net.patch} pixels")
        if self.blocks > net.depth:
            raise InputError("blocks", self.blocks, f"at most {net.depth}")
        if self.pooled and (side := self.size // net.patch) % 2:
            raise InputError("pooled", self.pooled, f"False for an odd number of patches in a row, {side}")
        tokens = self.tokens(net)
        for block, count in self.merges:
            if count > (most := (tokens - 1) // 2):
                limit = f"at most half of the patches, {most} of {tokens} tokens in block {block}"
                raise InputError("merges", self.merges, limit)
            tokens -= count

    def tokens(self, net: Dimensions) -> int:
        """Return the tokens that the first block sees."""
        tokens = net.tokens(self.size)
        return 1 + (tokens - 1) // 4 if self.pooled else tokens


def numbered(net: Dimensions, sizes: Sequence[int] | None = None) -> dict[int, Point]:
    """Return the candidates by number, in their order, without the one that gamma 0 is. Raises as `candidates`."""
    plain = Point(net.size, net.depth)
    points = (point for point in candidates(net, sizes) if point != plain)
    return dict(enumerate(points, FIRST_POINT))


def named(setting: int) -> str:
    """Return what people call a setting."""
    return f"point {setting}" if setting >= FIRST_POINT else f"gamma {setting}"


def forwards(points: Mapping[int, Point]) -> dict[Point, dict[int, Point]]:
    """Return the points by the forwards that they share, each the longest of its points, which reads both."""
    groups: dict[tuple[Point, Merges], dict[int, Point]] = defaultdict(dict)
    for number, point in points.items():
        groups[replace(point, blocks=1, merges=(), reads=BOTH), point.merges][number] = point
    return {
        replace(key, blocks=max(point.blocks for point in group.values()), merges=merges): group
        for (key, merges), group in groups.items()
    }


def kept(seconds: Mapping[int, float], shares: Sequence[Mapping[int, float]], most: int = MOST) -> list[int]:
    """Return the settings worth offering: at most so many of those on the hull of seconds and accuracy of some task.

    `seconds`: of a request, by setting, gamma 0 among them; `shares`: of each task, accuracies by setting. The hull begins
    at a request that is not answered. Where it has more, those stay without which most would be lost, over all tasks and
    all seconds a request, and so do of fewer those without which more than `LITTLE` would be: each makes plans slower.
    """
    chosen = {number for share in shares for number in _hull(seconds, share)}
    budgets = np.linspace(0.0, max(seconds.values()), 101)

    def worth(numbers: Set[int]) -> float:
        total = 0.0
        for share in shares:
            on = _hull({number: seconds[number] for number in numbers}, share)
            heights = np.interp(budgets, [0.0, *(seconds[n] for n in on)], [0.0, *(share[n] for n in on)])
            total += float(heights.mean())
        return total

    whole = worth(chosen)
    while len(chosen) > 1:
        spared = max(sorted(chosen), key=lambda number: worth(chosen - {number}))
        if len(chosen) <= most and worth(chosen - {spared}) < (1 - LITTLE) * whole:
            break
        chosen.remove(spared)
    return sorted(chosen)


def _hull(seconds: Mapping[int, float], share: Mapping[int, float]) -> list[int]:
    """Return the settings on the upper concave hull of all and (0, 0), by ascending seconds."""
    on, at, had = list[int](), 0.0, 0.0
    while better := [number for number in seconds if share[number] > had + 1e-12]:
        # The steepest step; where a slower setting is as steep, the larger step lies on the same line.
        best = max(better, key=lambda n: ((share[n] - had) / max(seconds[n] - at, 1e-12), seconds[n], -n))
        on.append(best)
        at, had = seconds[best], share[best]
    return on


def arithmetic(point: Point, net: Dimensions) -> float:
    """Return the multiplications of a forward over those of all blocks of the net at its own size (gamma 0).

    Patches, linear layers and attention count; pairing and averaging tokens, some 1% of a block a merge, do not.
    """
    plain = Point(net.size, net.depth, reads=BOTH)
    return _multiplications(point, net) / _multiplications(plain, net)


def _multiplications(point: Point, net: Dimensions) -> int:
    merges, tokens = dict(point.merges), point.tokens(net)
    total = (net.tokens(point.size) - 1) * 3 * net.patch**2 * net.width
    for block in range(point.blocks):
        left = tokens - merges.get(block, 0)
        # After the projections of all tokens, a head that reads the class token needs no other of the last block.
        query, left = (1, 1) if block == point.blocks - 1 and point.reads == CLASS else (tokens, left)
        total += net.width * (3 * net.width * tokens + 2 * query * tokens + net.width * query + 2 * net.hidden * left)
        tokens = left
    return total


def candidates(net: Dimensions, sizes: Sequence[int] | None = None) -> Iterator[Point]:
    """Yield the points worth measuring: sizes and ends, the largest size also merged and pooled, each by what heads read.

    `sizes`: pixels, multiples of the patches' side; None for the SIZES that the net has at least four patches at. Raises
    `InputError` for a size that the net cannot run.
    """
    if sizes is None:
        shares = {max(2, round(share * net.size / net.patch)) * net.patch for share in SIZES}
        sizes = sorted((size for size in shares if size <= net.size), reverse=True)
    ends = sorted({net.depth, max(1, 3 * net.depth // 4)}, reverse=True)
    for size in sizes:
        whole = Point(size, net.depth, reads=BOTH)
        whole.check(net)
        # Points of one size that merge alike share a forward, whatever their heads read and wherever they end.
        alike = [whole]
        if size == max(sizes):
            alike += [merged for goal in GOALS if (merged := merged_to(goal, whole, net, min(ends)))]
            alike += [replace(whole, pooled=True)] if size // net.patch % 2 == 0 else []
        yield from (replace(each, blocks=end, reads=reads) for each, end, reads in product(alike, ends, READS))


def merged_to(goal: float, plain: Point, net: Dimensions, end: int | None = None) -> Point | None:
    """Return the point that merges about as many tokens at each depth of MERGING, nearest to `goal` of the arithmetic.

    `goal` is a share of what the plain point would take if its head read all tokens. `end`: number of blocks before the
    last of which it merges, those of the point where None. None where no such point comes within 0.03 of the goal.
    """
    blocks = sorted({int(depth * net.depth) for depth in MERGING} & set(range((end or plain.blocks) - 1)))
    tokens, whole = plain.tokens(net), arithmetic(replace(plain, reads=BOTH), net)
    points = []
    for step in range(1, tokens // 2):
        left = [tokens] + [ALIGNED * round((tokens - step * (i + 1)) / ALIGNED) for i in range(len(blocks))]
        counts = [before - after for before, after in pairwise(left)]
        if all(0 < count <= (before - 1) // 2 for count, before in zip(counts, left, strict=False)):
            points.append(replace(plain, merges=tuple(zip(blocks, counts, strict=True))))
    nearest = min(points, key=lambda point: abs(arithmetic(point, net) / whole - goal), default=None)
    return nearest if nearest and abs(arithmetic(nearest, net) / whole - goal) <= 0.03 else None
