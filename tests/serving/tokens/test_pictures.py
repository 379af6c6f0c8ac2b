"""Pictures are looked at only where that is counted, and their statistics say what blur and noise do."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.serving.tokens.endpoint import EVERY, LINES, Pictures, statistics


def test_one_picture_of_four_is_looked_at():
    pictures = Pictures()
    looks = [[each.stream for each in pictures.readings("pets", np.zeros((8, 8, 3), np.uint8))] for _ in range(8)]
    assert looks == ([["brightness of pets", "sharpness of pets"]] + [[]] * (EVERY - 1)) * 2


@pytest.mark.parametrize("size", [8, 64, 127, 128, 224, 400])
def test_a_sample_of_whole_rows_and_columns_has_the_statistics_of_the_picture(size):
    rng = np.random.default_rng(size)
    waves_HW = 120 + 60 * np.sin(np.arange(size) / 3)[:, None] * np.cos(np.arange(size) / 5)
    green_HW = (waves_HW + rng.uniform(-8, 8, (size, size))).astype(np.uint8)
    pixels_HW3 = np.stack([np.zeros_like(green_HW), green_HW, green_HW], axis=2)
    differences = [np.abs(np.diff(green_HW.astype(float), axis=axis)).mean() for axis in (0, 1)]
    near = {"rel": 0.03} if size >= 2 * LINES else {}
    assert statistics(pixels_HW3) == pytest.approx((green_HW.mean(), np.mean(differences)), **near)


def test_blur_lowers_and_noise_raises_the_difference_of_neighbours():
    rng = np.random.default_rng(0)
    sharp_HW3 = rng.integers(60, 180, (224, 224, 3))
    blurred_HW3 = (sharp_HW3 + np.roll(sharp_HW3, 1, axis=0) + np.roll(sharp_HW3, 1, axis=1)) // 3
    noisy_HW3 = sharp_HW3 + rng.integers(-40, 40, sharp_HW3.shape)
    blurred, sharp, noisy = (statistics(each.astype(np.uint8))[1] for each in (blurred_HW3, sharp_HW3, noisy_HW3))
    assert blurred < 0.7 * sharp and noisy > 1.05 * sharp
