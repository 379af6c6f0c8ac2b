"""The data sets of the cascade's targets: what is held out has no part in training."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cascade.material import FOLDER, GRAM, read

shared = pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared data sets are not here")


@shared
def test_no_training_text_of_sst2_has_four_words_in_a_row_with_a_held_out_one():
    """Its training file holds phrases of the sentences that are judged on."""
    data = read("sst2")

    def fours(*rows) -> set[tuple[str, ...]]:
        words = [data.first[int(row)].lower().split() for row in np.concatenate(rows)]
        return {tuple(each[i : i + GRAM]) for each in words for i in range(len(each) - GRAM + 1)}

    held, fit = fours(data.split.profiling, data.split.test), fours(data.split.fit)
    assert len(held) > 10_000 < len(fit) and held.isdisjoint(fit)
