"""Pictures kept in memory are the pictures that were decoded, each decoded once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pliant.models.image import MAX_PIXELS, decode
from pliant.training.pictures import AUGMENTATIONS, ArrayImages, HeldImages, Images, JoinedImages, augmentation, crops

RAMP = torch.linspace(0, 1, 16).expand(64, 3, 16, 16)  # brighter from left to right

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


class CountedImages:
    """Counts how often each picture is decoded."""

    def __init__(self, images: Images) -> None:
        self._images, self.counts = images, Counter()

    def __len__(self) -> int:
        return len(self._images)

    def file(self, index):
        return self._images.file(index)

    def batch(self, index, size):
        self.counts.update(index.tolist())
        return self._images.batch(index, size)


@given(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=6), min_size=1, max_size=6))
def test_any_batches_are_the_same_with_and_without_holding_and_each_picture_is_decoded_once(batches):
    counted = CountedImages(ArrayImages(PIXELS))
    held = HeldImages(counted)
    for batch in batches:
        index = np.array(batch)
        assert np.array_equal(held.batch(index, 4), ArrayImages(PIXELS).batch(index, 4))
    assert set(counted.counts) == {i for batch in batches for i in batch}
    assert set(counted.counts.values()) == {1}


@given(st.lists(st.integers(0, 16), min_size=1, max_size=12))
def test_joined_pictures_are_the_first_ones_and_then_the_second(index):
    more = tuple(PIXELS[number, : 4 + number] for number in range(5))  # of different sizes
    joined = JoinedImages(ArrayImages(PIXELS), ArrayImages(more))
    assert len(joined) == 17
    for row, pixels in zip(index, joined.batch(np.array(index), 4), strict=True):
        alone = ArrayImages(PIXELS).file(row) if row < 12 else ArrayImages(more).file(row - 12)
        assert np.array_equal(pixels, decode(alone, 4, MAX_PIXELS))
        assert joined.file(row) == alone


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
