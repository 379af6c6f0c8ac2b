"""The model alone: images/s per (gamma, batch) as a ratio to plain timm, and of points as a ratio to gamma 0.

(What merging must keep is tested.) Ours is the runtime's whole `run` (packing, normalising, prompts, heads, softmax);
plain is timm's `forward_features` in float32 on tensors that are ready, as are those of points. All take turns, so a busy
machine slows all; ratios are medians over rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import seconds_of
from pliant.benchmarks.tokens.demo import champion
from pliant.device import threads as torch_threads
from pliant.models.execution import can_pack
from pliant.tokens.artifact import GAMMAS, Backbone, Task
from pliant.tokens.model import AdaptiveViT, create_vit, pack
from pliant.tokens.points import BOTH, MEAN, Point, arithmetic, candidates
from pliant.tokens.runtime import Payload, TokensRuntime, load_model, normaliser

BATCHES = (1, 2, 4, 8, 16, 32, 64)
ROUNDS = (3, 15)  # at least and at most
POINT_ROUNDS = {1: 15, 8: 5}  # batch -> rounds; full takes three times as many


def kernels_of_vit(context: Context) -> Measured:
    """Measure the champion's model, and points of a ViT-S.

    Quick takes at most about 50 seconds for the first, whatever the backbone, and 35 for the second (on AVX-512); full
    about seven minutes. Batches too slow are left out.
    """
    bundle, rows = champion(context.full), list[dict[str, Any]]()
    with context.stage("kernels") as progress, torch_threads(1), torch.inference_mode():
        pair = _Pair(bundle.backbone, bundle.tasks)
        difference = pair.difference()
        for number, batch in enumerate(BATCHES):
            timed = pair.rows(batch, (280 if context.full else 40) / len(BATCHES))
            progress(number + 1, len(BATCHES))
            if not timed:
                break
            rows += timed
        point_targets, points = _points(3 if context.full else 1)
    median = float(np.median([row["ratio"] for row in rows if row["gamma"] == 0]))
    targets = [
        Target("gamma 0 against plain timm, images/s, median over batches", median, ">=", 0.97, "x"),
        Target("gamma 0 against plain timm, largest difference of features", difference, "<=", 1e-5),
    ]
    return targets + point_targets, {
        "rows": rows,
        "points": points,
        "difference": difference,
        "threads": 1,
        "backbone": bundle.backbone.source,
    }


def _points(times: int) -> tuple[list[Target], list[dict[str, Any]]]:
    """Compare points with gamma 0 and with merging in every block: a ViT-S of random weights, 197 tokens, packed.

    Of what candidates offer, those above 0.6 of the arithmetic run: no other can be the slowest. `ratio`: median over
    rounds of gamma 0's seconds over the point's.
    """
    torch.manual_seed(0)
    model = AdaptiveViT(create_vit("vit_small_patch16_224", {})).eval().requires_grad_(False)
    if can_pack():
        pack(model)
    net, rows = model.dimensions, list[dict[str, Any]]()
    every = Point(net.size, net.depth, tuple((block, 15) for block in range(net.depth - 1)), BOTH)
    half = next(point for point in candidates(net) if point.merges and arithmetic(point, net) < 0.55)
    offered = [point for point in candidates(net) if arithmetic(point, net) > 0.6 and point.reads != MEAN]
    for batch, rounds in POINT_ROUNDS.items():
        image_BCHW = torch.randn(batch, 3, net.size, net.size)
        calls = {
            "gamma 0": (1.0, partial(model, image_BCHW)),
            "gamma -15": (arithmetic(every, net), partial(model, image_BCHW, 15)),
        }
        for point in (half, *offered):
            calls[str(point)] = (
                arithmetic(point, net),
                partial(model.at, point, image_BCHW[..., : point.size, : point.size]),
            )
        timed = [[seconds_of(call) for _, call in calls.values()] for _ in range(1 + times * rounds)][1:]
        ratios = np.median(np.array(timed)[:, :1] / timed, axis=0)
        rows += [
            {"setting": name, "batch": batch, "arithmetic": share, "ratio": float(ratio)}
            for (name, (share, _)), ratio in zip(calls.items(), ratios, strict=True)
        ]
    at = {(row["setting"], row["batch"]): row["ratio"] for row in rows}
    speed, slowest = at[str(half), 8], max(1 / at[str(point), batch] for point in offered for batch in POINT_ROUNDS)
    share = f"ViT-S, 197 tokens, batch 8, {arithmetic(half, net):.2f} of the arithmetic"
    return [
        Target(f"{share}: images/s over gamma 0", speed, ">=", 1.8, "x"),
        Target(f"{share}: images/s over gamma -15", speed / at["gamma -15", 8], ">=", 1.0, "x"),
        Target("ViT-S, 197 tokens, batch 1 and 8: the slowest point's seconds over gamma 0", slowest, "<=", 1.03, "x"),
    ], rows


class _Pair:
    """Plain timm and the runtime on the same pictures."""

    def __init__(self, backbone: Backbone, tasks: Sequence[Task]) -> None:
        self._vit = load_model(backbone).vit
        self._normalise = normaliser(backbone, "cpu")
        self._runtime = TokensRuntime(backbone, tasks[0].backbone, tasks)
        self._names = [task.name for task in tasks]
        self._gammas = [gamma for gamma in GAMMAS if all(max(gamma, 0) in task.heads for task in tasks)]
        shape = (BATCHES[-1], backbone.image_size, backbone.image_size, 3)
        self._pixel_BHWC = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)

    def difference(self) -> float:
        some_BHWC = self._pixel_BHWC[:8]
        plain_BD = self._vit.forward_features(self._normalise(torch.from_numpy(some_BHWC)))[:, 0].numpy()
        return float(np.abs(self._runtime.features(some_BHWC) - plain_BD).max())

    def rows(self, batch: int, budget: float) -> list[dict[str, Any]]:
        """Return no rows where even the fewest rounds would take more than twice the budget (seconds).

        `ratio`: median over rounds of plain seconds over ours at the same batch.
        """
        image_BCHW = self._normalise(torch.from_numpy(self._pixel_BHWC[:batch])).contiguous()
        payloads = [Payload(self._names[i % len(self._names)], self._pixel_BHWC[i]) for i in range(batch)]
        calls: list[Callable[[], object]] = [lambda: self._vit.forward_features(image_BCHW)]
        calls += [partial(self._runtime.run, gamma, payloads) for gamma in self._gammas]
        once = sum(map(seconds_of, calls))  # also the warm-up
        least, most = ROUNDS
        if least * once > 2 * budget:
            return []
        rounds = min(most, max(least, int(budget / once)))
        seconds_RC = np.array([[seconds_of(call) for call in calls] for _ in range(rounds)])
        plain_R, ours_RG = seconds_RC[:, 0], seconds_RC[:, 1:]
        ratio_G, ours_G = np.median(plain_R[:, None] / ours_RG, axis=0), np.median(ours_RG, axis=0)
        of_batch = {"batch": batch, "plain_images_per_second": batch / float(np.median(plain_R)), "rounds": rounds}
        return [
            {"gamma": gamma, **of_batch, "images_per_second": batch / float(seconds), "ratio": float(ratio)}
            for gamma, seconds, ratio in zip(self._gammas, ours_G, ratio_G, strict=True)
        ]
