"""The data sets of the cascade's targets: what is held out has no part in training."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cascade.data import FOLDER, GRAM, SOURCES, SST2_FIT, SST2_HELD_OUT, read
from pliant.errors import InputError
from training.groups import of_texts
from training.text_data import TextData

shared = pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared data sets are not here")
CLASSES = {"clinc150": 150, "massive": 18, "banking77": 77, "sst2": 2, "cola": 2, "mrpc": 2, "rte": 2}


@pytest.fixture(scope="module")
def sst2() -> TextData:
    return read("sst2")


def fours(texts) -> set[tuple[str, ...]]:
    found = set()
    for text in texts:
        words = text.lower().split()
        found |= {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}
    return found


def chosen(data: TextData, *parts) -> list[str]:
    return [data.first[row] for part in parts for row in part]


def whole_inputs_once(data: TextData, rows) -> bool:
    """Whether no row is there twice, and of each different input one is; a held-out one stands for those that repeat it."""
    group_R = of_texts(data.first, data.second)
    return len(set(rows)) == len(rows) and set(group_R[rows]) == set(group_R)


@shared
def test_no_training_text_of_sst2_has_four_words_in_a_row_with_a_held_out_one(sst2):
    """Its training file holds phrases of the sentences that are judged on."""
    held, fit = (fours(chosen(sst2, *part)) for part in ((sst2.split.profiling, sst2.split.test), (sst2.split.fit,)))
    assert len(held) > 10_000
    assert len(fit) > 10_000
    assert held.isdisjoint(fit)


@shared
def test_no_training_text_of_sst2_is_a_held_out_one(sst2):
    held = set(chosen(sst2, sst2.split.profiling, sst2.split.test))
    assert held.isdisjoint(chosen(sst2, sst2.split.fit))


@shared
def test_sst2_is_as_large_as_it_says_and_parted_without_overlap(sst2):
    parts = sst2.split.fit, sst2.split.profiling, sst2.split.test
    assert len(sst2.split.fit) == SST2_FIT and len(sst2.first) == SST2_FIT + SST2_HELD_OUT
    assert whole_inputs_once(sst2, np.concatenate(parts))


@shared
def test_every_whole_sentence_of_sst2_is_held_out_and_keeps_its_label(sst2):
    import pyarrow.parquet

    file = pyarrow.parquet.read_table(FOLDER / "sst2_validation.parquet").to_pydict()
    labels = dict(zip(file["text"], file["label"], strict=True))
    held = np.concatenate([sst2.split.profiling, sst2.split.test])
    found = {sst2.first[row]: int(sst2.labels[row]) for row in held if sst2.first[row] in labels}
    assert found == labels


@shared
@pytest.mark.parametrize("name", [name for name in SOURCES if name != "sst2"])
def test_every_set_has_its_classes_and_parts_that_share_no_row(name):
    data = read(name)
    assert len(data.classes) == CLASSES[name]
    assert (data.second is not None) == (name in ("mrpc", "rte"))
    parts = np.concatenate([data.split.fit, data.split.profiling, data.split.test])
    assert whole_inputs_once(data, parts)
    assert len(data.split.profiling) + len(data.split.test) >= 900


def test_a_folder_without_the_files_is_refused_with_the_first_that_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"clinc150_train\.parquet, but must be an existing file"):
        read("clinc150", tmp_path)
