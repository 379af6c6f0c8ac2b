"""Random changes of training pictures."""

from __future__ import annotations

import pytest
import torch

from pliant.training.augment import AUGMENTATIONS, augmentation, crops

RAMP = torch.linspace(0, 1, 16).expand(64, 3, 16, 16)  # brighter from left to right


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_each_sample_is_moved_its_own_way_and_keeps_its_shape(name):
    torch.manual_seed(0)
    images = torch.rand(1, 3, 16, 16).expand(4, -1, -1, -1)
    moved = augmentation(name)(images)
    assert moved.shape == images.shape
    assert not torch.allclose(moved[0], moved[1])


def test_a_crop_shows_at_least_its_share_of_the_width_and_nothing_from_outside():
    torch.manual_seed(0)
    moved = crops(RAMP, min_share=0.6)
    assert moved.min() >= 0
    assert moved.max() <= 1
    shown = (moved[..., 0] - moved[..., -1]).abs().mean(dim=(1, 2))
    assert shown.min() > 0.5
    assert shown.max() > 0.9
