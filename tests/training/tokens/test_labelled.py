"""Labelled pictures beside a task's own: each in its split, evenly mixed, with a third of the weight."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from pliant.models.image import MAX_PIXELS, read
from pliant.training.data import ImageData, Split
from pliant.training.pictures import ArrayImages
from pliant.training.tokens.labelled import MOST_TIMES, SHARE, LabelledPicture, counts, is_joined, join, original

OLD = 300


def own_data() -> ImageData:
    rng = np.random.default_rng(0)
    order = rng.permutation(OLD).astype(np.int64)
    split = Split(order[:200], order[200:240], order[240:])
    pixels = rng.integers(0, 256, (OLD, 4, 4), dtype=np.uint8)
    return ImageData("t", ArrayImages(pixels), rng.integers(0, 2, OLD), ("a", "b"), split, "sha256:own")


DATA = own_data()


def labelled(*parts: tuple[str, int], start: int = 0) -> list[LabelledPicture]:
    """Pictures of different content, so many of each part."""
    names = [part for part, count in parts for _ in range(count)]
    rng = np.random.default_rng(start)
    return [
        LabelledPicture(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8), "ab"[number % 2], part)
        for number, part in enumerate(names)
    ]


def test_without_pictures_the_data_stay_the_very_same():
    assert join(DATA, [], 0.2) is DATA
    assert not is_joined(DATA.fingerprint)


@given(st.integers(0, 120), st.integers(0, 60), st.integers(0, 60))
def test_every_row_is_in_its_split_and_no_old_one_is_lost_or_repeated(fit, profiling, test):
    pictures = labelled(("fit", fit), ("profiling", profiling), ("test", test))
    split = join(DATA, pictures, 0.2).split
    parts = (split.fit, split.profiling, split.test)
    for part, old in zip(parts, (DATA.split.fit, DATA.split.profiling, DATA.split.test), strict=True):
        assert [row for row in part if row < OLD] == list(old)
    new = [set(part[part >= OLD].tolist()) for part in parts]
    assert [len(rows) for rows in new] == [fit, profiling, test]
    assert len(set().union(*new)) == fit + profiling + test


@given(st.integers(1, 400))
def test_labelled_rows_are_a_third_of_what_is_trained_on_unless_that_repeats_one_too_often(fit):
    split = join(DATA, labelled(("fit", fit)), 0.2).split
    rows = Counter(split.fit[split.fit >= OLD].tolist())
    assert max(rows.values()) <= MOST_TIMES
    assert sum(rows.values()) >= SHARE * len(split.fit) or min(rows.values()) == MOST_TIMES
    assert sum(rows.values()) <= len(split.fit) / 2 + fit, "nor is the old drowned"


@example(99, 0.2)
@given(st.integers(2, 150), st.sampled_from([0.1, 0.2, 0.5]))
def test_trials_are_judged_on_pictures_that_they_were_not_trained_on(fit, held_out):
    rows = join(DATA, labelled(("fit", fit)), held_out).split.fit
    cut = round(len(rows) * (1 - held_out))
    # Numbers of rows are rounded, so that the cut may lie some rows off, by less than one picture's repetitions.
    trained, judged = (set(part.tolist()) for part in (rows[: cut - MOST_TIMES], rows[cut + MOST_TIMES :]))
    assert not trained & judged


def test_pictures_and_labels_are_those_that_were_reported():
    pictures = labelled(("fit", 3), ("test", 2))
    joined = join(DATA, pictures, 0.2)
    stored = {read(joined.images.file(row), MAX_PIXELS).tobytes(): joined.labels[row] for row in range(OLD, OLD + 5)}
    assert stored == {p.pixels.tobytes(): DATA.classes.index(p.label) for p in pictures}
    assert joined.images.batch(np.array([OLD, 0]), 4).shape == (2, 4, 4, 3)
    assert counts(DATA, joined) == {"fit": 3, "profiling": 0, "test": 2}


def test_the_fingerprint_follows_from_what_is_learnt_and_not_from_its_order():
    pictures = labelled(("fit", 3), ("test", 2))
    mark = join(DATA, pictures, 0.2).fingerprint
    assert join(DATA, pictures[::-1], 0.2).fingerprint == mark
    assert is_joined(mark) and original(mark) == original(DATA.fingerprint) == DATA.fingerprint
    assert join(DATA, pictures[1:], 0.2).fingerprint != mark
    relabelled = [LabelledPicture(pictures[0].pixels, "b", "fit"), *pictures[1:]]
    assert join(DATA, relabelled, 0.2).fingerprint != mark
    moved = [LabelledPicture(pictures[0].pixels, "a", "test"), *pictures[1:]]
    assert join(DATA, moved, 0.2).fingerprint != mark


def test_a_picture_that_the_data_have_already_stays_in_its_split():
    """A client may send pictures of the test split, with their labels."""
    split = DATA.split
    for name, old in (("fit", split.fit), ("profiling", split.profiling), ("test", split.test)):
        for part in ("fit", "profiling", "test"):
            sent = [LabelledPicture(pixels, "a", part) for pixels in DATA.images.batch(old[:9], 16)]
            assert counts(DATA, join(DATA, sent, 0.2)) == {"fit": 0, "profiling": 0, "test": 0} | {name: 9}
