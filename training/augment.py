"""Random changes of training pictures, so that a net does not rely on position, scale or orientation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

AUGMENTATIONS = ("jitter", "crops", "none")

Change = Callable[[Tensor], Tensor]
"""From pictures [B, C, H, W] to changed ones of the same shape."""


def augmentation(name: str) -> Change:
    """Return the change of this name: "jitter" for drawings that must not be mirrored, "crops" for photographs, "none"."""
    match name:
        case "jitter":
            return jitter
        case "crops":
            return crops
    return lambda images_BCHW: images_BCHW


def jitter(images_BCHW: Tensor) -> Tensor:
    """Rotate, shift and scale each picture a little, at random."""
    count, device = len(images_BCHW), images_BCHW.device
    angle = (torch.rand(count, device=device) - 0.5) * 0.4
    scale = 1 + (torch.rand(count, device=device) - 0.5) * 0.2
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0] = theta[:, 1, 1] = scale * angle.cos()
    theta[:, 1, 0] = scale * angle.sin()
    theta[:, 0, 1] = -theta[:, 1, 0]
    theta[:, :, 2] = (torch.rand(count, 2, device=device) - 0.5) * 0.3
    grid = affine_grid(theta, list(images_BCHW.shape), align_corners=False)
    return grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)


def crops(images_BCHW: Tensor, min_share: float = 0.6) -> Tensor:
    """Take a random window of each picture, `min_share` to all of its sides, at full size; half are mirrored."""
    count, device = len(images_BCHW), images_BCHW.device
    side = min_share + (1 - min_share) * torch.rand(count, device=device)
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0] = side * (torch.randint(2, (count,), device=device) * 2 - 1)
    theta[:, 1, 1] = side
    theta[:, :, 2] = (1 - side)[:, None] * (torch.rand(count, 2, device=device) * 2 - 1)
    grid = affine_grid(theta, list(images_BCHW.shape), align_corners=False)
    return grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)
