"""Random changes of training pictures: what a net may not rely on. Knows no data and no net."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

AUGMENTATIONS = ("jitter", "crops", "none")

Change = Callable[[Tensor], Tensor]


def augmentation(name: str) -> Change:
    """By name: jitter for drawings that must not be mirrored, crops for photographs, none. [B, C, H, W] to the same."""
    match name:
        case "jitter":
            return jitter
        case "crops":
            return crops
    return lambda images_BCHW: images_BCHW


def jitter(images_BCHW: Tensor) -> Tensor:
    """Small random rotations, shifts and scales, one a sample."""
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


def crops(images_BCHW: Tensor, least: float = 0.6) -> Tensor:
    """A random window of each picture, `least` to all of its height and width, brought to full size; half are mirrored."""
    count, device = len(images_BCHW), images_BCHW.device
    side = least + (1 - least) * torch.rand(count, device=device)
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0] = side * (torch.randint(2, (count,), device=device) * 2 - 1)
    theta[:, 1, 1] = side
    theta[:, :, 2] = (1 - side)[:, None] * (torch.rand(count, 2, device=device) * 2 - 1)
    grid = affine_grid(theta, list(images_BCHW.shape), align_corners=False)
    return grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)
