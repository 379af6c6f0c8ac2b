"""What the watch counts of answers of tokens, and that pictures are looked at only where that is counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pliant.serving.arms import to_champion_as_copy
from pliant.serving.tokens import watched
from pliant.serving.tokens.watched import EVERY, TokensWatch, statistics
from pliant.serving.watch.seen import Seen

SHARES = {"cat": 0.7, "dog": 0.3}
PIXELS_HW3 = np.full((8, 8, 3), 40, np.uint8)


@pytest.fixture
def looks(monkeypatch) -> list[int]:
    """One entry for each picture that is looked at."""
    taken: list[int] = []

    def noted(pixels_HW3):
        taken.append(1)
        return statistics(pixels_HW3)

    monkeypatch.setattr(watched, "statistics", noted)
    return taken


def answered(times: int, seen: Seen) -> Callable[[], None]:
    watch = TokensWatch(seen, 100)
    return lambda: [watch.count("pets", SHARES, "cat", PIXELS_HW3) for _ in range(times)] and None


def test_every_answer_is_counted_and_one_picture_of_four_looked_at(looks):
    seen = Seen()
    answered(4 * EVERY, seen)()
    counts = seen.take()[-1]
    assert counts["class of pets"] == [4 * EVERY, 0]
    assert {name: sum(each) for name, each in counts.items()} == {
        "class of pets": 4 * EVERY,
        "confidence of pets": 4 * EVERY,
        "brightness of pets": 4,
        "sharpness of pets": 4,
    }
    assert len(looks) == 4


def test_where_nothing_is_watched_no_picture_is_looked_at(looks):
    seen = Seen()
    seen.counting = False
    answered(4 * EVERY, seen)()
    assert looks == [] and seen.take() == {}


def test_no_picture_of_a_copy_is_looked_at(looks):
    seen = Seen()
    with to_champion_as_copy():
        answered(4 * EVERY, seen)()
    assert looks == [] and seen.take() == {}


@pytest.mark.parametrize("size", [8, 64, 127, 128, 224, 400])
def test_a_sample_of_whole_rows_and_columns_has_the_statistics_of_the_picture(size):
    rng = np.random.default_rng(size)
    waves_HW = 120 + 60 * np.sin(np.arange(size) / 3)[:, None] * np.cos(np.arange(size) / 5)
    green_HW = (waves_HW + rng.uniform(-8, 8, (size, size))).astype(np.uint8)
    pixels_HW3 = np.stack([np.zeros_like(green_HW), green_HW, green_HW], axis=2)
    whole_HW = green_HW.astype(float)
    differences = [np.abs(np.diff(whole_HW, axis=axis)).mean() for axis in (0, 1)]
    brightness, sharpness = statistics(pixels_HW3)
    assert brightness == pytest.approx(whole_HW.mean(), rel=0.02)
    assert sharpness == pytest.approx(np.mean(differences), rel=0.03)
    if size < 2 * watched.LINES:
        assert (brightness, sharpness) == pytest.approx((whole_HW.mean(), np.mean(differences)))


def test_blur_lowers_and_noise_raises_the_difference_of_neighbours():
    rng = np.random.default_rng(0)
    sharp_HW3 = rng.integers(60, 180, (224, 224, 3)).astype(np.uint8)
    blurred_HW3 = ((sharp_HW3.astype(int) + np.roll(sharp_HW3, 1, axis=0) + np.roll(sharp_HW3, 1, axis=1)) // 3).astype(
        np.uint8
    )
    noisy_HW3 = (sharp_HW3 + rng.integers(-40, 40, sharp_HW3.shape)).astype(np.uint8)
    blurred, sharp, noisy = (statistics(each)[1] for each in (blurred_HW3, sharp_HW3, noisy_HW3))
    assert blurred < 0.7 * sharp and noisy > 1.05 * sharp
