"""Token merging against a slow reference: the steps of ToMe (Bolya et al. 2023, section 3 and appendix D) in plain loops.

Knows pliant/tokens/merge.py and numpy; measures no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from pliant.tokens.merge import match, merge, merged_count

Array = NDArray[np.float64]

INVARIANTS = (
    "sizes sum to n",
    "weighted sums are conserved",
    "the class token survives unmerged",
    "at most half of the tokens go",
    "equal to the reference",
)


def reference(x_ND: Array, size_N: Array, key_NE: Array, wanted: int) -> tuple[Array, Array]:
    """One image, one layer: tokens and their sizes after merging, kept even tokens first, then all odd ones.

    1. Tokens are dealt alternately into two sets. 2. Each token of the first set draws one edge, to its most similar token
    of the second (cosine of the keys). 3. The `wanted` most similar edges are kept, at most half of the tokens. 4. Tokens
    that are still joined are averaged, weighted by size. The class token, number 0, draws no edge.
    """
    first, second = list(range(0, len(x_ND), 2)), list(range(1, len(x_ND), 2))
    edges = []
    for token in first[1:]:
        similar = {other: _cosine(key_NE[token], key_NE[other]) for other in second}
        if similar:
            other = max(second, key=lambda j: similar[j])
            edges.append((similar[other], token, other))
    most = (len(x_ND) - 1) // 2
    joined = {token: other for _, token, other in sorted(edges, reverse=True)[: min(wanted, most)]}
    tokens, sizes = [x_ND[i] for i in first if i not in joined], [size_N[i] for i in first if i not in joined]
    for other in second:
        group = [other, *(token for token in first if joined.get(token) == other)]
        total = sum(size_N[i] for i in group)
        tokens.append(sum(x_ND[i] * size_N[i] for i in group) / total)
        sizes.append(total)
    return np.array(tokens), np.array(sizes)


def _cosine(one: Array, other: Array) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


@dataclass(frozen=True, slots=True)
class Checked:
    """In how many of `cases` each invariant held."""

    cases: int
    held: Mapping[str, int]

    @property
    def share(self) -> float:
        """Of all checks of all invariants."""
        return sum(self.held.values()) / (self.cases * len(self.held))


def check(cases: int = 40, seed: int = 0) -> Checked:
    """Draw shapes and merge counts, merge layer after layer until nothing is left to merge, check every layer."""
    rng = np.random.default_rng(seed)
    held = dict.fromkeys(INVARIANTS, 0)
    for _ in range(cases):
        tokens, width = int(rng.integers(3, 80)), int(rng.integers(1, 40))
        found = _layers(rng.normal(size=(tokens, width)), int(rng.integers(1, 40)), rng)
        for name in INVARIANTS:
            held[name] += all(layer[name] for layer in found)
    return Checked(cases, held)


def _layers(x_ND: Array, wanted: int, rng: np.random.Generator) -> list[dict[str, bool]]:
    size_N, found = np.ones(len(x_ND)), []
    while merged_count(len(x_ND), wanted) > 0:
        key_NE = rng.normal(size=(len(x_ND), 16))
        after_ND, sizes = fast(x_ND, size_N, key_NE, wanted)
        found.append(judge((x_ND, size_N), (after_ND, sizes), reference(x_ND, size_N, key_NE, wanted)))
        x_ND, size_N = after_ND, sizes
    return found


def fast(x_ND: Array, size_N: Array, key_NE: Array, wanted: int) -> tuple[Array, Array]:
    """The same through pliant/tokens/merge.py, in float32."""
    x_1ND, size_1N1, key_1NE = (torch.tensor(a, dtype=torch.float32)[None] for a in (x_ND, size_N[:, None], key_NE))
    out, sizes = merge(x_1ND, size_1N1, match(key_1NE, merged_count(len(x_ND), wanted)))
    return out[0].double().numpy(), sizes[0, :, 0].double().numpy()


def judge(
    before: tuple[Array, Array], after: tuple[Array, Array], expected: tuple[Array, Array], tolerance: float = 1e-5
) -> dict[str, bool]:
    """Which invariants one layer kept. Each argument: tokens [N, D] and sizes [N]."""
    (x, size), (y, sizes) = before, after
    gone = len(x) - len(y)
    same = y.shape == expected[0].shape and np.allclose(y, expected[0], atol=tolerance)
    sums, summed = (x * size[:, None]).sum(0), (y * sizes[:, None]).sum(0)
    kept = bool(np.allclose(y[0], x[0], atol=tolerance)) and sizes[0] == size[0]
    values = (
        sizes.sum() == size.sum(),
        np.allclose(sums, summed, atol=tolerance * len(x)),
        kept,
        2 * gone <= len(x) - 1,
        same and np.array_equal(sizes, expected[1]),
    )
    return dict(zip(INVARIANTS, map(bool, values), strict=True))
